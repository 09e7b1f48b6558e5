//! The last `n` samples, with their mean and population variance in O(1) each. Samples in nanoseconds. Approach:
//! Welford's sums, updated by one sample at a time. Updates alone would accumulate rounding errors without end.
//! Therefore a second pair of sums is built from the samples since the buffer last wrapped, and replaces the first
//! at the next wrap: no sum is ever older than `2n` samples, and no job pays for a complete recomputation.

use qfabric_types::RunningStatistics;

/// The last `n` samples and their statistics.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    samples: Vec<f64>,
    next: usize,
    full: bool,
    current: RunningStatistics,
    fresh: RunningStatistics,
}

impl Window {
    /// For `n >= 1` samples.
    pub(crate) fn new(n: usize) -> Self {
        Window {
            samples: vec![0.0; n.max(1)],
            next: 0,
            full: false,
            current: RunningStatistics::default(),
            fresh: RunningStatistics::default(),
        }
    }

    /// Adds a sample, and removes the oldest once there are `n`.
    pub(crate) fn push(&mut self, sample: f64) {
        self.fresh.push(sample);
        if self.full {
            self.current.replace(self.samples[self.next], sample);
        } else {
            self.current.push(sample);
        }
        self.samples[self.next] = sample;
        self.next += 1;
        if self.next == self.samples.len() {
            (self.next, self.full) = (0, true);
            self.current = std::mem::take(&mut self.fresh);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn mean(&self) -> f64 {
        self.current.mean()
    }

    /// Population standard deviation.
    pub(crate) fn sd(&self) -> f64 {
        self.current.sd()
    }
}

/// Number of partial sums that are added in parallel: a single sum would wait for its previous addition at every
/// step.
pub(crate) const LANES: usize = 4;

/// The last `n` samples, oldest first, always contiguous: each sample is stored twice, `n` places apart.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    twice: Vec<f64>,
    next: usize,
}

impl Recent {
    /// `n >= 1` zeros.
    pub(crate) fn new(n: usize) -> Self {
        Recent { twice: vec![0.0; 2 * n.max(1)], next: 0 }
    }

    /// Adds a sample and removes the oldest.
    pub(crate) fn push(&mut self, sample: f64) {
        let n = self.len();
        self.twice[self.next] = sample;
        self.twice[self.next + n] = sample;
        self.next = (self.next + 1) % n;
    }

    /// All `n` samples; zeros stand for samples that were not added yet.
    pub(crate) fn oldest_first(&self) -> &[f64] {
        &self.twice[self.next..self.next + self.len()]
    }

    /// The same in groups of [`LANES`]; `n` must be a multiple of [`LANES`].
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &[f64; LANES]> {
        self.oldest_first().as_chunks::<LANES>().0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.twice.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(samples: &[f64]) -> (f64, f64) {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        (mean, (samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
    }

    #[test]
    fn a_step_of_twelve_decades_is_forgotten() {
        let mut window = Window::new(4);
        for sample in [1e12, 1e12, 1e12, 3e12, 1.0, 2.0, 3.0, 4.0] {
            window.push(sample);
        }
        assert_eq!(window.mean(), 2.5);
        assert!((window.sd() - 1.25f64.sqrt()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn running_sums_equal_the_naive_ones(
            n in 1usize..40,
            base in 0.0f64..1e8,
            noise in prop::collection::vec(0.0f64..1e4, 1..300),
        ) {
            let samples: Vec<f64> = noise.iter().map(|x| base + x).collect();
            let mut window = Window::new(n);
            for (k, &sample) in samples.iter().enumerate() {
                window.push(sample);
                let (mean, sd) = naive(&samples[(k + 1).saturating_sub(n)..=k]);
                prop_assert!((window.mean() - mean).abs() <= 1e-12 * base + 1e-9);
                prop_assert!((window.sd() - sd).abs() <= 1e-3, "got {}, expected {}", window.sd(), sd);
                prop_assert_eq!(window.is_full(), k + 1 >= n);
            }
        }

        #[test]
        fn the_last_samples_are_always_contiguous(samples in prop::collection::vec(0u32..99, 7..50)) {
            let mut recent = Recent::new(7);
            samples.iter().for_each(|&s| recent.push(f64::from(s)));
            let expected: Vec<f64> = samples[samples.len() - 7..].iter().map(|&s| f64::from(s)).collect();
            prop_assert_eq!(recent.oldest_first(), expected.as_slice());
        }
    }
}
