//! Computation of a known length: so many turns of a loop, counted once per host.
//!
//! A job must be *work*, not time: what an interrupt or another task takes away has to be made up for, as with a
//! frame that is decoded. Turns per microsecond are therefore measured once (fastest of many stretches, above
//! everything else that runs) and every job turns that often. Under an emulator that counts instructions the
//! result is exact and the same in every run.

use std::hint::black_box;

use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::{Instant, Nanos, ThreadId};
use serde::{Deserialize, Serialize};

/// Turns of one stretch that is timed; long beside the clock's resolution, short beside a tick.
const STRETCH: u64 = 20_000;
const STRETCHES: usize = 50;
/// The calling thread.
const SELF: ThreadId = ThreadId(0);

/// How fast this host works.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    turns_per_us: f64,
}

impl Work {
    /// Measures this host; takes some milliseconds. Real-time while it does where that is allowed.
    pub fn calibrate() -> Work {
        let before = SchedAttr::of(SELF).ok();
        let _ = SchedAttr::fifo(90).give(SELF); // refused: the fastest stretch is still undisturbed
        let work = Work::by_the_fastest((0..STRETCHES).map(|_| timed(STRETCH)));
        if let Some(before) = before {
            let _ = before.give(SELF); // down again is always allowed
        }
        work
    }

    /// What others take away only makes a stretch longer.
    fn by_the_fastest(stretches: impl Iterator<Item = Nanos>) -> Work {
        let fastest = stretches.min().unwrap_or_default().get().max(1);
        Work { turns_per_us: STRETCH as f64 * 1_000.0 / fastest as f64 }
    }

    /// Works as long as `cost` of undisturbed CPU time takes.
    pub fn run(self, cost: Nanos) {
        turn(self.turns(cost));
    }

    /// As [`run`](Self::run), but gives up at the first look at the clock at or after `end` (looks are 50 µs of work
    /// apart). Whether it came to its end.
    pub fn run_until(self, cost: Nanos, end: Instant) -> bool {
        const LOOK: Nanos = Nanos::new(50_000);
        let mut left = cost;
        while left > LOOK {
            self.run(LOOK);
            left -= LOOK;
            if clock::now() >= end {
                return false;
            }
        }
        self.run(left);
        clock::now() <= end
    }

    /// Works for ever.
    pub fn endless(self) -> ! {
        loop {
            turn(STRETCH);
        }
    }

    fn turns(self, cost: Nanos) -> u64 {
        (cost.get() as f64 * self.turns_per_us / 1_000.0) as u64
    }
}

fn timed(turns: u64) -> Nanos {
    let begin = clock::now();
    turn(turns);
    clock::now().since(begin)
}

#[inline(never)]
fn turn(turns: u64) {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..turns {
        x = black_box(x ^ (x << 13)).wrapping_add(x >> 7);
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_cost_is_twice_the_work() {
        let work = Work { turns_per_us: 100.0 };
        assert_eq!(work.turns(Nanos::from_micros(20)), 2 * work.turns(Nanos::from_micros(10)));
    }

    #[test]
    fn a_disturbed_stretch_makes_no_job_shorter() {
        let stretches = [9_000, 2_000, 4_000].map(Nanos::from_micros);
        let work = Work::by_the_fastest(stretches.into_iter());
        assert_eq!(work.turns(Nanos::from_micros(2_000)), STRETCH);
    }

    #[test]
    fn work_that_passed_its_end_is_given_up() {
        // A day of work: the test ends only because it is given up.
        let day = Nanos::from_millis(86_400_000);
        assert!(!Work::calibrate().run_until(day, clock::now()));
    }
}
