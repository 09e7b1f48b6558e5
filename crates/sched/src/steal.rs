//! What a hypervisor takes away: a CPU freezes for a while, again and again, whatever runs on it.
//!
//! Freezes last [`FREEZE`] each, evenly distributed; the pauses between them are exponentially distributed with the
//! mean that makes the fraction. From one seed, so that every policy meets the same freezes.

use qfabric_types::{Instant, Nanos, Share};

/// Shortest and longest freeze.
const FREEZE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(20));

/// How much is stolen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// Of each CPU, below 1.
    pub fraction: Share,
    /// Which freezes.
    pub seed: u64,
}

impl Steal {
    /// Nothing is.
    pub const NONE: Steal = Steal { fraction: Share::ZERO, seed: 0 };
}

/// The freezes of one CPU: the current or next one.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    steal: Steal,
    state: u64,
    from: Instant,
    to: Instant,
    now: bool,
}

impl Frozen {
    pub(crate) fn new(steal: Steal, cpu: usize) -> Self {
        let state = steal.seed ^ (cpu as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut frozen = Frozen { steal, state, from: Instant::NEVER, to: Instant::ZERO, now: false };
        frozen.draw();
        frozen
    }

    pub(crate) fn is_now(&self) -> bool {
        self.now
    }

    /// When it freezes or thaws.
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

    /// The freeze after this one.
    fn draw(&mut self) {
        let fraction = self.steal.fraction.as_f64();
        if fraction <= 0.0 {
            return;
        }
        let (short, long) = (FREEZE.0.as_f64(), FREEZE.1.as_f64());
        let pause_ns = (short + long) / 2.0 * (1.0 / fraction - 1.0).max(0.0);
        self.from = self.to + Nanos::from_f64((-pause_ns * (1.0 - self.uniform()).ln()).max(1.0));
        self.to = self.from + Nanos::from_f64(short + (long - short) * self.uniform());
    }

    /// In [0, 1): splitmix64 (Steele and others, 2014).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fraction_is_taken_in_freezes_of_one_to_twenty_ms() {
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
    fn nothing_is_taken_where_nothing_is_stolen() {
        assert_eq!(Frozen::new(Steal::NONE, 1).next(), Instant::NEVER);
    }
}
