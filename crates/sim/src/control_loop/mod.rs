//! `qfabric sim control`: runs the closed loop on a file of computation times, without a kernel. Times are in
//! nanoseconds. Approach: [`qfabric_control::replay`] runs job by job, and the statistics are computed as the
//! daemon computes them for real jobs. Source: AQuoSA 2009, §6.1 (the columns of Table II). All arithmetic is in
//! double precision, budgets are real numbers, and ê = e/P and Ê = E/P are not rounded.

pub mod figures;
mod trace;

use qfabric_control::model::Dynamics;
use qfabric_control::replay::{Loop, Setup, Step};
use qfabric_types::{Choice, Contract, InvalidContract, MIN_BUDGET, Nanos, PredictorSpec, QualityMeter, Share};
use serde::{Deserialize, Serialize};

pub use self::trace::{Job, MAX_JOBS, parse};

/// The parameters for running a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// T.
    pub period: Nanos,
    /// P; must divide T.
    pub server_period: Nanos,
    /// The predictor of the next cost.
    pub predictor: PredictorSpec,
    /// ρ.
    pub rho: f64,
    /// The point of Theorem 2's interval that is used.
    pub choice: Choice,
    /// e/T.
    pub early: f64,
    /// E/T.
    pub late: f64,
    /// Q̄/P.
    pub max_bandwidth: f64,
    /// Q/P of every job instead of feedback: the static reservations of Table II.
    pub fixed: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            period: Nanos::from_millis(40),
            server_period: Nanos::new(2_500_000),
            predictor: PredictorSpec::default(),
            rho: 1.0,
            choice: Choice::Left,
            early: 0.2,
            late: 0.0,
            max_bandwidth: 0.4,
            fixed: None,
        }
    }
}

/// The trace or the options are invalid. Nothing was run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    #[error(
        "line {line}: {text:?} is not a job; write its computation time in ns (above 0) and, if known, a hint, such as \"7312000 48211\""
    )]
    Line {
        /// Line number, from 1.
        line: usize,
        text: String,
    },
    #[error("the trace has no jobs; write one per line: its computation time in ns and, if known, a hint")]
    Empty,
    #[error("the trace has more than {MAX_JOBS} jobs; split it")]
    TooLong,
    /// The options contradict each other, or describe no valid reservation.
    #[error(transparent)]
    Options(#[from] InvalidContract),
    #[error("the {0} bandwidth is {1}; use above 0 to 1 CPU, with at least {MIN_BUDGET} per server period")]
    Bandwidth(&'static str, f64),
}

/// The result, in the form of the JSON that `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Every job, in order.
    pub jobs: Vec<JobResult>,
    pub summary: Summary,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Number of the job, from 0.
    pub k: usize,
    /// c_k.
    pub c_ns: f64,
    /// h_k; null during the warm-up.
    pub low_ns: Option<f64>,
    /// H_k; null during the warm-up.
    pub high_ns: Option<f64>,
    /// Q_k.
    pub budget_ns: f64,
    /// ε_{k+1}: the error at the end of this job.
    pub error_ns: f64,
    /// The predictor had too few samples, so the job ran at Q̄ and counts in no statistic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

/// Statistics of the jobs after the warm-up. Errors are fractions of T, bandwidths are fractions of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// p: fraction of the jobs whose error was in [−e, E].
    pub in_target: f64,
    /// Mean of ε/T.
    pub mean_error: f64,
    /// Population standard deviation of ε/T.
    pub sd_error: f64,
    /// Mean of Q/P.
    pub mean_bandwidth: f64,
    /// Population standard deviation of Q/P.
    pub sd_bandwidth: f64,
    /// Jobs with ε > 0.
    pub misses: u64,
    /// Mean number of jobs from leaving [−e, E] until a job is inside again; 0 if this never happened.
    pub recovery_jobs_mean: f64,
    /// Number of counted jobs.
    pub jobs: u64,
    /// Mean of c/T.
    pub mean_demand: f64,
}

