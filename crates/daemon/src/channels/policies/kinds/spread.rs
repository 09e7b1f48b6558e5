use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Spread, SpreadRule};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::SpreadPolicy;
use qfabric_types::{Instant, Nanos};

use super::{Fabric, Runs, Shared, quality, refused};

/// Accepted periods of reports.
const PERIODS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(10)..=Nanos::from_millis(3_600_000);

impl Runs for SpreadPolicy {
    fn controller(&self, fabric: &Fabric, _record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let SpreadPolicy { channel, attribute, period_ns, .. } = self;
        let period = period_ns.unwrap_or_else(|| fabric.settings.report_period());
        if !PERIODS.contains(&period) {
            return Err(refused::out_of_range("period_ns", period, "10 ms to 1 h"));
        }
        // Any seed works: it only decides which member of one slot is asked.
        Ok(Box::new(Spread::new(&quality(channel), attribute, period, SpreadRule::Placed, now.get(), now)))
    }
}
