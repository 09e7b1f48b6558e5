//! hint:n – predicts from a number that the application knows about a job before it runs, such as the bytes of a
//! frame. O(n) per job. Costs in nanoseconds, internally as logarithms; a hint is any number above 0 that
//! correlates with the cost. Source: AQuoSA 2009, §4.3.2, which only mentions the idea; the method is this
//! project's own.
//!
//! ```text
//!  hint ──> local regression over the last n jobs ──┐
//!                                                   + ──> centre ──> centre·(1 ± ρ·w)
//!  residuals that repeat (lags 1 to 16) ────────────┘
//! ```
//! `w` is three times the recent mean deviation, at most 0.13. On a shared machine, costs repeat to within an eighth;
//! a wider interval reserves more bandwidth for every job and prevents few misses. The factor is three because the
//! deviations have long tails. A job without a hint (or with a hint of 0 or less) is predicted by MA[n].

mod local;
mod pattern;

use std::cell::Cell;

use local::Local;
use pattern::{LAGS, Pattern};

use super::{Interval, MovingAverage, Predictor};

/// Half-width of the interval for ρ = 1: the number of mean deviations, and the upper bound as a part of the centre.
const WIDTH: (f64, f64) = (3.0, 0.13);
/// Weight of the newest deviation, and the largest deviation that is counted.
const DEVIATION: (f64, f64) = (0.05, 0.2);
/// Number of samples with hints before hints are used.
const ENOUGH: usize = 3;

/// `hint:n`.
#[derive(Clone, Debug)]
pub struct Hint {
    rho: f64,
    plain: MovingAverage,
    local: Local,
    pattern: Pattern,
    correction: f64,
    deviation: f64,
    /// The last result: the next job is usually the one that was predicted last.
    cached: Cell<Regression>,
}

/// A result of the regression for a hint.
#[derive(Clone, Copy, Debug)]
struct Regression {
    hint: f64,
    log_hint: f64,
    log_cost: f64,
}

impl Regression {
    /// Matches no hint, because NaN differs from every number.
    const NOTHING: Regression = Regression { hint: f64::NAN, log_hint: 0.0, log_cost: 0.0 };
}

impl Hint {
    /// Over the last `n` jobs, at least 2; `rho` scales the interval.
    pub fn new(n: usize, rho: f64) -> Self {
        let n = n.max(2);
        Hint {
            rho,
            plain: MovingAverage::new(n, rho),
            local: Local::new(n),
            pattern: Pattern::default(),
            correction: 0.0,
            deviation: WIDTH.1 / WIDTH.0,
            cached: Cell::new(Regression::NOTHING),
        }
    }

    /// The expected logarithm of the cost, from the hint alone. Needs a sample.
    fn regress(&self, hint: f64) -> Regression {
        let mut cached = self.cached.get();
        if cached.hint != hint {
            let log_hint = hint.ln();
            cached = Regression { hint, log_hint, log_cost: self.local.at(log_hint) };
            self.cached.set(cached);
        }
        cached
    }

    /// Learns from a job that had a hint.
    fn learn(&mut self, cost_ns: f64, hint: f64) {
        let log_cost = cost_ns.max(1.0).ln();
        if self.local.samples() < ENOUGH {
            return self.local.push(hint.ln(), log_cost, 0.0);
        }
        let said = self.regress(hint);
        let residual = log_cost - said.log_cost;
        let surprise = residual - self.correction;
        let (gain, largest) = DEVIATION;
        self.deviation += gain * (surprise.abs().min(largest) - self.deviation);
        self.follow(residual);
        self.local.push(said.log_hint, log_cost, surprise);
        self.cached.set(Regression::NOTHING);
    }

    fn follow(&mut self, residual: f64) {
        self.pattern.push(residual);
        self.correction = self.pattern.correction();
    }
}

fn usable(hint: Option<f64>) -> Option<f64> {
    hint.filter(|hint| hint.is_finite() && *hint > 0.0)
}

