//! A page that costs CPU time: a fixed number of rounds of integer arithmetic, calibrated beforehand. Each request
//! does the same work, whatever else runs on the host.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Rounds of the generator, about 1 ns each.
    pub rounds: u64,
}

const SAMPLE: u64 = 1 << 20;

impl Work {
    /// The work that takes `cost` of CPU time on this host, measured with the CPU clock of the thread.
    pub fn of(cost: Duration) -> Work {
        let sample = Work { rounds: SAMPLE };
        // Takes the shortest of several measurements, because a disturbance makes a run longer.
        Work::scaled(cost, (0..9).map(|_| sample.cpu_cost()).min().unwrap_or_default())
    }

    /// The work that costs `cost` if `SAMPLE` rounds take `cpu_cost`.
    fn scaled(cost: Duration, cpu_cost: Duration) -> Work {
        let rounds = cost.as_nanos() * u128::from(SAMPLE) / cpu_cost.as_nanos().max(1);
        Work { rounds: u64::try_from(rounds).unwrap_or(u64::MAX) }
    }

    /// Does the work. The result depends on every round, so that the compiler cannot remove any.
    pub fn run(self) -> u64 {
        (0..self.rounds).fold(1, |x: u64, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
    }

    fn cpu_cost(self) -> Duration {
        let before = cpu_time();
        black_box(self.run());
        cpu_time() - before
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_five_samples_has_five_times_their_rounds() {
        let sample = Duration::from_micros(700);
        assert_eq!(Work::scaled(5 * sample, sample), Work { rounds: 5 * SAMPLE });
        assert!(Work { rounds: SAMPLE }.cpu_cost() > Duration::ZERO);
    }

    #[test]
    fn no_work_costs_nothing() {
        assert_eq!(Work::of(Duration::ZERO), Work { rounds: 0 });
    }
}