/// Runs the loop over `trace`. The budget of job `k` is decided from `ε_k`, the previous jobs and the job's own
/// hint.
pub fn run(trace: &[Job], options: &Options) -> Result<Output, Refused> {
    let setup = options.check()?;
    trace::check(trace)?;
    let mut control = Loop::new(&setup);
    let server_period_ns = options.server_period.as_f64();
    let reservation = Dynamics::new(options.period.as_f64(), server_period_ns);
    let mut fixed = options.fixed.map(|share| (reservation, share * server_period_ns));
    let mut tally = Tally::new(options);
    let jobs = trace
        .iter()
        .enumerate()
        .map(|(k, job)| {
            let step = match &mut fixed {
                None => control.step(job.c_ns, job.hint),
                Some((reservation, budget_ns)) => {
                    let (budget_ns, predicted) = (*budget_ns, None);
                    Step { predicted, budget_ns, error_ns: reservation.step(job.c_ns, budget_ns) }
                }
            };
            let warm_up = step.predicted.is_none() && options.fixed.is_none();
            if !warm_up {
                tally.count(job, &step, control.target().contains(step.error_ns));
            }
            result(k, job, &step, warm_up)
        })
        .collect();
    Ok(Output { jobs, summary: tally.summary() })
}

fn result(k: usize, job: &Job, step: &Step, warm_up: bool) -> JobResult {
    JobResult {
        k,
        c_ns: job.c_ns,
        low_ns: step.predicted.map(|costs| costs.low),
        high_ns: step.predicted.map(|costs| costs.high),
        budget_ns: step.budget_ns,
        error_ns: step.error_ns,
        warm_up,
    }
}

impl Options {
    /// Checks the options with the rules for contracts.
    fn check(&self) -> Result<Setup, Refused> {
        let bandwidths = [("max", Some(self.max_bandwidth)), ("fixed", self.fixed)];
        let given = || bandwidths.iter().filter_map(|&(what, share)| Some((what, share?)));
        if let Some((what, share)) = given().find(|&(_, share)| !(share > 0.0 && share <= 1.0)) {
            return Err(Refused::Bandwidth(what, share));
        }
        let mut contract = Contract::new("sim", self.period);
        contract.server_period = self.server_period;
        (contract.rho, contract.early, contract.late) = (self.rho, self.early, self.late);
        contract.max_bandwidth = Share::ONE;
        contract.check()?;
        let is_short = |share: f64| share * self.server_period.as_f64() < MIN_BUDGET.as_f64();
        match given().find(|&(_, share)| is_short(share)) {
            Some((what, share)) => Err(Refused::Bandwidth(what, share)),
            None => Ok(self.setup()),
        }
    }

    fn setup(&self) -> Setup {
        Setup {
            period: self.period,
            server_period: self.server_period,
            predictor: self.predictor,
            rho: self.rho,
            choice: self.choice,
            early: self.early,
            late: self.late,
            max_bandwidth: self.max_bandwidth,
        }
    }
}

/// Collects the statistics of the counted jobs.
struct Tally {
    meter: QualityMeter,
    period_ns: f64,
    server_period_ns: f64,
    demand_sum: f64,
    /// Number of jobs in the current excursion; 0 inside the target interval.
    outside: u64,
    recovered_jobs: u64,
    recoveries: u64,
}

impl Tally {
    fn new(options: &Options) -> Self {
        Tally {
            meter: QualityMeter::new(options.period, options.early, options.late),
            period_ns: options.period.as_f64(),
            server_period_ns: options.server_period.as_f64(),
            demand_sum: 0.0,
            outside: 0,
            recovered_jobs: 0,
            recoveries: 0,
        }
    }

    fn count(&mut self, job: &Job, step: &Step, inside: bool) {
        self.meter.count(step.error_ns, step.budget_ns / self.server_period_ns, step.error_ns > 0.0, None);
        self.demand_sum += job.c_ns / self.period_ns;
        if !inside {
            self.outside += 1;
        } else if self.outside > 0 {
            self.recovered_jobs += std::mem::take(&mut self.outside);
            self.recoveries += 1;
        }
    }

