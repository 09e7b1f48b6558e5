//! Prediction of residuals that repeat: from one job to the next (a busier machine), or from one place in a group
//! of pictures to the same place in the next group. Hints do not explain these residuals. Approach: an
//! exponentially weighted autocorrelation of the residuals at every lag up to [`LAGS`]. The residual at the
//! strongest lag is added to the next job, in proportion to its correlation. O([`LAGS`]) per job.

use crate::predict::window::Recent;

/// The longest pattern that is searched; groups of 12 and 15 pictures are the usual ones.
pub(crate) const LAGS: usize = 16;
/// Weight kept from job to job: a memory of about thirty jobs.
const MEMORY: f64 = 0.97;
/// Correlations below this are attributed to chance.
const CHANCE: f64 = 0.3;
/// Fraction of the correlation that is used.
const BELIEF: f64 = 0.8;
/// Residuals smaller than `WORTH` (2 %) are ignored; residuals larger than `LARGEST` (50 %) are cut.
const WORTH: f64 = 0.02;
const LARGEST: f64 = 0.4;

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
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
    /// Adds the residual of the last job: the logarithm of its cost minus the prediction from its hint.
    pub(crate) fn push(&mut self, residual: f64) {
        let residual = residual.clamp(-LARGEST, LARGEST);
        self.square = self.square * MEMORY + residual * residual;
        for (product, earlier) in self.products.iter_mut().zip(self.recent.oldest_first()) {
            *product = *product * MEMORY + residual * earlier;
        }
        self.recent.push(residual);
    }

    /// The correction of the next job's logarithm of cost.
    pub(crate) fn correction(&self) -> f64 {
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
    fn a_residual_that_repeats_every_twelfth_job_is_predicted() {
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
    fn alternation_without_repetition_and_silence_give_no_correction() {
        let mut pattern = Pattern::default();
        assert_eq!(pattern.correction(), 0.0);
        (0..100).for_each(|_| pattern.push(0.001));
        assert!(pattern.correction().abs() < 1e-3);
    }
}