impl Predictor for Hint {
    fn observe(&mut self, cost_ns: f64, hint: Option<f64>) {
        self.plain.observe(cost_ns, None);
        match usable(hint) {
            Some(hint) => self.learn(cost_ns, hint),
            None => self.follow(0.0),
        }
    }

    fn predict(&self, hint: Option<f64>) -> Option<Interval> {
        let plain = self.plain.predict(None)?;
        let Some(hint) = usable(hint).filter(|_| self.local.samples() >= ENOUGH) else { return Some(plain) };
        let centre = (self.regress(hint).log_cost + self.correction).exp();
        let width = (WIDTH.0 * self.deviation).min(WIDTH.1);
        Some(Interval::around(centre, self.rho * width * centre))
    }

    fn skip(&mut self, jobs: u64) {
        (0..jobs.min(LAGS as u64)).for_each(|_| self.follow(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// I every 12th, P every 3rd, else B; each kind with its own law and sizes that vary by a tenth.
    fn frames(jobs: u32) -> impl Iterator<Item = (f64, f64)> {
        (0..jobs).map(|k| {
            let wobble = 1.0 + 0.1 * f64::from(k * 7919 % 101) / 101.0;
            let (bytes, ns_per_byte) = match k % 12 {
                0 => (2e5, 80.0),
                k if k % 3 == 0 => (6e4, 150.0),
                _ => (2e4, 250.0),
            };
            (bytes * wobble, bytes * wobble * ns_per_byte)
        })
    }

    #[test]
    fn three_kinds_of_frames_are_told_apart_by_their_bytes() {
        let mut hint = Hint::new(24, 1.0);
        for (k, (bytes, cost)) in frames(400).enumerate() {
            if k > 100 {
                let costs = hint.predict(Some(bytes)).unwrap();
                assert!((costs.centre() / cost - 1.0).abs() < 0.06, "frame {k}: {costs:?}, {cost}");
            }
            hint.observe(cost, Some(bytes));
        }
    }

    #[test]
    fn a_constant_hint_is_no_worse_than_no_hint() {
        let mut hint = Hint::new(12, 1.0);
        for k in 0..200u32 {
            hint.observe(8e6 + 1e4 * f64::from(k % 5), Some(1.0));
        }
        let costs = hint.predict(Some(1.0)).unwrap();
        assert!(costs.contains(8.02e6) && costs.high - costs.low < 1e6, "{costs:?}");
    }

    #[test]
    fn without_a_hint_the_prediction_is_the_moving_average() {
        let (mut hint, mut ma) = (Hint::new(6, 1.0), MovingAverage::new(6, 1.0));
        for (k, (bytes, cost)) in frames(60).enumerate() {
            hint.observe(cost, (k % 2 == 0).then_some(bytes));
            ma.observe(cost, None);
            for nothing in [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
                assert_eq!(hint.predict(nothing), ma.predict(None));
            }
        }
    }

    #[test]
    fn an_unseen_hint_gives_a_plausible_prediction() {
        let mut hint = Hint::new(24, 1.0);
        frames(40).for_each(|(bytes, cost)| hint.observe(cost, Some(bytes)));
        for bytes in [1.0, 1e3, 1e6, 1e12] {
            let costs = hint.predict(Some(bytes)).unwrap();
            assert!(costs.high > 1e5 && costs.high < 4e8, "{bytes}: {costs:?}");
        }
    }

    proptest! {
        #[test]
        fn any_input_gives_a_valid_interval(
            jobs in prop::collection::vec((0.0f64..1e12, prop::option::of(-1e9f64..1e300)), 30..80),
            rho in 0.0f64..5.0,
        ) {
            let mut hint = Hint::new(8, rho);
            for (cost, known) in jobs {
                if let Some(costs) = hint.predict(known) {
                    prop_assert!(costs.low >= 0.0 && costs.low <= costs.high && costs.high.is_finite());
                }
                hint.observe(cost, known);
            }
        }
    }
}
