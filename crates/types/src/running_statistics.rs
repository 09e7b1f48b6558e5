//! Running mean and variance: Welford's sums.

/// Mean and population variance of numbers that are added one by one, in constant memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningStatistics {
    n: f64,
    mean: f64,
    m2: f64,
}

impl RunningStatistics {
    pub fn push(&mut self, x: f64) {
        self.n += 1.0;
        let delta = x - self.mean;
        self.mean += delta / self.n;
        self.m2 += delta * (x - self.mean);
    }

    /// Replaces `old`, which must be among the numbers, by `new`.
    pub fn replace(&mut self, old: f64, new: f64) {
        let before = self.mean;
        self.mean += (new - old) / self.n;
        self.m2 = (self.m2 + (new - old) * (new - self.mean + old - before)).max(0.0);
    }

    /// Mean; 0 without numbers.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Population standard deviation; 0 without numbers.
    pub fn sd(&self) -> f64 {
        if self.n > 0.0 { (self.m2 / self.n).sqrt() } else { 0.0 }
    }
}
