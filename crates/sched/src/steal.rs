//! Simulates steal: a hypervisor takes a CPU away for a while, again and again, whatever runs on the CPU.
//!
//! The length of a freeze is evenly distributed within [`FREEZE`]. The pauses between freezes are exponentially
//! distributed; their mean yields the configured fraction. All freezes derive from one seed, so every policy meets
//! the same freezes.

use qfabric_types::{Instant, Nanos, RandomNumbers, Share};

/// Shortest and longest freeze.
const FREEZE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(20));

/// The stolen part of the CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// Fraction of each CPU, below 1.
    pub fraction: Share,
    /// Seed of the random sequence of freezes.
    pub seed: u64,
}

impl Steal {
    /// No CPU time is stolen.
    pub const NONE: Steal = Steal { fraction: Share::ZERO, seed: 0 };
}

/// The freezes of one CPU; stores the current or next freeze.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    steal: Steal,
    random: RandomNumbers,
    from: Instant,
    to: Instant,
    now: bool,
}

impl Frozen {
    pub(crate) fn new(steal: Steal, cpu: usize) -> Self {
        let random = RandomNumbers::new(steal.seed ^ (cpu as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut frozen = Frozen { steal, random, from: Instant::NEVER, to: Instant::ZERO, now: false };
        frozen.draw();
        frozen
    }

    pub(crate) fn is_now(&self) -> bool {
        self.now
    }

    /// The next time at which the CPU freezes or thaws.
    pub(crate) fn next(&self) -> Instant {
        if self.now { self.to } else { self.from }
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        while self.next() <= now {
            if self.now {
                self.draw();
            }
            self.now = !self.now;
        }
    }

    /// Draws the next freeze.
    fn draw(&mut self) {
        let fraction = self.steal.fraction.as_f64();
        if fraction <= 0.0 {
            return;
        }
        let (short, long) = (FREEZE.0.as_f64(), FREEZE.1.as_f64());
        let pause_ns = (short + long) / 2.0 * (1.0 / fraction - 1.0).max(0.0);
        self.from = self.to + Nanos::from_f64((-pause_ns * (1.0 - self.random.uniform()).ln()).max(1.0));
        self.to = self.from + Nanos::from_f64(short + (long - short) * self.random.uniform());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fraction_is_stolen_in_freezes_of_one_to_twenty_ms() {
        let mut frozen = Frozen::new(Steal { fraction: Share::from_ppm(150_000), seed: 7 }, 0);
        let (end, mut taken) = (Instant::new(100_000_000_000), 0.0);
        while frozen.next() < end {
            frozen.on_time(frozen.next());
            if frozen.is_now() {
                let length = frozen.next().since(frozen.from);
                assert!((FREEZE.0..=FREEZE.1).contains(&length), "{length}");
                taken += length.as_f64();
            }
        }
        assert!((0.14..0.16).contains(&(taken / 1e11)), "{}", taken / 1e11);
    }

    #[test]
    fn no_cpu_freezes_if_the_fraction_is_zero() {
        assert_eq!(Frozen::new(Steal::NONE, 1).next(), Instant::NEVER);
    }
}
