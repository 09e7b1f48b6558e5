//! Prediction of the next job's cost, with one file per predictor. Times in nanoseconds. Approach: every predictor
//! computes an interval `[h, H] = μ ± ρσ` from earlier jobs, with `h` cut at 0. Source: AQuoSA 2009, §4.3.2 (MA,
//! MMA, OL); the paper only mentions the idea of [`Hint`].

mod hint;
mod interleaved;
mod least_squares;
mod moving_average;
mod percentile;
mod window;

pub use hint::Hint;
pub use interleaved::Interleaved;
pub use least_squares::LeastSquares;
pub use moving_average::MovingAverage;
pub use percentile::Percentile;
use qfabric_types::PredictorSpec;

/// `[h_k, H_k]`: the predicted range of the next cost, in ns; `0 <= low <= high`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// h_k.
    pub low: f64,
    /// H_k.
    pub high: f64,
}

impl Interval {
    /// `[max(μ − ρσ, 0), max(μ + ρσ, 0)]`.
    pub fn around(mean_ns: f64, half_width_ns: f64) -> Self {
        Interval { low: (mean_ns - half_width_ns).max(0.0), high: (mean_ns + half_width_ns).max(0.0) }
    }

    pub fn centre(&self) -> f64 {
        self.low + (self.high - self.low) / 2.0
    }

    /// Whether `cost_ns` lies inside the interval.
    pub fn contains(&self, cost_ns: f64) -> bool {
        (self.low..=self.high).contains(&cost_ns)
    }
}

/// Learns from finished jobs and predicts the cost of the next one. Users may supply their own implementation.
pub trait Predictor: Send {
    /// Learns from a finished job with the cost `cost_ns`; `hint` is the hint that was known before it ran.
    fn observe(&mut self, cost_ns: f64, hint: Option<f64>);

    /// The predicted cost of the next job, for which `hint` is known; `None` during the warm-up.
    fn predict(&self, hint: Option<f64>) -> Option<Interval>;

    /// `jobs` jobs were not observed. A predictor that follows a pattern keeps its place in the pattern.
    fn skip(&mut self, jobs: u64) {
        let _ = jobs;
    }
}

/// Creates the predictor that `spec` names, with intervals of `rho` standard deviations to each side. Allocates all
/// its memory now, except [`LeastSquares`], which solves for its taps once, at the end of its training.
pub fn predictor(spec: PredictorSpec, rho: f64) -> Box<dyn Predictor> {
    match spec {
        PredictorSpec::MovingAverage { n } => Box::new(MovingAverage::new(n, rho)),
        PredictorSpec::Interleaved { n, lanes } => Box::new(Interleaved::new(n, lanes, rho)),
        PredictorSpec::LeastSquares { taps, training } => Box::new(LeastSquares::new(taps, training, rho)),
        PredictorSpec::Percentile { n, percent } => Box::new(Percentile::new(n, percent, rho)),
        PredictorSpec::Hint { n } => Box::new(Hint::new(n, rho)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_never_promises_negative_costs() {
        assert_eq!(Interval::around(3.0, 5.0), Interval { low: 0.0, high: 8.0 });
        assert_eq!(Interval::around(-3.0, 1.0), Interval { low: 0.0, high: 0.0 });
    }

    #[test]
    fn every_predictor_warms_up_for_as_many_jobs_as_its_specification_says() {
        for (text, samples) in [("ma:12", 12), ("mma:3,4", 12), ("ol:4,20", 20), ("pct:10,90", 10), ("hint:7", 7)] {
            let spec: PredictorSpec = text.parse().unwrap();
            assert_eq!(spec.warm_up(), samples, "{text}");
            let mut predictor = predictor(spec, 1.0);
            for k in 0..samples {
                assert_eq!(predictor.predict(Some(1.0)), None, "{text} before job {k}");
                predictor.observe(1e6 + k as f64, Some(1.0));
            }
            assert!(predictor.predict(Some(1.0)).is_some(), "{text} after {samples} jobs");
        }
    }

    #[test]
    fn a_constant_cost_is_predicted_exactly() {
        for text in ["ma:12", "mma:3,4", "ol:4,20", "pct:10,90", "hint:7"] {
            let mut predictor = predictor(text.parse().unwrap(), 1.0);
            for _ in 0..1_000 {
                predictor.observe(7e6, Some(1_000.0));
            }
            let costs = predictor.predict(Some(1_000.0)).unwrap();
            assert!((costs.low - 7e6).abs() < 1e-3 && (costs.high - 7e6).abs() < 1e-3, "{text}: {costs:?}");
        }
    }
}
