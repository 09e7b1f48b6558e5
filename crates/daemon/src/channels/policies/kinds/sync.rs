use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{SinkSync, SyncTerms};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::SyncPolicy;
use qfabric_types::{Instant, Nanos};

use super::{Fabric, MOST_DELAY, Runs, Shared, check_time, quality};

impl Runs for SyncPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let SyncPolicy { channel, margin_ns, bound_ns, .. } = self;
        check_time("bound_ns", *bound_ns, Nanos::from_millis(1), MOST_DELAY)?;
        check_time("margin_ns", *margin_ns, Nanos::ZERO, *bound_ns)?;
        let terms = SyncTerms { margin: *margin_ns, bound: *bound_ns, ..SyncTerms::default() };
        Ok(Box::new(SinkSync::new(&quality(channel), terms, now)))
    }
}
