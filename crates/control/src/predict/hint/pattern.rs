//! What the hint cannot say but time can: residuals that repeat, from one job to the next (a busier machine)
//! or from one place in a group of pictures to the same place in the next.
//! Approach: forgetful autocorrelation of the residuals at every lag up to [`LAGS`]; the strongest lag lends
//! its residual to the next job, in proportion to how well it did so far. O([`LAGS`]) per job.

use crate::predict::window::Recent;

/// The longest pattern looked for: groups of 12 and 15 pictures are the usual ones.
pub const LAGS: usize = 16;
/// Weight kept from job to job: a memory of thirty.
const MEMORY: f64 = 0.97;
/// Correlations below this are taken for chance.
const CHANCE: f64 = 0.3;
/// Part of the correlation believed.
const BELIEF: f64 = 0.8;
/// Residuals smaller than this (2 %) are not worth following; larger than this (50 %) are cut.
const WORTH: f64 = 0.02;
const LARGEST: f64 = 0.4;

/// Residuals and how they repeat.
#[derive(Clone, Debug)]
pub struct Pattern {
    recent: Recent,
    square: f64,
    products: [f64; LAGS],
}

impl Default for Pattern {
    fn default() -> Self {
        Pattern { recent: Recent::new(LAGS), square: 0.0, products: [0.0; LAGS] }
    }
}

impl Pattern {
    /// The last job's logarithm of cost was `residual` above what its hint said.
    pub fn push(&mut self, residual: f64) {
        let residual = residual.clamp(-LARGEST, LARGEST);
        self.square = self.square * MEMORY + residual * residual;
        for (product, earlier) in self.products.iter_mut().zip(self.recent.oldest_first()) {
            *product = *product * MEMORY + residual * earlier;
        }
        self.recent.push(residual);
    }

    /// What to add to the next job's logarithm of cost.
    pub fn correction(&self) -> f64 {
        let lags = self.products.iter().zip(self.recent.oldest_first());
        let (product, earlier) = lags.fold((0.0, 0.0), |best, (&p, &r)| if p > best.0 { (p, r) } else { best });
        let correlation = product / (self.square + WORTH * WORTH);
        if correlation < CHANCE { 0.0 } else { BELIEF * correlation.min(1.0) * earlier }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_residual_that_repeats_every_twelfth_job_is_foreseen() {
        let mut pattern = Pattern::default();
        for k in 0..200 {
            let residual = if k % 12 == 7 { 0.2 } else { -0.01 };
            if k > 60 {
                assert!((pattern.correction() - residual).abs() < 0.1, "job {k}: {}", pattern.correction());
            }
            pattern.push(residual);
        }
    }

    #[test]
    fn a_machine_that_became_slower_is_followed() {
        let mut pattern = Pattern::default();
        (0..20).for_each(|_| pattern.push(0.2));
        assert!((0.1..0.2).contains(&pattern.correction()), "{}", pattern.correction());
    }

    #[test]
    fn alternation_without_repetition_and_silence_are_left_alone() {
        let mut pattern = Pattern::default();
        assert_eq!(pattern.correction(), 0.0);
        (0..100).for_each(|_| pattern.push(0.001));
        assert!(pattern.correction().abs() < 1e-3);
    }
}
