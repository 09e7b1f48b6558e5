//! The controller of a task whose job ends are known: takes cost and error, returns the next budget. No call on the
//! path of a job allocates. Times in [`Nanos`].
//!
//! Approach: predicts the cost of the next job, then takes a point of Theorem 2's family; during the warm-up the
//! budget is Q̄. An unmodified program that reclaims warms up with a smaller budget: half a second of Q̄ equals its
//! need for ten seconds, and a job whose budget is too small runs on time that others leave over. Source: AQuoSA
//! 2009, §4.3. Departures: budgets are whole nanoseconds inside the half-open family and never below the kernel's
//! least budget; the target interval is taken on the lattice of server periods.

use qfabric_types::{
    Choice, Contract, Foresight, Instant, JobSource, MIN_BUDGET, Nanos, PredictorSpec, Profile, Reclaiming, Usage,
    virtual_error,
};

use crate::{Interval, Predictor, Target, law, predictor};

/// Growth per job of the remembered shortest cost: it doubles in 35 jobs.
const FORGET: f64 = 1.02;
/// Fraction of the shortest cost below which a prediction is not followed.
const TRUST: f64 = 0.5;

/// Jobs in a row whose costs may be left out. With more, an application whose jobs all ask for a higher clock would
/// keep the reservation of its earlier jobs for ever, so the next cost teaches.
const LEFT_OUT: u32 = 8;

/// Number of jobs before an unmodified program requests less than Q̄ …
const FIRST_JOBS: usize = 3;
/// … and the factor over the largest of the last costs that it requests then, until its predictor is ready.
const AMPLE: f64 = 1.5;

/// Decides the budget of each job.
pub struct TaskController {
    target: Target,
    period: Nanos,
    server_period: Nanos,
    choice: Choice,
    max_budget: Nanos,
    spec: PredictorSpec,
    rho: f64,
    predictor: Box<dyn Predictor>,
    /// ε at the end of the last job, in ns.
    error_ns: f64,
    /// Expected number of the next job.
    next_job: u64,
    /// The foresight of the next job.
    known: Foresight,
    /// The job whose cost is to be left out.
    left_out: Option<u64>,
    /// Jobs in a row whose costs were left out.
    in_a_row: u32,
    /// The shortest recent cost, in ns: a prediction below half of it, from a predictor that diverged, is not
    /// followed.
    shortest_ns: f64,
    /// The last costs in ns, newest last; zero before the first jobs.
    last_ns: [f64; FIRST_JOBS],
    /// Whether the warm-up uses less than Q̄.
    is_modest: bool,
    budget: Nanos,
}

impl TaskController {
    /// Takes a checked contract. Learns from its profile, if there is one, so that the first job is predicted
    /// already.
    pub fn new(contract: &Contract) -> Self {
        let predictor = predictor(contract.predictor, contract.rho);
        let mut controller = TaskController::with_predictor(contract, predictor);
        if let Some(profile) = &contract.profile {
            controller.learn(profile);
        }
        controller.decide();
        controller
    }

    /// With the user's own predictor instead of the contract's.
    pub fn with_predictor(contract: &Contract, predictor: Box<dyn Predictor>) -> Self {
        TaskController {
            target: Target::of(contract).on_lattice(),
            period: contract.period,
            server_period: contract.server_period,
            choice: contract.choice,
            max_budget: contract.max_budget().max(MIN_BUDGET),
            spec: contract.predictor,
            rho: contract.rho,
            predictor,
            error_ns: 0.0,
            next_job: 0,
            known: Foresight::Nothing,
            left_out: None,
            in_a_row: 0,
            shortest_ns: f64::INFINITY,
            last_ns: [0.0; FIRST_JOBS],
            is_modest: is_modest(contract),
            budget: contract.max_budget().max(MIN_BUDGET),
        }
    }

    fn learn(&mut self, profile: &Profile) {
        for (k, cost) in profile.costs.iter().enumerate() {
            self.remember(cost.as_f64());
            self.predictor.observe(cost.as_f64(), profile.hints.get(k).copied());
        }
    }

