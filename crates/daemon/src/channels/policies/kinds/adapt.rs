use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Adapt, Dimension, Ladder, LadderTerms};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{AdaptPolicy, LadderDimension};
use qfabric_types::channel::Name;

use super::{Fabric, Runs, Shared, quality, refused};

/// The ladder with these dimensions, for a wanted rate in events per second; by the utilities of the levels if all
/// state them.
pub(super) fn ladder(dimensions: &[LadderDimension], rate: f64) -> Result<Ladder, Problem> {
    let dimension = |one: &LadderDimension| Dimension::new(one.name.as_str(), &one.levels);
    let worth: Vec<Vec<u64>> = dimensions.iter().map(|one| one.worth.clone()).collect();
    let ladder = Ladder::new(dimensions.iter().map(dimension).collect(), LadderTerms::new(rate));
    ladder.map(|ladder| ladder.by_worth(&worth)).map_err(|reason| refused::ladder(&reason))
}

impl Runs for AdaptPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        Ok(Box::new(Adapt::new(&quality(&self.channel), ladder(&self.ladder, self.rate)?)))
    }

    /// Applications report their rates in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }

    fn dimensions(&self) -> Vec<&Name> {
        self.ladder.iter().map(|dimension| &dimension.name).collect()
    }
}
