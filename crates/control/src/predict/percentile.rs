//! Predicts the range from the (100−q)-th to the q-th percentile of the last `n` costs. O(n) per job, by one sorted
//! insertion. Times in ns. `rho` scales both distances from the median; with 1 the ends are the percentiles
//! themselves. For costs that are not normally distributed: a few spikes do not move a percentile below 100.

use super::{Interval, Predictor};

/// `pct:n,q`.
#[derive(Clone, Debug)]
pub struct Percentile {
    by_age: Vec<f64>,
    sorted: Vec<f64>,
    next: usize,
    n: usize,
    percent: u8,
    rho: f64,
}

impl Percentile {
    /// Over `n` jobs; `percent` is 50 to 100.
    pub fn new(n: usize, percent: u8, rho: f64) -> Self {
        let n = n.max(1);
        let (by_age, sorted) = (Vec::with_capacity(n), Vec::with_capacity(n));
        Percentile { by_age, sorted, next: 0, n, percent: percent.clamp(50, 100), rho }
    }

    /// Nearest rank: the smallest sample that is at least as large as `percent` per cent of all samples.
    fn rank(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.n as f64).ceil() as usize;
        self.sorted[rank.clamp(1, self.n) - 1]
    }
}

impl Predictor for Percentile {
    fn observe(&mut self, cost_ns: f64, _hint: Option<f64>) {
        if self.by_age.len() < self.n {
            self.by_age.push(cost_ns);
        } else {
            let oldest = std::mem::replace(&mut self.by_age[self.next], cost_ns);
            self.next = (self.next + 1) % self.n;
            self.sorted.remove(self.sorted.partition_point(|&x| x < oldest));
        }
        self.sorted.insert(self.sorted.partition_point(|&x| x < cost_ns), cost_ns);
    }

    fn predict(&self, _hint: Option<f64>) -> Option<Interval> {
        if self.sorted.len() < self.n {
            return None;
        }
        let (median, percent) = (self.rank(50.0), f64::from(self.percent));
        let (low, high) = (self.rank(100.0 - percent), self.rank(percent));
        Some(Interval { low: (median - self.rho * (median - low)).max(0.0), high: median + self.rho * (high - median) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_are_percentiles_of_the_last_jobs() {
        let mut pct = Percentile::new(10, 90, 1.0);
        for cost in [500, 3, 1, 2, 10, 9, 8, 4, 5, 6, 7] {
            pct.observe(f64::from(cost), None);
        }
        assert_eq!(pct.predict(None), Some(Interval { low: 1.0, high: 9.0 }));
    }

    #[test]
    fn one_spike_among_twenty_does_not_move_the_interval() {
        let mut pct = Percentile::new(20, 95, 1.0);
        (0..19).for_each(|_| pct.observe(5.0, None));
        pct.observe(500.0, None);
        assert_eq!(pct.predict(None), Some(Interval { low: 5.0, high: 5.0 }));
    }

    proptest! {
        #[test]
        fn the_sorted_copy_holds_the_same_samples(costs in prop::collection::vec(0u32..50, 1..200)) {
            let mut pct = Percentile::new(16, 90, 1.0);
            for cost in costs {
                pct.observe(f64::from(cost), None);
                let mut expected = pct.by_age.clone();
                expected.sort_by(f64::total_cmp);
                prop_assert_eq!(&pct.sorted, &expected);
            }
        }
    }
}
