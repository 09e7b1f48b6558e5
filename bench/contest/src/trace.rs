//! The trace of a task's jobs, and statistics of it. Times are in nanoseconds since the common start.

use qfabric_types::{Nanos, Window};
use serde::{Deserialize, Serialize};

/// One job that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job's period, from 0.
    pub period: u64,
    /// Release of the job, or the time at which it could begin if it was late.
    pub release: u64,
    /// Time at which the task ran again.
    pub woke: u64,
    /// Time at which the job ended.
    pub end: u64,
    /// False if the job was abandoned at its deadline.
    pub complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// T.
    pub period: u64,
    /// First release after the start.
    pub phase: u64,
    /// Periods that began and ended within the run.
    pub periods: u64,
    /// Jobs that were begun, in order. Periods without a job were skipped.
    pub jobs: Vec<Job>,
    /// CPU time of the task during the run, including its system calls.
    pub cpu: u64,
}

/// Mean, percentiles and maximum of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    pub max: f64,
}

impl Summary {
    /// The summary of any number of values; all zero without values.
    pub fn of(mut values: Vec<f64>) -> Summary {
        values.sort_by(f64::total_cmp);
        let Some(&max) = values.last() else { return Summary::default() };
        let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
        Summary { mean: values.iter().sum::<f64>() / values.len() as f64, p50: at(0.5), p99: at(0.99), max }
    }
}

impl Trace {
    /// The end of a period, which is the deadline of its job.
    pub(crate) fn deadline(&self, period: u64) -> u64 {
        self.phase + (period + 1) * self.period
    }

    /// Whether a job was complete by its deadline.
    pub(crate) fn in_time(&self, job: &Job) -> bool {
        job.complete && job.end <= self.deadline(job.period)
    }

    /// For each period of the run: whether its job was complete by its deadline.
    pub fn met(&self) -> Vec<bool> {
        let mut met = vec![false; self.periods as usize];
        for job in self.jobs.iter().filter(|job| self.in_time(job)) {
            if let Some(period) = met.get_mut(job.period as usize) {
                *period = true;
            }
        }
        met
    }

    /// Complete jobs per second of the run, in time or late.
    pub fn rate(&self) -> f64 {
        let last = self.deadline(self.periods.saturating_sub(1));
        let shown = self.jobs.iter().filter(|job| job.complete && job.end <= last).count();
        shown as f64 * 1e9 / self.span()
    }

    /// Jobs per second of the run that were complete by their deadlines.
    pub fn rate_in_time(&self) -> f64 {
        self.met().iter().filter(|met| **met).count() as f64 * 1e9 / self.span()
    }

    fn span(&self) -> f64 {
        (self.periods * self.period).max(1) as f64
    }

    /// Times from release to running, in microseconds.
    pub fn delays(&self) -> Vec<f64> {
        self.jobs.iter().map(|job| job.woke.saturating_sub(job.release) as f64 / 1e3).collect()
    }

    /// Differences between the interval of two complete jobs and T, in microseconds.
    pub fn jitter(&self) -> Vec<f64> {
        let ends: Vec<_> = self.jobs.iter().filter(|job| job.complete).map(|job| job.end).collect();
        ends.windows(2).map(|pair| (pair[1] - pair[0]).abs_diff(self.period) as f64 / 1e3).collect()
    }

    /// CPU time of the task per second.
    pub fn load(&self) -> f64 {
        self.cpu as f64 / self.span()
    }

    /// Mean CPU time of a job.
    pub fn cost(&self) -> Nanos {
        Nanos::new(self.cpu / self.jobs.len().max(1) as u64)
    }
}

/// Number of windows of y successive periods in which more than x were missed (the thesis, §2.4.1).
pub fn violations(met: &[bool], window: Window) -> u64 {
    let missed = |periods: &&[bool]| periods.iter().filter(|met| !**met).count() > usize::from(window.x());
    met.chunks(usize::from(window.y())).filter(missed).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn trace(ends_ms: &[(u64, u64)]) -> Trace {
        let job = |&(period, end): &(u64, u64)| {
            let release = period * 10 * MS;
            Job { period, release, woke: release + MS, end: end * MS, complete: true }
        };
        Trace { period: 10 * MS, phase: 0, periods: 5, jobs: ends_ms.iter().map(job).collect(), cpu: 5 * MS }
    }

    #[test]
    fn late_and_skipped_periods_are_not_met() {
        let trace = trace(&[(0, 5), (1, 21), (3, 40)]);
        assert_eq!(trace.met(), [true, false, false, true, false]);
        assert_eq!((trace.rate(), trace.rate_in_time()), (60.0, 40.0));
    }

    #[test]
    fn a_window_is_violated_by_more_than_x_misses_and_not_by_x() {
        let window = Window::new(1, 5).unwrap();
        assert_eq!(violations(&[true, false, true, true, true], window), 0);
        assert_eq!(violations(&[true, false, true, false, true], window), 1);
        assert_eq!(violations(&[true, true, true, true, false, false, true, true, true, true], window), 0);
        assert_eq!(violations(&[false], Window::NONE), 1);
    }

    #[test]
    fn delay_counts_from_the_release_and_jitter_from_the_period() {
        let trace = trace(&[(0, 5), (1, 14), (2, 26)]);
        assert_eq!(trace.delays(), [1000.0; 3]);
        assert_eq!(trace.jitter(), [1000.0, 2000.0]);
    }

    #[test]
    fn a_summary_without_values_is_zero() {
        assert_eq!(Summary::of(vec![]), Summary::default());
        let summary = Summary::of((0..=100).map(f64::from).collect());
        assert_eq!((summary.mean, summary.p50, summary.p99, summary.max), (50.0, 50.0, 99.0, 100.0));
    }
}