    fn remember(&mut self, cost_ns: f64) {
        self.shortest_ns = (self.shortest_ns * FORGET).min(cost_ns);
        self.last_ns.rotate_left(1);
        self.last_ns[FIRST_JOBS - 1] = cost_ns;
    }

    /// Records the end of a job. Returns the budget of the next job, between the kernel's least budget and Q̄.
    pub fn on_usage(&mut self, usage: &Usage) -> Nanos {
        let job = &usage.job;
        let deadline = job.release + self.period;
        self.error_ns = virtual_error(job.finish, deadline, self.server_period, usage.served) as f64;
        self.predictor.skip(job.k.saturating_sub(self.next_job));
        self.next_job = job.k.saturating_add(1);
        if self.left_out.take() == Some(job.k) && self.in_a_row < LEFT_OUT {
            self.in_a_row += 1;
            self.predictor.skip(1);
        } else {
            self.in_a_row = 0;
            self.remember(job.cost.as_f64());
            self.predictor.observe(job.cost.as_f64(), self.known.hint());
        }
        self.known = job.next;
        self.decide()
    }

    /// The clock changes within job `k`, so its cost says nothing about later jobs and is not learned (000 §6.4.2). Of
    /// more than eight such jobs in a row, one is learned.
    pub fn leave_out(&mut self, k: u64) {
        self.left_out = Some(k);
    }

    /// Takes foresight about the job that begins. Returns its budget if it changed.
    pub fn on_foresight(&mut self, known: Foresight) -> Option<Nanos> {
        let before = self.budget;
        if !known.is_nothing() {
            self.known = known;
            self.decide();
        }
        (self.budget != before).then_some(self.budget)
    }

    /// Takes a changed contract. The learned costs stay, unless the predictor changes.
    pub fn on_change(&mut self, contract: &Contract) {
        if (contract.predictor, contract.rho) != (self.spec, self.rho) {
            let known = self.known;
            *self =
                TaskController { error_ns: self.error_ns, next_job: self.next_job, ..TaskController::new(contract) };
            self.known = known;
        }
        self.target = Target::of(contract).on_lattice();
        (self.period, self.server_period) = (contract.period, contract.server_period);
        (self.choice, self.max_budget) = (contract.choice, contract.max_budget().max(MIN_BUDGET));
        self.is_modest = is_modest(contract);
        self.decide();
    }

    /// Whether the next job has neither a prediction nor foresight, and so gets the warm-up budget.
    pub fn is_learning(&self) -> bool {
        !matches!(self.known, Foresight::Budget(_)) && self.prediction().is_none()
    }

    /// Q of the next job, as last decided.
    pub fn budget(&self) -> Nanos {
        self.budget
    }

    /// ε at the end of the last job, in ns.
    pub fn error_ns(&self) -> i64 {
        self.error_ns as i64
    }

    /// The predicted cost of the next job; `None` during the warm-up.
    pub fn prediction(&self) -> Option<Interval> {
        match self.known {
            Foresight::Interval { low, high } => Some(Interval { low: low.min(high).as_f64(), high: high.as_f64() }),
            known => self.predictor.predict(known.hint()),
        }
    }

    /// Computes the budget from foresight and prediction.
    fn decide(&mut self) -> Nanos {
        let wanted = match (self.known, self.prediction()) {
            (Foresight::Budget(budget), _) => budget,
            (_, None) => self.unpredicted(),
            (_, Some(costs)) => self.follow(costs),
        };
        self.budget = wanted.clamp(MIN_BUDGET, self.max_budget);
        self.budget
    }

    /// Q̄; or, after the first jobs and if the last one was in time, a budget that covers the last jobs well.
    fn unpredicted(&self) -> Nanos {
        if !self.is_modest || self.error_ns > 0.0 || self.last_ns.contains(&0.0) {
            return self.max_budget;
        }
        let dearest_ns = self.last_ns.into_iter().fold(0.0, f64::max);
        let periods = self.target.periods_per_job() + self.target.late();
        Nanos::from_f64((AMPLE * dearest_ns / periods).ceil())
    }

