use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Adapt, Dimension, Ladder, LadderTerms};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{AdaptPolicy, LadderDimension};
use qfabric_types::channel::Name;

use super::{Fabric, Runs, Shared, quality};

/// The ladder with these dimensions, for a wanted rate in events per second; by the utilities of the levels if all
/// state them.
pub(super) fn ladder(dimensions: &[LadderDimension], rate: f64) -> Result<Ladder, Problem> {
    let dimension = |one: &LadderDimension| Dimension::new(one.name.as_str(), &one.levels);
    let worth: Vec<Vec<u64>> = dimensions.iter().map(|one| one.worth.clone()).collect();
    let ladder = Ladder::new(dimensions.iter().map(dimension).collect(), LadderTerms::new(rate));
    ladder.map(|ladder| ladder.by_worth(&worth)).map_err(|reason| reason.problem())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ladder_keeps_its_reason_and_its_next_step_apart() {
        let Problem { code, message, next_step, .. } = ladder(&[], 20.0).unwrap_err();
        assert_eq!((code.as_str(), message.as_str()), ("channel_invalid", "the ladder has 0 dimensions"));
        assert!(next_step.starts_with("use 1 to "), "{next_step}");
    }
}
