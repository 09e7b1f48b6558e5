//! hint:n
use super::{Interval, MovingAverage, Predictor};

/// `hint:n`.
#[derive(Clone, Debug)]
pub struct Hint {
    fallback: MovingAverage,
}

impl Hint {
    /// Over `n` jobs.
    pub fn new(n: usize, rho: f64) -> Self {
        Hint { fallback: MovingAverage::new(n, rho) }
    }
}
impl Predictor for Hint {
    fn observe(&mut self, cost_ns: f64, hint: Option<f64>) {
        self.fallback.observe(cost_ns, hint)
    }
    fn predict(&self, hint: Option<f64>) -> Option<Interval> {
        self.fallback.predict(hint)
    }
}