    fn follow(&self, costs: Interval) -> Nanos {
        let budget_ns = law::decide_whole(&self.target, self.choice, costs, self.error_ns, self.max_budget.as_f64());
        let periods = self.target.periods_per_job() + self.target.late();
        let floor_ns = if self.shortest_ns.is_finite() { TRUST * self.shortest_ns / periods } else { 0.0 };
        Nanos::from_f64(budget_ns.max(floor_ns).ceil())
    }

    /// The deadline of a job that is released at `release`.
    pub fn deadline(&self, release: Instant) -> Instant {
        release + self.period
    }
}

fn is_modest(contract: &Contract) -> bool {
    contract.jobs != JobSource::Marked && contract.reclaiming != Reclaiming::Hard
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::{JobRecord, Share};

    const T: Nanos = Nanos::from_millis(40);

    fn contract(predictor: &str) -> Contract {
        let mut contract = Contract::new("test", T);
        contract.predictor = predictor.parse().unwrap();
        contract.server_period = Nanos::from_millis(10);
        contract.max_bandwidth = Share::from_ppm(800_000);
        contract
    }

    /// Job `k` with the cost `cost_ms`, ending `late_ms` after its deadline (0: at the deadline).
    fn job(k: u64, cost_ms: u64, late_ms: u64, next: Foresight) -> Usage {
        let release = Instant::new(k * T.get());
        let finish = release + T + Nanos::from_millis(late_ms);
        Usage {
            job: JobRecord { k, release, finish, cost: Nanos::from_millis(cost_ms), next },
            granted: None,
            served: None,
        }
    }

    fn run(controller: &mut TaskController, costs_ms: &[u64]) -> Nanos {
        for (k, &cost) in costs_ms.iter().enumerate() {
            controller.on_usage(&job(k as u64, cost, 0, Foresight::Nothing));
        }
        controller.budget()
    }

    #[test]
    fn an_unmodified_program_warms_up_with_1_5_times_its_last_costs() {
        let mut controller = TaskController::new(&contract("ma:12"));
        assert_eq!(run(&mut controller, &[12, 6]), Nanos::from_millis(8), "too few jobs so far");
        assert_eq!(run(&mut controller, &[6, 6, 4]), Nanos::from_micros(2_250), "1.5 x 6 ms in four server periods");
        controller.on_usage(&job(3, 6, 5, Foresight::Nothing));
        assert_eq!(controller.budget(), Nanos::from_millis(8), "late, so the largest budget");
        for contract in [
            Contract { jobs: JobSource::Marked, ..contract("ma:12") },
            Contract { reclaiming: Reclaiming::Hard, ..contract("ma:12") },
        ] {
            let mut controller = TaskController::new(&contract);
            assert_eq!(run(&mut controller, &[6, 6, 4]), Nanos::from_millis(8), "{contract:?}");
        }
    }

    /// Costs like those of mpv's decoding thread in the first 24 seconds of a small film, in ms.
    #[test]
    fn a_player_of_24_seconds_reserves_at_most_a_third_more_than_it_uses() {
        let costs: Vec<u64> = (0..600).map(|k| 2 + u64::from(k % 12 == 0) + u64::from(k % 5 == 0)).collect();
        let mut controller = TaskController::new(&contract("ma:12"));
        let (mut reserved, mut used) = (0.0, 0.0);
        for (k, &cost) in costs.iter().enumerate() {
            reserved += controller.budget().as_f64() * 4.0;
            used += cost as f64 * 1e6;
            controller.on_usage(&job(k as u64, cost, 0, Foresight::Nothing));
        }
        let ratio = reserved / used;
        assert!((1.0..1.33).contains(&ratio), "{ratio}; it would be 1.5 with Q̄ for twelve jobs");
    }

    #[test]
    fn an_unknown_task_starts_with_the_largest_budget() {
        let mut controller = TaskController::new(&contract("ma:3"));
        assert_eq!(controller.budget(), Nanos::from_millis(8));
        assert_eq!(run(&mut controller, &[8, 8]), Nanos::from_millis(8));
        assert_eq!(controller.on_usage(&job(2, 8, 0, Foresight::Nothing)), Nanos::from_millis(2));
    }

    #[test]
    fn with_a_profile_the_first_job_is_predicted() {
        let mut contract = contract("ma:3");
        contract.profile = Some(Profile { costs: vec![Nanos::from_millis(12); 5], hints: vec![] });
        assert_eq!(TaskController::new(&contract).budget(), Nanos::from_millis(3));
    }

    #[test]
    fn a_late_job_raises_the_next_budget() {
        let mut controller = TaskController::new(&contract("ma:1"));
        assert_eq!(controller.on_usage(&job(0, 12, 0, Foresight::Nothing)), Nanos::from_millis(3));
        assert_eq!(
            controller.on_usage(&job(1, 12, 5, Foresight::Nothing)),
            Nanos::from_millis(4),
            "three server periods are left"
        );
        assert_eq!(controller.error_ns(), 10_000_000);
        assert_eq!(
            controller.on_usage(&job(2, 12, 95, Foresight::Nothing)),
            Nanos::from_millis(8),
            "no server period is left"
        );
    }

    #[test]
    fn the_right_choice_stays_below_the_open_end_of_the_family() {
        // L = 4, ê = 1: Q in [12/4, 12/2[ ms; with 6 ms the job would end after two server periods, ε = −2 P < −e.
        let right = Contract { choice: Choice::Right, early: 0.25, ..contract("ma:1") };
        let mut controller = TaskController::new(&right);
        assert_eq!(controller.on_usage(&job(0, 12, 0, Foresight::Nothing)), Nanos::new(5_999_999));
        let low = Contract { max_bandwidth: Share::from_ppm(500_000), ..right };
        let mut controller = TaskController::new(&low);
        assert_eq!(controller.on_usage(&job(0, 12, 0, Foresight::Nothing)), Nanos::new(4_999_999), "open at Q̄, too");
    }

    #[test]
    fn the_virtual_finishing_time_determines_the_server_periods_left() {
        let mut controller = TaskController::new(&contract("ma:1"));
        let mut usage = job(0, 12, 2, Foresight::Nothing);
        // The finish, 2 ms late, would count as a whole server period; the server's deadline is 5 ms after d_k.
        usage.served = Some(usage.job.finish + Nanos::from_millis(3));
        let budget = controller.on_usage(&usage);
        assert_eq!((controller.error_ns(), budget), (5_000_000, Nanos::new(3_428_572)), "12 ms in 3.5 periods");
    }

    #[test]
    fn the_application_may_state_the_interval_or_the_budget() {
        let mut controller = TaskController::new(&contract("ma:9"));
        let interval = Foresight::Interval { low: Nanos::from_millis(10), high: Nanos::from_millis(16) };
        assert_eq!(controller.on_usage(&job(0, 12, 0, interval)), Nanos::from_millis(4));
        let budget = Foresight::Budget(Nanos::from_millis(6));
        assert_eq!(controller.on_usage(&job(1, 12, 0, budget)), Nanos::from_millis(6));
        for (asked, given) in [(Nanos::ZERO, MIN_BUDGET), (Nanos::MAX, Nanos::from_millis(8))] {
            assert_eq!(controller.on_usage(&job(2, 12, 0, Foresight::Budget(asked))), given);
        }
    }

    #[test]
    fn late_foresight_still_changes_the_budget() {
        let mut controller = TaskController::new(&contract("ma:1"));
        controller.on_usage(&job(0, 12, 0, Foresight::Nothing));
        assert_eq!(controller.on_foresight(Foresight::Nothing), None);
        let known = Foresight::Budget(Nanos::from_millis(5));
        assert_eq!(controller.on_foresight(known), Some(Nanos::from_millis(5)));
        assert_eq!(controller.on_foresight(known), None, "the same foresight again");
    }

    #[test]
    fn lost_records_do_not_shift_an_interleaved_pattern() {
        let mut controller = TaskController::new(&contract("mma:1,2"));
        run(&mut controller, &[8, 16]);
        assert_eq!(controller.on_usage(&job(2, 8, 0, Foresight::Nothing)), Nanos::from_millis(4));
        // Job 3 is lost: job 4 is another short one, and a long one follows.
        assert_eq!(controller.on_usage(&job(4, 8, 0, Foresight::Nothing)), Nanos::from_millis(4));
    }

    #[test]
    fn the_cost_of_a_job_whose_clock_changed_teaches_nothing_unless_all_are_so() {
        let mut controller = TaskController::new(&contract("mma:1,2"));
        run(&mut controller, &[8, 16]);
        controller.leave_out(2);
        assert_eq!(controller.on_usage(&job(2, 4, 0, Foresight::Nothing)), Nanos::from_millis(4), "a long one follows");
        assert_eq!(controller.on_usage(&job(3, 16, 0, Foresight::Nothing)), Nanos::from_millis(2), "8 ms, not 4");
        controller.leave_out(3);
        assert_eq!(controller.on_usage(&job(4, 8, 0, Foresight::Nothing)), Nanos::from_millis(4));
        let mut controller = TaskController::new(&contract("ma:1"));
        run(&mut controller, &[12]);
        let mut budgets = (1..=10).map(|k| {
            controller.leave_out(k);
            controller.on_usage(&job(k, 20, 0, Foresight::Nothing))
        });
        assert!(budgets.by_ref().take(8).all(|budget| budget == Nanos::from_millis(3)));
        assert_eq!(budgets.next(), Some(Nanos::from_millis(5)), "the ninth in a row");
    }

    #[test]
    fn a_diverged_predictor_does_not_starve_the_task() {
        struct Diverged;
        impl Predictor for Diverged {
            fn observe(&mut self, _: f64, _: Option<f64>) {}
            fn predict(&self, _: Option<f64>) -> Option<Interval> {
                Some(Interval { low: 0.0, high: 1.0 })
            }
        }
        let mut controller = TaskController::with_predictor(&contract("ma:1"), Box::new(Diverged));
        assert_eq!(
            run(&mut controller, &[12, 20, 16]),
            Nanos::new(1_560_600),
            "half of 12 ms, 2 jobs ago, in 4 periods"
        );
    }

    #[test]
    fn invalid_records_give_a_budget_the_kernel_accepts() {
        let mut controller = TaskController::new(&contract("ol:2,5"));
        for k in [0, u64::MAX, 3, 1, u64::MAX, 5, 6, 7] {
            let mut usage = job(1, 1, 0, Foresight::Hint(-1e300));
            (usage.job.k, usage.job.cost) = (k, Nanos::new(k));
            usage.job.finish = Instant::new(k);
            let budget = controller.on_usage(&usage);
            assert!((MIN_BUDGET..=Nanos::from_millis(8)).contains(&budget), "{budget}");
        }
    }

    #[test]
    fn a_changed_contract_keeps_the_learned_costs() {
        let mut controller = TaskController::new(&contract("ma:2"));
        run(&mut controller, &[12, 12]);
        let mut changed = contract("ma:2");
        changed.max_bandwidth = Share::from_ppm(200_000);
        controller.on_change(&changed);
        assert_eq!(controller.budget(), Nanos::from_millis(2), "the new maximum applies");
        controller.on_change(&contract("ma:2"));
        assert_eq!(controller.budget(), Nanos::from_millis(3), "the learned costs are kept");
        controller.on_change(&contract("ma:5"));
        assert_eq!(controller.budget(), Nanos::from_millis(8), "another predictor starts without samples");
    }
}
