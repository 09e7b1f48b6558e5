use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Cpu, ShareTerms};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::CpuPolicy;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Share};

use super::{Fabric, Runs, Shared, quality, refused};

/// The limits of contracts, with this largest guarantee.
pub(super) fn share_terms(most: Share) -> Result<ShareTerms, Problem> {
    match (10_000..=1_000_000).contains(&most.ppm()) {
        true => Ok(ShareTerms { most: most.as_f64(), ..ShareTerms::default() }),
        false => Err(refused::out_of_range("most", most, "1 % to 100 % of a CPU")),
    }
}

impl Runs for CpuPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let CpuPolicy { rate, most, channel, .. } = self;
        if !(0.001..=1e6).contains(rate) {
            return Err(refused::out_of_range("rate", rate, "0.001 to 1000000 events per second"));
        }
        Ok(Box::new(Cpu::new(&quality(channel), *rate, share_terms(*most)?)))
    }

    /// Applications report their rates in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }
}
