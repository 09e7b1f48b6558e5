//! MMA[n,S]: one moving average per place in a pattern of `S` jobs, such as a closed group of pictures. O(1) per
//! job. Times in ns. Source: AQuoSA 2009, §4.3.2.

use super::{Interval, MovingAverage, Predictor};

/// `mma:n,S`: job `k` belongs to lane `k mod S`.
#[derive(Clone, Debug)]
pub struct Interleaved {
    lanes: Vec<MovingAverage>,
    next: usize,
}

impl Interleaved {
    /// `lanes` averages over `n` jobs each, with `rho` standard deviations to each side.
    pub fn new(n: usize, lanes: usize, rho: f64) -> Self {
        Interleaved { lanes: vec![MovingAverage::new(n, rho); lanes.max(1)], next: 0 }
    }
}

impl Predictor for Interleaved {
    fn observe(&mut self, cost_ns: f64, hint: Option<f64>) {
        self.lanes[self.next].observe(cost_ns, hint);
        self.next = (self.next + 1) % self.lanes.len();
    }

    fn predict(&self, hint: Option<f64>) -> Option<Interval> {
        self.lanes[self.next].predict(hint)
    }

    fn skip(&mut self, jobs: u64) {
        let lanes = self.lanes.len() as u64;
        self.next = ((self.next as u64 + jobs % lanes) % lanes) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeating_pattern_is_predicted_exactly() {
        let pattern = [30e6, 10e6, 10e6, 20e6];
        let mut mma = Interleaved::new(2, 4, 1.0);
        for k in 0..40 {
            let cost = pattern[k % 4];
            if k >= 8 {
                assert_eq!(mma.predict(None), Some(Interval { low: cost, high: cost }), "job {k}");
            }
            mma.observe(cost, None);
        }
    }

    #[test]
    fn skipped_jobs_do_not_shift_the_pattern() {
        let mut mma = Interleaved::new(1, 3, 1.0);
        [1.0, 2.0, 3.0].iter().for_each(|&cost| mma.observe(cost, None));
        mma.skip(u64::MAX); // a multiple of 3
        assert_eq!(mma.predict(None).unwrap().high, 1.0);
        mma.skip(4);
        assert_eq!(mma.predict(None).unwrap().high, 2.0);
    }
}
