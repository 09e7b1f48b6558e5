//! A page that costs CPU time: a fixed number of rounds of integer arithmetic, counted beforehand so that each
//! request costs the same whatever else runs.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time to be spent per request, in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Rounds of the generator; about 1 ns each.
    pub rounds: u64,
}

const SAMPLE: u64 = 1 << 20;

impl Work {
    /// Work that takes `cost` of CPU time on this machine, measured on the thread's CPU clock.
    pub fn of(cost: Duration) -> Work {
        let sample = Work { rounds: SAMPLE };
        // The shortest of several: whatever disturbs a run makes it longer.
        Work::scaled(cost, (0..9).map(|_| sample.took()).min().unwrap_or_default())
    }

    /// Work of `cost`, where the sample took `took`.
    fn scaled(cost: Duration, took: Duration) -> Work {
        let rounds = cost.as_nanos() * u128::from(SAMPLE) / took.as_nanos().max(1);
        Work { rounds: u64::try_from(rounds).unwrap_or(u64::MAX) }
    }

    /// Does it. The result depends on all of it.
    pub fn burn(self) -> u64 {
        (0..self.rounds).fold(1, |x: u64, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
    }

    fn took(self) -> Duration {
        let before = cpu_time();
        black_box(self.burn());
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
        assert!(Work { rounds: SAMPLE }.took() > Duration::ZERO);
    }

    #[test]
    fn no_work_costs_nothing() {
        assert_eq!(Work::of(Duration::ZERO), Work { rounds: 0 });
    }
}
