use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::Balance;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::BalancePolicy;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::super::least::MOST_COPIES;
use super::{Fabric, Runs, Shared, check_time, quality, refused};

/// Largest number of requests remembered for a server.
const MOST_WAITING: usize = 10_000;

impl Runs for BalancePolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let BalancePolicy { channel, patience_ns, copies, cancel, .. } = self;
        if !(1..=MOST_COPIES).contains(copies) {
            return Err(refused::out_of_range("copies", copies, &format!("1 to {MOST_COPIES}")));
        }
        check_time("patience_ns", *patience_ns, Nanos::from_millis(1), Nanos::from_millis(3_600_000))?;
        let balance = Balance::new(&quality(channel), *patience_ns, MOST_WAITING);
        Ok(Box::new(if *cancel { balance.cancelling() } else { balance }))
    }

    /// Servers register in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }

    fn started(&self, fabric: &Fabric, user: Option<u32>) -> Result<(), Problem> {
        fabric.balance(self, user)
    }

    fn stopped(&self, fabric: &Fabric) {
        fabric.unbalance(&self.channel);
    }
}
