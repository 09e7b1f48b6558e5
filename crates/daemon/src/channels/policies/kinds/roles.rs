use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{CapacityTerms, Roles};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::RolesPolicy;
use qfabric_types::{Instant, Nanos};

use super::{Fabric, Runs, Shared, TOLERANCE, check_bits, quality};

/// Added to the period: a report that was sent when the rate changed arrives within this time.
const ON_THE_WAY: Nanos = Nanos::from_millis(100);

impl Runs for RolesPolicy {
    fn controller(&self, fabric: &Fabric, _record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let RolesPolicy { channel, event_bits, fade, .. } = self;
        check_bits(*event_bits)?;
        let settle = fabric.settings.report_period() + ON_THE_WAY;
        let terms = CapacityTerms { tolerance: TOLERANCE, settle, ..CapacityTerms::default() };
        let roles = Roles::new(&quality(channel), *event_bits as f64, terms, now);
        Ok(Box::new(if *fade { roles.fading() } else { roles }))
    }
}
