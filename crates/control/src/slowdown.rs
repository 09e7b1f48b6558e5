//! The slowdown of jobs that are pressed for time: how much longer than its cost a job takes.
//!
//! A job that shares its CPU, or whose reservation is used up, takes longer than its cost. Jobs that end in time say
//! little about this: feedback gives them no more than they need, so they may take nearly their period. Therefore only
//! jobs that began or ended late raise the estimate. All others lower it towards 1, jobs that were skipped too;
//! otherwise a thread that skips all jobs would never run one again.

use qfabric_types::{Instant, Nanos};

/// Weight of a pressed job in the estimate.
const LEARN: f64 = 1.0 / 8.0;
/// Part of the distance to 1 by which each other job, and each skipped one, lowers the estimate.
const FORGET: f64 = 1.0 / 32.0;
/// A job counts with at most this slowdown. One that takes longer was stopped, not slowed down.
const LARGEST: f64 = 32.0;

/// Estimate for the jobs of one thread, which run one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    factor: f64,
    /// The end of the job before. A job begins at its release, or then if it is later.
    ended: Instant,
}

impl Default for Slowdown {
    fn default() -> Self {
        Slowdown { factor: 1.0, ended: Instant::ZERO }
    }
}

impl Slowdown {
    /// Learns from a job that has ended. `cost`: its CPU time.
    pub fn observe(&mut self, release: Instant, deadline: Instant, finish: Instant, cost: Nanos) {
        let begin = release.max(self.ended);
        self.ended = finish;
        if begin > release || finish > deadline {
            let taken = finish.since(begin).as_f64() / cost.as_f64().max(1.0);
            self.factor += LEARN * (taken.clamp(1.0, LARGEST) - self.factor);
        } else {
            self.skip(1);
        }
    }

    /// Learns from `jobs` that were skipped.
    pub fn skip(&mut self, jobs: u64) {
        let kept = (1.0 - FORGET).powf(jobs as f64);
        self.factor = 1.0 + (self.factor - 1.0) * kept;
    }

    /// The time that a job of `cost` ns would take from its begin to its end, in ns.
    pub fn time_of(&self, cost: f64) -> f64 {
        cost * self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Observes jobs with a period of 40 ms that follow each other; `taken` and `cost` in ms. Returns the time that a job
    /// of 10 ms would take, in ms.
    fn after(jobs: u64, taken: u64, cost: u64) -> f64 {
        let (mut slowdown, mut now) = (Slowdown::default(), 0);
        for k in 0..jobs {
            now = now.max(40 * k) + taken;
            let at = |ms| Instant::new(ms * MS);
            slowdown.observe(at(40 * k), at(40 * (k + 1)), at(now), Nanos::from_millis(cost));
        }
        slowdown.time_of(10e6) / 1e6
    }

    #[test]
    fn only_jobs_that_are_pressed_for_time_count() {
        assert_eq!(after(0, 0, 0), 10.0);
        assert_eq!(after(1_000, 39, 10), 10.0, "they end in time, however long they take");
        assert!((after(1_000, 41, 10) - 41.0).abs() < 0.01, "they end late");
        assert_eq!(after(1_000, 41, 41), 10.0, "they are long, not slow");
    }

    #[test]
    fn the_estimate_is_forgotten_after_jobs_in_time_and_skipped_jobs() {
        let pressed = || {
            let mut slowdown = Slowdown::default();
            slowdown.observe(Instant::new(0), Instant::new(40 * MS), Instant::new(80 * MS), Nanos::from_millis(10));
            slowdown
        };
        let (mut skipping, mut running) = (pressed(), pressed());
        assert_eq!(skipping.time_of(10.0), 10.0 * (1.0 + 7.0 / 8.0));
        skipping.skip(20);
        for k in 2..22 {
            let [release, deadline] = [k, k + 1].map(|k| Instant::new(40 * k * MS));
            running.observe(release, deadline, deadline, Nanos::from_millis(40));
        }
        assert!((skipping.time_of(10.0) - running.time_of(10.0)).abs() < 1e-9);
        assert!((1.0..1.5).contains(&(skipping.time_of(1.0))));
    }

    #[test]
    fn a_job_that_was_stopped_counts_no_more_than_a_slow_one() {
        assert!(after(1, 1_000_000, 1) <= 10.0 * (1.0 + LARGEST / 8.0));
        assert!(after(1, 100, 0).is_finite());
    }
}
