//! Computation with a known CPU time: a number of loop iterations, calibrated once per host.
//!
//! A job must be *work*, not time: time that an interrupt or another task takes must be made up, as with the
//! decoding of a frame. So the iterations per microsecond are measured once (the fastest of many stretches, at a
//! high priority), and every job executes its number of iterations. Under an emulator that counts instructions,
//! the result is exact and the same in every run.

use std::hint::black_box;

use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::{Instant, Nanos, ThreadId};
use serde::{Deserialize, Serialize};

/// Iterations of one timed stretch: long in comparison with the clock's resolution, short in comparison with a
/// tick.
const STRETCH: u64 = 20_000;
const STRETCHES: usize = 50;
/// The calling thread.
const SELF: ThreadId = ThreadId(0);

/// The calibrated speed of this host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    iterations_per_us: f64,
}

impl Work {
    /// Measures the speed of this host, with real-time priority if it is allowed. Takes some milliseconds.
    pub fn calibrate() -> Work {
        let before = SchedAttr::of(SELF).ok();
        let _ = SchedAttr::fifo(90).give(SELF); // if this fails, the fastest stretch is still undisturbed
        let work = Work::from_fastest((0..STRETCHES).map(|_| timed(STRETCH)));
        if let Some(before) = before {
            let _ = before.give(SELF); // lowering the priority is always allowed
        }
        work
    }

    /// Uses the fastest stretch, because other tasks only make a stretch longer.
    fn from_fastest(stretches: impl Iterator<Item = Nanos>) -> Work {
        let fastest = stretches.min().unwrap_or_default().get().max(1);
        Work { iterations_per_us: STRETCH as f64 * 1_000.0 / fastest as f64 }
    }

    /// Computes for `cost` of CPU time.
    pub fn run(self, cost: Nanos) {
        iterate(self.iterations(cost));
    }

    /// Like [`run`](Self::run), but stops at the first check of the clock at or after `end`; checks are 50 µs of
    /// work apart. Returns whether the work was completed.
    pub fn run_until(self, cost: Nanos, end: Instant) -> bool {
        const CHECK: Nanos = Nanos::new(50_000);
        let mut left = cost;
        while left > CHECK {
            self.run(CHECK);
            left -= CHECK;
            if clock::now() >= end {
                return false;
            }
        }
        self.run(left);
        clock::now() <= end
    }

    /// Computes without end.
    pub fn endless(self) -> ! {
        loop {
            iterate(STRETCH);
        }
    }

    fn iterations(self, cost: Nanos) -> u64 {
        (cost.get() as f64 * self.iterations_per_us / 1_000.0) as u64
    }
}

fn timed(iterations: u64) -> Nanos {
    let begin = clock::now();
    iterate(iterations);
    clock::now().since(begin)
}

#[inline(never)]
fn iterate(iterations: u64) {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..iterations {
        x = black_box(x ^ (x << 13)).wrapping_add(x >> 7);
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_cost_is_twice_the_work() {
        let work = Work { iterations_per_us: 100.0 };
        assert_eq!(work.iterations(Nanos::from_micros(20)), 2 * work.iterations(Nanos::from_micros(10)));
    }

    #[test]
    fn calibration_uses_the_fastest_stretch() {
        let stretches = [9_000, 2_000, 4_000].map(Nanos::from_micros);
        let work = Work::from_fastest(stretches.into_iter());
        assert_eq!(work.iterations(Nanos::from_micros(2_000)), STRETCH);
    }

    #[test]
    fn work_stops_at_its_end() {
        // A day of work: the test ends only because the work is abandoned.
        let day = Nanos::from_millis(86_400_000);
        assert!(!Work::calibrate().run_until(day, clock::now()));
    }
}
