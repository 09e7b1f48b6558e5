//! Generates streams of decoding jobs from a seed: groups of twelve frames IBBPBBPBBPBB, scenes that change
//! slowly, and frame sizes that are correlated with the cost. Costs are in nanoseconds. The ratios of I to P to B
//! frames and the correlation of bytes and cost (0.9 and more) are those of real clips. Scenes follow an AR(1)
//! process of some seconds.

use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Cost of a frame divided by the mean of its group.
const GROUP: [f64; 12] = [2.1, 0.75, 0.75, 1.3, 0.75, 0.75, 1.3, 0.75, 0.75, 1.3, 0.75, 0.75];

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamJob {
    /// c_k.
    pub cost: Nanos,
    /// Bytes of the frame, known before it is decoded.
    pub hint: f64,
}

/// The properties of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Video {
    /// T.
    pub period: Nanos,
    /// Mean demand before the shift, in CPUs.
    pub mean: f64,
    /// Mean demand after the shift, in CPUs.
    pub mean_after: f64,
    /// Time of the load shift.
    pub shift: Instant,
    /// Standard deviation of a frame's cost divided by its expected cost.
    pub noise: f64,
}

impl Video {
    /// `jobs` jobs of the stream with the number `stream` of `seed`. The first job is released at `start`.
    pub fn jobs(&self, jobs: usize, start: Instant, seed: u64, stream: u64) -> Vec<StreamJob> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let phase = random.random_range(0..GROUP.len());
        let mut scene = 0.0;
        let job = |k: usize| {
            // Scenes last about 50 frames and vary by a tenth.
            scene = 0.98 * scene + 0.02 * bell(&mut random);
            let release = start + self.period.saturating_mul(k as u64);
            let mean = if release < self.shift { self.mean } else { self.mean_after };
            let expected = mean * GROUP[(k + phase) % GROUP.len()] / 1.0 * (1.0 + scene).max(0.2);
            let cost = expected * self.period.as_f64() * (1.0 + self.noise * bell(&mut random)).max(0.3);
            let hint = cost * 0.004 * (1.0 + 0.06 * bell(&mut random)).max(0.5);
            StreamJob { cost: Nanos::from_f64(cost.max(10_000.0)), hint }
        };
        (0..jobs).map(job).collect()
    }
}

/// Approximately normal: the sum of twelve uniform numbers minus six.
fn bell(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_requested_means_before_and_after_its_shift() {
        let shift = Instant::new(40_000_000_000);
        let video = Video { period: Nanos::from_millis(40), mean: 0.2, mean_after: 0.3, shift, noise: 0.1 };
        let jobs = video.jobs(2_000, Instant::ZERO, 1, 0);
        let mean = |jobs: &[StreamJob]| jobs.iter().map(|j| j.cost.as_f64() / 40e6).sum::<f64>() / jobs.len() as f64;
        assert!((mean(&jobs[..1_000]) - 0.2).abs() < 0.03, "{}", mean(&jobs[..1_000]));
        assert!((mean(&jobs[1_000..]) - 0.3).abs() < 0.04, "{}", mean(&jobs[1_000..]));
    }

    #[test]
    fn a_stream_depends_only_on_its_seed_and_number() {
        let video =
            Video { period: Nanos::from_millis(40), mean: 0.2, mean_after: 0.2, shift: Instant::NEVER, noise: 0.1 };
        let first = |seed, stream| video.jobs(3, Instant::ZERO, seed, stream);
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }
}
