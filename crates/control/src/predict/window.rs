//! The last `n` samples; their mean and population variance in O(1) each. Samples in nanoseconds.
//! Approach: Welford's sums, slid by one sample at a time. Sliding alone would gather rounding errors for
//! ever; so a second pair of sums is built from the samples since the buffer last wrapped, and takes over
//! at the next wrap: no sum is ever older than `2n` samples, and no job pays for the rebuild.

use qfabric_types::RunningStatistics;

/// The last `n` samples and their moments.
#[derive(Clone, Debug)]
pub struct Window {
    samples: Vec<f64>,
    next: usize,
    full: bool,
    current: RunningStatistics,
    fresh: RunningStatistics,
}

impl Window {
    /// For `n >= 1` samples.
    pub fn new(n: usize) -> Self {
        Window {
            samples: vec![0.0; n.max(1)],
            next: 0,
            full: false,
            current: RunningStatistics::default(),
            fresh: RunningStatistics::default(),
        }
    }

    /// Takes a sample in, and the oldest out once there are `n`.
    pub fn push(&mut self, sample: f64) {
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

    /// Whether all `n` samples are there.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Mean of the samples.
    pub fn mean(&self) -> f64 {
        self.current.mean()
    }

    /// Population standard deviation of the samples.
    pub fn sd(&self) -> f64 {
        self.current.sd()
    }
}

/// Sums kept side by side where one alone would wait for itself at every step.
pub const LANES: usize = 4;

/// The last `n` samples, oldest first, always in one piece: each is written twice, `n` apart.
#[derive(Clone, Debug)]
pub struct Recent {
    twice: Vec<f64>,
    next: usize,
}

impl Recent {
    /// Zeros, for `n >= 1` samples.
    pub fn new(n: usize) -> Self {
        Recent { twice: vec![0.0; 2 * n.max(1)], next: 0 }
    }

    /// Takes a sample in, and the oldest out.
    pub fn push(&mut self, sample: f64) {
        let n = self.len();
        self.twice[self.next] = sample;
        self.twice[self.next + n] = sample;
        self.next = (self.next + 1) % n;
    }

    /// All `n` of them; zeros stand for those not yet seen.
    pub fn oldest_first(&self) -> &[f64] {
        &self.twice[self.next..self.next + self.len()]
    }

    /// The same in groups of [`LANES`]; `n` must be a multiple of it.
    pub fn lanes(&self) -> impl Iterator<Item = &[f64; LANES]> {
        self.oldest_first().as_chunks::<LANES>().0.iter()
    }

    /// n.
    pub fn len(&self) -> usize {
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
                prop_assert!((window.sd() - sd).abs() <= 1e-3, "{} is not {}", window.sd(), sd);
                prop_assert_eq!(window.is_full(), k + 1 >= n);
            }
        }

        #[test]
        fn the_last_samples_are_always_in_one_piece(samples in prop::collection::vec(0u32..99, 7..50)) {
            let mut recent = Recent::new(7);
            samples.iter().for_each(|&s| recent.push(f64::from(s)));
            let expected: Vec<f64> = samples[samples.len() - 7..].iter().map(|&s| f64::from(s)).collect();
            prop_assert_eq!(recent.oldest_first(), expected.as_slice());
        }
    }
}
