//! MA[n]: the mean of the last `n` costs, ± ρ population standard deviations. O(1) per job. Times in ns. Source:
//! AQuoSA 2009, §4.3.2.

use super::window::Window;
use super::{Interval, Predictor};

/// `ma:n`.
#[derive(Clone, Debug)]
pub struct MovingAverage {
    window: Window,
    rho: f64,
}

impl MovingAverage {
    /// Over `n` jobs, with `rho` standard deviations to each side.
    pub fn new(n: usize, rho: f64) -> Self {
        MovingAverage { window: Window::new(n), rho }
    }
}

impl Predictor for MovingAverage {
    fn observe(&mut self, cost_ns: f64, _hint: Option<f64>) {
        self.window.push(cost_ns);
    }

    fn predict(&self, _hint: Option<f64>) -> Option<Interval> {
        self.window.is_full().then(|| Interval::around(self.window.mean(), self.rho * self.window.sd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_mean_and_the_population_deviation() {
        let mut ma = MovingAverage::new(4, 2.0);
        [9e6, 2e6, 4e6, 4e6, 6e6].iter().for_each(|&cost| ma.observe(cost, None));
        let costs = ma.predict(None).unwrap();
        let half = 2.0 * (2e6f64.powi(2) * 2.0 / 4.0).sqrt();
        assert!((costs.low - (4e6 - half)).abs() < 1e-3 && (costs.high - (4e6 + half)).abs() < 1e-3);
    }
}
