use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{MediaSync, MediaTerms};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::MediaPolicy;
use qfabric_types::{Instant, Nanos};

use super::super::group::number_of;
use super::{Fabric, MOST_DELAY, Runs, Shared, check_time, refused};

impl Runs for MediaPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let MediaPolicy { group, leader, follower, tolerance_ns, jump_ns, .. } = self;
        if leader == follower {
            return Err(refused::alone(leader));
        }
        check_time("jump_ns", *jump_ns, Nanos::from_millis(1), MOST_DELAY)?;
        check_time("tolerance_ns", *tolerance_ns, Nanos::from_millis(1), *jump_ns)?;
        let terms = MediaTerms { tolerance: *tolerance_ns, jump: *jump_ns, ..MediaTerms::default() };
        Ok(Box::new(MediaSync::new(number_of(group, leader), number_of(group, follower), terms)))
    }
}
