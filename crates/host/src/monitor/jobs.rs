//! What a host itself knows of its applications: jobs, misses, budgets.

use std::sync::LazyLock;

use qfabric_types::monitor::{Attribute, AttributeId, Metric, Readers};
use qfabric_types::{AppId, Instant};

use crate::Host;

const JOBS: AttributeId = AttributeId::of("app.jobs");
const MISSES: AttributeId = AttributeId::of("app.misses");
const BUDGET: AttributeId = AttributeId::of("app.budget");

static ATTRIBUTES: LazyLock<Vec<Attribute>> = LazyLock::new(|| {
    let of = |name| Metric::find(name).and_then(|metric| Attribute::new(name, metric.unit, metric.shape).ok());
    ["app.jobs", "app.misses", "app.budget"].into_iter().filter_map(of).collect()
});

/// Reads them off a host.
pub struct Jobs<'a>(pub &'a Host);

impl Readers for Jobs<'_> {
    fn attributes(&self) -> &[Attribute] {
        &ATTRIBUTES
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, _: Instant) -> Option<i64> {
        let count = match attribute {
            JOBS => self.0.jobs(application)?.0,
            MISSES => self.0.jobs(application)?.1,
            BUDGET => self.0.grant(application)?.budget.get(),
            _ => return None,
        };
        i64::try_from(count).ok()
    }
}
