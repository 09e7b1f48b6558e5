use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Integrated, IntegratedTerms};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::IntegratedPolicy;
use qfabric_types::channel::Name;

use super::adapt::ladder;
use super::cpu::share_terms;
use super::{Fabric, Runs, Shared, quality, refused};

impl Runs for IntegratedPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let terms = IntegratedTerms { share: share_terms(self.most)?, ..IntegratedTerms::default() };
        let policy = Integrated::new(&quality(&self.channel), ladder(&self.ladder, self.rate)?, terms);
        match (&self.interface, self.stream) {
            (Some(interface), Some(stream)) => Ok(Box::new(policy.with_stream(interface.as_str(), stream))),
            (None, None) => Ok(Box::new(policy)),
            _ => Err(refused::half_a_stream()),
        }
    }

    /// Applications report their rates in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }

    fn dimensions(&self) -> Vec<&Name> {
        self.ladder.iter().map(|dimension| &dimension.name).collect()
    }
}
