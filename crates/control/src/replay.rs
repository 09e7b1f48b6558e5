//! Runs the closed loop on known computation times, without a kernel: predict, decide, run the job in the model,
//! learn. Times in nanoseconds, budgets real-valued. Source: AQuoSA 2009, §3.1 and §4.3, joined as in its Figure 2.

use qfabric_types::{Choice, MIN_BUDGET, Nanos, PredictorSpec};

use crate::model::Dynamics;
use crate::{Interval, Predictor, Target, law, predictor};

/// A task, its controller and its reservation.
pub struct Loop {
    target: Target,
    choice: Choice,
    max_budget_ns: f64,
    predictor: Box<dyn Predictor>,
    reservation: Dynamics,
}

/// The parameters of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// T.
    pub period: Nanos,
    /// P, an integral part of T.
    pub server_period: Nanos,
    pub predictor: PredictorSpec,
    /// ρ.
    pub rho: f64,
    /// The point of the family (7).
    pub choice: Choice,
    /// e/T.
    pub early: f64,
    /// E/T.
    pub late: f64,
    /// Q̄/P.
    pub max_bandwidth: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The prediction; `None` during the warm-up.
    pub predicted: Option<Interval>,
    /// Q_k, in ns.
    pub budget_ns: f64,
    /// ε_{k+1}: the error at the end of this job, in ns.
    pub error_ns: f64,
}

impl Loop {
    /// A loop before its first job.
    pub fn new(setup: &Setup) -> Self {
        Loop::with_predictor(setup, predictor(setup.predictor, setup.rho))
    }

    /// The same with the caller's own predictor.
    pub fn with_predictor(setup: &Setup, predictor: Box<dyn Predictor>) -> Self {
        let server_period_ns = setup.server_period.as_f64();
        Loop {
            target: Target::new(setup.period, setup.server_period, setup.early, setup.late),
            choice: setup.choice,
            max_budget_ns: setup.max_bandwidth * server_period_ns,
            predictor,
            reservation: Dynamics::new(setup.period.as_f64(), server_period_ns),
        }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Runs the next job, with the cost `cost_ns` and the hint that is known before it runs.
    pub fn step(&mut self, cost_ns: f64, hint: Option<f64>) -> Step {
        let predicted = self.predictor.predict(hint);
        let budget_ns = predicted.map_or(self.max_budget_ns, |costs| self.decide(costs));
        let error_ns = self.reservation.step(cost_ns, budget_ns);
        self.predictor.observe(cost_ns, hint);
        Step { predicted, budget_ns, error_ns }
    }

    /// The budget of the law, at least the least budget of a reservation.
    fn decide(&self, costs: Interval) -> f64 {
        let budget_ns = law::decide(&self.target, self.choice, costs, self.reservation.error_ns(), self.max_budget_ns);
        budget_ns.max(MIN_BUDGET.as_f64().min(self.max_budget_ns))
    }
}

/// The result of a loop; jobs of the warm-up are not counted. Errors in fractions of T, bandwidths in fractions of
/// one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Number of counted jobs.
    pub jobs: u64,
    /// Fraction of jobs whose error lay in the target interval.
    pub in_target: f64,
    /// Fraction of jobs that were late.
    pub late: f64,
    /// Mean of Q/P.
    pub mean_bandwidth: f64,
    /// Mean of c/T.
    pub mean_demand: f64,
}

impl Score {
    /// Runs `setup` on `trace`: pairs of cost in ns and hint.
    pub fn of(setup: &Setup, trace: impl IntoIterator<Item = (f64, Option<f64>)>) -> Score {
        Score::of_loop(Loop::new(setup), setup, trace)
    }

    /// Runs `control` with its own predictor on `trace`.
    pub fn of_loop(mut control: Loop, setup: &Setup, trace: impl IntoIterator<Item = (f64, Option<f64>)>) -> Score {
        let mut sum = Score::default();
        for (cost_ns, hint) in trace {
            let step = control.step(cost_ns, hint);
            if step.predicted.is_none() {
                continue;
            }
            sum.jobs += 1;
            sum.in_target += f64::from(u8::from(control.target().contains(step.error_ns)));
            sum.late += f64::from(u8::from(step.error_ns > 0.0));
            sum.mean_bandwidth += step.budget_ns / setup.server_period.as_f64();
            sum.mean_demand += cost_ns / setup.period.as_f64();
        }
        sum.over(sum.jobs.max(1) as f64)
    }

    fn over(self, n: f64) -> Score {
        Score {
            jobs: self.jobs,
            in_target: self.in_target / n,
            late: self.late / n,
            mean_bandwidth: self.mean_bandwidth / n,
            mean_demand: self.mean_demand / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(predictor: &str) -> Setup {
        Setup {
            period: Nanos::from_millis(40),
            server_period: Nanos::new(2_500_000),
            predictor: predictor.parse().unwrap(),
            rho: 1.0,
            choice: Choice::Left,
            early: 0.2,
            late: 0.0,
            max_bandwidth: 0.4,
        }
    }

    #[test]
    fn the_warm_up_runs_at_the_maximum_and_is_not_counted() {
        let mut control = Loop::new(&setup("ma:3"));
        for _ in 0..3 {
            let step = control.step(8e6, None);
            assert_eq!((step.predicted, step.budget_ns), (None, 1e6));
        }
        let step = control.step(8e6, None);
        assert_eq!((step.budget_ns, step.error_ns), (0.5e6, 0.0));
        assert_eq!(Score::of(&setup("ma:3"), vec![(8e6, None); 13]).jobs, 10);
    }

    #[test]
    fn the_error_of_a_late_job_is_corrected_at_once() {
        let mut control = Loop::new(&setup("ma:1"));
        control.step(8e6, None);
        let late = control.step(9e6, None);
        assert_eq!(late.error_ns, 5e6, "two server periods late, at 0.5 ms each");
        let next = control.step(9e6, None);
        assert_eq!(next.budget_ns, 9e6 / 14.0);
        assert_eq!(next.error_ns, 0.0);
    }

    #[test]
    fn a_prediction_of_zero_still_gives_a_budget() {
        struct Nothing;
        impl Predictor for Nothing {
            fn observe(&mut self, _: f64, _: Option<f64>) {}
            fn predict(&self, _: Option<f64>) -> Option<Interval> {
                Some(Interval::default())
            }
        }
        let mut control = Loop::with_predictor(&setup("ma:1"), Box::new(Nothing));
        for _ in 0..100 {
            assert!(control.step(8e6, None).error_ns.is_finite());
        }
    }
}
