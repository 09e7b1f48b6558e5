use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Adapt, Dimension, Ladder, LadderTerms};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::AdaptPolicy;
use qfabric_types::channel::Name;

use super::{Fabric, Runs, Shared, quality, refused};

impl Runs for AdaptPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let dimension =
            |one: &qfabric_types::api::channel::LadderDimension| Dimension::new(one.name.as_str(), &one.levels);
        let dimensions = self.ladder.iter().map(dimension).collect();
        let ladder = Ladder::new(dimensions, LadderTerms::new(self.rate)).map_err(|reason| refused::ladder(&reason))?;
        Ok(Box::new(Adapt::new(&quality(&self.channel), ladder)))
    }

    /// Applications report their rates in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }

    fn dimensions(&self) -> Vec<&Name> {
        self.ladder.iter().map(|dimension| &dimension.name).collect()
    }
}
