//! Regression of costs on hints, local to one hint: the logarithm of the cost on the logarithm of the hint.
//!
//! Logarithms, because bytes and decoding times span a decade, their errors are relative, and a law `c ~ hint^b`
//! transfers from one kind of frame to the next better than a line. Local, because I, P and B frames follow
//! different laws and differ in size, so samples with near hints get more weight. A prior on the slope, because
//! samples of one size do not determine the slope, and a wrong slope ruins the prediction of the next frame of
//! another size; without evidence `b` stays at one half.

use crate::predict::window::{LANES, Recent};

/// Distance of logarithms at which the weight of a sample is a quarter: about a third more or less.
const NEAR: f64 = 0.3;
const PER_NEAR_SQUARED: f64 = 1.0 / (NEAR * NEAR);
/// The prior slope, and the weighted number of samples at distance 1 that outweighs it.
const PRIOR: (f64, f64) = (0.5, 0.1);
/// Steeper slopes are noise.
const STEEPEST: f64 = 1.5;
/// Hints are extrapolated at most this far (a factor of 7) beyond those seen.
const FARTHEST: f64 = 2.0;
/// A sample with a larger prediction error gets less weight, in proportion, so that one spike changes little.
const SURPRISE: f64 = 0.2;
/// Recency: the weight of a sample halves within this fraction of the window.
const HALF_LIFE: f64 = 0.4;

/// The last `n` pairs of hint and cost.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    hints: Recent,
    costs: Recent,
    trust: Recent,
    recency: Vec<f64>,
    seen: usize,
}

impl Local {
    /// Over `n` samples. The window is rounded up to whole [`LANES`]; samples older than `n` have no weight.
    pub(crate) fn new(n: usize) -> Self {
        let (half_life, window) = ((HALF_LIFE * n as f64).max(1.0), n.next_multiple_of(LANES));
        let weight = |age: usize| if age < n { 0.5f64.powf(age as f64 / half_life) } else { 0.0 };
        let recency = (0..window).rev().map(weight).collect();
        Local { hints: Recent::new(window), costs: Recent::new(window), trust: Recent::new(window), recency, seen: 0 }
    }

    /// Number of samples seen, up to the whole window.
    pub(crate) fn samples(&self) -> usize {
        self.seen.min(self.recency.len())
    }

    /// Adds a job with the logarithms `hint` and `cost`, whose prediction was too low by `residual` (0 if there was
    /// none).
    pub(crate) fn push(&mut self, hint: f64, cost: f64, residual: f64) {
        self.hints.push(hint);
        self.costs.push(cost);
        self.trust.push((SURPRISE / residual.abs()).min(1.0));
        self.seen = self.seen.saturating_add(1);
    }

    /// The expected logarithm of the cost for the logarithm `hint`. Needs at least one sample.
    pub(crate) fn at(&self, hint: f64) -> f64 {
        let sums = self.sums(hint);
        let (mean_x, mean_y) = (sums.x / sums.w, sums.y / sums.w);
        let sxx = (sums.xx - sums.x * mean_x).max(0.0);
        let sxy = sums.xy - sums.x * mean_y;
        let (prior, ridge) = PRIOR;
        let slope = ((sxy + prior * ridge) / (sxx + ridge)).clamp(-STEEPEST, STEEPEST);
        mean_y - slope * mean_x.clamp(-FARTHEST, FARTHEST)
    }

    /// Weighted sums, with `x` relative to `hint`. Unused places of the window have no weight.
    fn sums(&self, hint: f64) -> Sums {
        let samples = self.hints.lanes().zip(self.costs.lanes());
        let weights = self.trust.lanes().zip(self.recency.as_chunks::<LANES>().0);
        let mut sums = [Sums::default(); LANES];
        for ((hints, costs), (trust, recency)) in samples.zip(weights) {
            for lane in 0..LANES {
                let x = hints[lane] - hint;
                let near = 1.0 / (1.0 + x * x * PER_NEAR_SQUARED);
                sums[lane].add(trust[lane] * recency[lane] * near * near, x, costs[lane]);
            }
        }
        let [a, b, c, d] = sums;
        a.plus(b).plus(c.plus(d))
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, w: f64, x: f64, y: f64) {
        self.w += w;
        self.x += w * x;
        self.y += w * y;
        self.xx += w * x * x;
        self.xy += w * x * y;
    }

    fn plus(self, other: Sums) -> Sums {
        Sums {
            w: self.w + other.w,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(pairs: impl IntoIterator<Item = (f64, f64)>) -> Local {
        let mut local = Local::new(24);
        pairs.into_iter().for_each(|(hint, cost): (f64, f64)| local.push(hint.ln(), cost.ln(), 0.0));
        local
    }

    #[test]
    fn two_kinds_of_jobs_keep_separate_laws() {
        // Small jobs cost 100 per byte, large jobs 20.
        let small = (0..16).map(|i| (1e4 + 100.0 * f64::from(i), (1e4 + 100.0 * f64::from(i)) * 100.0));
        let large = (0..8).map(|i| (2e5 + 1e3 * f64::from(i), (2e5 + 1e3 * f64::from(i)) * 20.0));
        let local = learned(small.chain(large));
        for (hint, cost) in [(1.05e4, 1.05e6), (2.04e5, 4.08e6)] {
            let expected = local.at(f64::ln(hint)).exp();
            assert!((expected / cost - 1.0).abs() < 0.03, "{hint}: got {expected}, expected {cost}");
        }
    }

    #[test]
    fn a_single_sample_is_extrapolated_with_slope_one_half() {
        let local = learned([(1e4, 1e6)]);
        assert!((local.at(f64::ln(4e4)).exp() / 2e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn extrapolation_from_absurd_hints_is_bounded() {
        let local = learned((0..24).map(|i| (1e4 + f64::from(i), 1e6)));
        for hint in [f64::MIN_POSITIVE, 1e-9, 1e300, f64::MAX] {
            let expected = local.at(hint.ln()).exp();
            assert!((1e5..1e7).contains(&expected), "{hint}: {expected}");
        }
    }

    #[test]
    fn a_surprising_sample_has_less_weight() {
        let (mut calm, mut wary) = (learned([(1e4, 1e6); 8]), learned([(1e4, 1e6); 8]));
        calm.push(1e4f64.ln(), 4e6f64.ln(), 0.0);
        wary.push(1e4f64.ln(), 4e6f64.ln(), 4f64.ln());
        assert!(wary.at(1e4f64.ln()) < calm.at(1e4f64.ln()));
    }
}
