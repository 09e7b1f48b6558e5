//! Running mean and variance: Welford's sums.

/// Mean and population variance of numbers told one by one, in constant memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningStatistics {
    n: f64,
    mean: f64,
    m2: f64,
}

impl RunningStatistics {
    /// Takes one more number in.
    pub fn push(&mut self, x: f64) {
        self.n += 1.0;
        let delta = x - self.mean;
        self.mean += delta / self.n;
        self.m2 += delta * (x - self.mean);
    }

    /// Takes `new` in for `old`, which must be among the numbers.
    pub fn replace(&mut self, old: f64, new: f64) {
        let before = self.mean;
        self.mean += (new - old) / self.n;
        self.m2 = (self.m2 + (new - old) * (new - self.mean + old - before)).max(0.0);
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their population standard deviation; 0 of none.
    pub fn sd(&self) -> f64 {
        if self.n > 0.0 { (self.m2 / self.n).sqrt() } else { 0.0 }
    }
}
