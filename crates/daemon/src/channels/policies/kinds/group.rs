use qfabric_host::manager::Controller;
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::GroupPolicy;

use super::super::group::GroupHere;
use super::{Fabric, Runs, Shared};

impl Runs for GroupPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        Ok(Box::new(GroupHere::new(self)?))
    }
}