    fn summary(&self) -> Summary {
        let row = self.meter.quality("sim");
        Summary {
            in_target: row.in_target,
            mean_error: row.mean_error,
            sd_error: row.sd_error,
            mean_bandwidth: row.mean_bandwidth,
            sd_bandwidth: row.sd_bandwidth,
            misses: row.misses,
            recovery_jobs_mean: self.recovered_jobs as f64 / self.recoveries.max(1) as f64,
            jobs: row.jobs,
            mean_demand: self.demand_sum / row.jobs.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn constant(c_ns: f64, jobs: usize) -> Vec<Job> {
        vec![Job { c_ns, hint: None }; jobs]
    }

    fn ma(n: usize) -> Options {
        Options { predictor: PredictorSpec::MovingAverage { n }, ..Options::default() }
    }

    #[test]
    fn invalid_options_are_refused_with_their_value() {
        type Change = fn(&mut Options);
        let invalid: [(Change, &str); 10] = [
            (|o| o.period = Nanos::ZERO, "period 0 ms"),
            (|o| o.server_period = Nanos::from_millis(7), "7 ms"),
            (|o| o.server_period = Nanos::ZERO, "server period 0 ms"),
            (|o| o.rho = f64::NAN, "NaN"),
            (|o| o.early = -0.5, "-0.5"),
            (|o| o.max_bandwidth = 0.0, "max bandwidth is 0"),
            (|o| o.max_bandwidth = 1.5, "1.5"),
            (|o| o.fixed = Some(f64::NAN), "fixed bandwidth is NaN"),
            (|o| o.fixed = Some(1e-9), "fixed bandwidth is 0.000000001"),
            (|o| o.max_bandwidth = 1e-9, "0.000000001"),
        ];
        for (change, named) in invalid {
            let mut options = Options::default();
            change(&mut options);
            let refusal = run(&constant(1e6, 3), &options).unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal} does not contain {named}");
        }
    }

    #[test]
    fn warm_up_jobs_are_listed_and_count_in_no_statistic() {
        let output = run(&constant(8e6, 10), &ma(4)).unwrap();
        assert!(output.jobs[..4].iter().all(|job| job.warm_up && job.budget_ns == 1e6 && job.low_ns.is_none()));
        assert!(output.jobs[4..].iter().all(|job| !job.warm_up && job.budget_ns == 0.5e6 && job.error_ns == 0.0));
        assert_eq!((output.summary.jobs, output.summary.mean_bandwidth, output.summary.in_target), (6, 0.2, 1.0));
        assert_eq!(run(&constant(8e6, 3), &ma(4)).unwrap().summary.jobs, 0);
    }

    #[test]
    fn a_fixed_bandwidth_runs_every_job_under_the_same_budget_and_counts_them_all() {
        let costs: Vec<Job> = (1..=20).map(|k| Job { c_ns: k as f64 * 1e6, hint: None }).collect();
        let output = run(&costs, &Options { fixed: Some(0.2), ..ma(4) }).unwrap();
        let mut reservation = Dynamics::new(40e6, 2.5e6);
        for (job, cost) in output.jobs.iter().zip(&costs) {
            assert_eq!((job.budget_ns, job.warm_up), (0.5e6, false));
            assert_eq!(job.error_ns, reservation.step(cost.c_ns, 0.5e6));
        }
        let summary = output.summary;
        assert_eq!((summary.jobs, summary.mean_bandwidth, summary.sd_bandwidth), (20, 0.2, 0.0));
    }

    #[test]
    fn the_json_has_the_documented_names() {
        let output = run(&constant(8e6, 2), &ma(1)).unwrap();
        let json = serde_json::to_value(&output).unwrap();
        let warm_up = serde_json::json!({"k": 0, "c_ns": 8e6, "low_ns": null, "high_ns": null,
            "budget_ns": 1e6, "error_ns": -20e6, "warm_up": true});
        let job = serde_json::json!({"k": 1, "c_ns": 8e6, "low_ns": 8e6, "high_ns": 8e6,
            "budget_ns": 5e5, "error_ns": 0.0});
        assert_eq!(json["jobs"], serde_json::json!([warm_up, job]));
        for name in
            ["in_target", "mean_error", "sd_error", "mean_bandwidth", "sd_bandwidth", "misses", "recovery_jobs_mean"]
        {
            assert!(json["summary"][name].is_number(), "{name}");
        }
    }

    #[test]
    fn the_mean_recovery_counts_only_excursions_that_ended() {
        let mut costs = [8e6; 20];
        costs[8] = 12e6; // late by 8 periods, which the next job makes up for within Q̄
        costs[12] = 40e6; // very late: recovery takes several jobs at Q̄
        let trace: Vec<Job> = costs.iter().map(|&c_ns| Job { c_ns, hint: None }).collect();
        let output = run(&trace, &ma(4)).unwrap();
        let outside: Vec<bool> = output.jobs[4..].iter().map(|job| job.error_ns > 0.0 || job.error_ns < -8e6).collect();
        let lengths: Vec<usize> = outside.split(|out| !out).map(<[bool]>::len).filter(|&n| n > 0).collect();
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert!(!outside.last().unwrap() && lengths.len() >= 2, "{lengths:?}");
        assert_eq!(output.summary.recovery_jobs_mean, mean);
    }

    /// The formulas of design.md §6, written again without any code of the rooms under test.
    fn oracle(costs: &[f64], n: usize, rho: f64, choice: Choice) -> Vec<(f64, f64)> {
        let (t, p, l, e, q_max) = (40e6, 2.5e6, 16.0, 0.2 * 16.0, 1e6);
        let (mut eps, mut x) = (0.0f64, 0.0f64);
        let mut rows = Vec::new();
        for (k, &c) in costs.iter().enumerate() {
            let q = if k < n {
                q_max
            } else {
                let last = &costs[k - n..k];
                let mu = last.iter().sum::<f64>() / n as f64;
                let sd = (last.iter().map(|c| (c - mu) * (c - mu)).sum::<f64>() / n as f64).sqrt();
                let (low, high) = ((mu - rho * sd).max(0.0), mu + rho * sd);
                let s = eps.max(0.0) / p;
                let left = if l - s > 0.0 { (high / (l - s)).min(q_max) } else { q_max };
                let den = l - 1.0 - e - s;
                let right = if den > 0.0 { (low / den).min(q_max) } else { left };
                match choice {
                    _ if right <= left => left,
                    Choice::Middle => (left + right) / 2.0,
                    Choice::Right => right,
                    _ => left,
                }
            };
            let (next, left_over) = if eps <= 0.0 {
                ((c / q).ceil() * p - t, (c / q).ceil() * q - c)
            } else if c <= x {
                (eps - t, x - c)
            } else {
                (eps + ((c - x) / q).ceil() * p - t, ((c - x) / q).ceil() * q - (c - x))
            };
            (eps, x) = (next, if next > 0.0 { left_over } else { 0.0 });
            rows.push((q, eps));
        }
        rows
    }

    proptest! {
        #[test]
        fn every_budget_and_error_matches_an_independent_implementation_of_the_formulas(
            costs in prop::collection::vec(2e6f64..16e6, 20..120),
            n in 1usize..15,
            rho in 0.0f64..2.0,
            choice in prop::sample::select(&[Choice::Left, Choice::Middle, Choice::Right][..]),
        ) {
            let trace: Vec<Job> = costs.iter().map(|&c_ns| Job { c_ns: c_ns.round(), hint: None }).collect();
            let rounded: Vec<f64> = trace.iter().map(|job| job.c_ns).collect();
            let output = run(&trace, &Options { rho, choice, ..ma(n) }).unwrap();
            for (job, (q, eps)) in output.jobs.iter().zip(oracle(&rounded, n, rho, choice)) {
                prop_assert!((job.budget_ns - q).abs() <= 1e-7 * q, "job {}: {} is not {q}", job.k, job.budget_ns);
                prop_assert_eq!(job.error_ns, eps, "job {}", job.k);
            }
        }
    }
}
