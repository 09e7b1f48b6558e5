//! Decides which frames are not decoded because they would be late. A late frame delays all frames after it.
//!
//! Only B pictures of MPEG-2 are skipped, because no other frame needs them. A skipped frame costs only the
//! decision. It is never shown, and counts as missed.

use qfabric_control::{Interval, Predictor, Slowdown, predictor};
use qfabric_types::{Instant, JobRecord, Nanos, PredictorSpec, Profile};

use crate::options::Skip;

/// The rule, and a predictor that runs in this process.
pub(crate) struct Skipper {
    rule: Skip,
    predictor: Box<dyn Predictor>,
    slowdown: Slowdown,
}

impl Skipper {
    /// Creates a skipper whose predictor has observed the jobs of `profile`.
    pub(crate) fn new(rule: Skip, spec: PredictorSpec, rho: f64, profile: Option<&Profile>) -> Skipper {
        let mut predictor = predictor(spec, rho);
        for (i, cost) in profile.iter().flat_map(|p| p.costs.iter().enumerate()) {
            predictor.observe(cost.as_f64(), profile.and_then(|p| p.hints.get(i).copied()));
        }
        Skipper { rule, predictor, slowdown: Slowdown::default() }
    }

    /// Whether this process predicts costs itself.
    pub(crate) fn predicts(&self) -> bool {
        self.rule == Skip::Predicted
    }

    /// Records the end of a job that decoded a frame of `bytes`.
    pub(crate) fn observe(&mut self, job: &JobRecord, deadline: Instant, bytes: usize) {
        if self.predicts() {
            self.predictor.observe(job.cost.as_f64(), Some(bytes as f64));
            self.slowdown.observe(job.release, deadline, job.finish, job.cost);
        }
    }

    /// Records that a frame was skipped.
    pub(crate) fn skip(&mut self) {
        self.slowdown.skip(1);
    }

    /// Predicts the cost in ns of a frame of `bytes`. `None` if the rule uses no prediction.
    pub(crate) fn predict(&self, bytes: usize) -> Option<Interval> {
        self.predictor.predict(Some(bytes as f64)).filter(|_| self.predicts())
    }

    /// Whether to skip a disposable frame of `bytes` that would begin at `now`.
    pub(crate) fn skips(&self, now: Instant, deadline: Instant, bytes: usize) -> bool {
        match self.rule {
            Skip::None => false,
            Skip::Late => now >= deadline,
            Skip::Predicted => {
                let cost = self.predict(bytes).map_or(0.0, |interval| interval.centre());
                now + Nanos::from_f64(self.slowdown.time_of(cost)) > deadline
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: u64 = 1_000_000;

    fn skipper(rule: Skip) -> Skipper {
        let profile = Profile { costs: vec![Nanos::from_millis(10); 30], hints: vec![1_000.0; 30] };
        Skipper::new(rule, PredictorSpec::Hint { n: 24 }, 1.0, Some(&profile))
    }

    fn job(cost: u64, finish: u64) -> JobRecord {
        let finish = Instant::new(finish * MS);
        JobRecord { k: 0, release: Instant::ZERO, finish, cost: Nanos::from_millis(cost), next: Default::default() }
    }

    #[test]
    fn each_rule_skips_frames_from_the_right_time_on() {
        let first_skipped = |rule| {
            let skipper = skipper(rule);
            (0..60).find(|ms| skipper.skips(Instant::new(ms * MS), Instant::new(40 * MS), 1_000))
        };
        assert_eq!(first_skipped(Skip::None), None);
        assert_eq!(first_skipped(Skip::Late), Some(40));
        // The predicted cost is 10 ms, to within the predictor's rounding.
        assert!((30..=31).contains(&first_skipped(Skip::Predicted).unwrap()));
    }

    #[test]
    fn observed_costs_change_which_frames_are_skipped() {
        let mut skipper = skipper(Skip::Predicted);
        let late = |skipper: &Skipper| skipper.skips(Instant::new(25 * MS), Instant::new(40 * MS), 1_000);
        assert!(!late(&skipper));
        for _ in 0..24 {
            skipper.observe(&job(20, 20), Instant::new(40 * MS), 1_000);
        }
        assert!(late(&skipper));
    }

    #[test]
    fn a_player_that_is_slowed_down_skips_earlier() {
        let mut skipper = skipper(Skip::Predicted);
        let late = |skipper: &Skipper| skipper.skips(Instant::new(5 * MS), Instant::new(40 * MS), 1_000);
        assert!(!late(&skipper));
        for k in 1..24 {
            let release = Instant::new(50 * k * MS);
            let job = JobRecord { release, ..job(10, 50 * k + 45) };
            skipper.observe(&job, release + Nanos::from_millis(40), 1_000);
        }
        assert!(late(&skipper), "each frame of 10 ms took 45 ms");
        (0..100).for_each(|_| skipper.skip());
        assert!(!late(&skipper), "skipped frames make it try again");
    }
}
