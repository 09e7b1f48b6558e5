//! The evolution of the scheduling error when a job of cost `c` runs under budget `Q`. Times in nanoseconds.
//!
//! Approach: equations (2) and (3) as printed, in double precision, with real-valued budgets. Source: AQuoSA 2009,
//! §3.1. `ε_{k+1} = s_k − d_k`: the error at the end of job `k`.

/// A reservation that serves a periodic task: the error `ε_k` and the residual budget `x_k`, both 0 at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamics {
    period_ns: f64,
    server_period_ns: f64,
    error_ns: f64,
    residual_ns: f64,
}

impl Dynamics {
    /// A task of period `T = period_ns` in a reservation of period `P = server_period_ns`.
    pub fn new(period_ns: f64, server_period_ns: f64) -> Self {
        Dynamics { period_ns, server_period_ns, error_ns: 0.0, residual_ns: 0.0 }
    }

    /// The same with the initial error `error_ns` and no residual budget.
    pub fn with_error(self, error_ns: f64) -> Self {
        Dynamics { error_ns, residual_ns: 0.0, ..self }
    }

    /// ε_k: the error at the end of the last job, in ns.
    pub fn error_ns(&self) -> f64 {
        self.error_ns
    }

    /// x_k: the budget that the next job finds in the server period that it shares with the last job, in ns.
    pub fn residual_ns(&self) -> f64 {
        self.residual_ns
    }

    /// Runs a job of cost `c > 0` under budget `Q > 0`. Returns its error `ε_{k+1}`.
    pub fn step(&mut self, cost_ns: f64, budget_ns: f64) -> f64 {
        debug_assert!(cost_ns >= 0.0 && budget_ns > 0.0, "c = {cost_ns}, Q = {budget_ns}");
        let (error, residual) = self.after(cost_ns, budget_ns);
        self.error_ns = error;
        // (2), first line: a job that was not late leaves no residual budget.
        self.residual_ns = if error > 0.0 { residual } else { 0.0 };
        error
    }

    /// (3), including the rest of the last server period.
    fn after(&self, cost_ns: f64, budget_ns: f64) -> (f64, f64) {
        let (t, p) = (self.period_ns, self.server_period_ns);
        if self.error_ns > 0.0 && cost_ns <= self.residual_ns {
            return (self.error_ns - t, self.residual_ns - cost_ns);
        }
        let (start, left) = if self.error_ns > 0.0 { (self.error_ns, self.residual_ns) } else { (0.0, 0.0) };
        let rest = cost_ns - left;
        let periods = (rest / budget_ns).ceil();
        (start + periods * p - t, periods * budget_ns - rest)
    }
}

/// (4) with `c' = c`: the error of a job that finds no residual budget. Never below the result of (3).
pub fn without_residual(error_ns: f64, cost_ns: f64, budget_ns: f64, period_ns: f64, server_period_ns: f64) -> f64 {
    error_ns.max(0.0) + (cost_ns / budget_ns).ceil() * server_period_ns - period_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Figure 1: T = 10, P = T/2, Q = 2.
    fn figure_1() -> Dynamics {
        Dynamics::new(10.0, 5.0)
    }

    #[test]
    fn a_job_within_its_period_leaves_no_residual_budget() {
        let mut d = figure_1();
        assert_eq!(d.step(3.0, 2.0), 0.0);
        assert_eq!(d.residual_ns(), 0.0);
    }

    #[test]
    fn a_late_job_leaves_its_residual_budget_to_the_next() {
        let mut d = figure_1();
        assert_eq!(d.step(5.0, 2.0), 5.0);
        assert_eq!(d.residual_ns(), 1.0);
        assert_eq!(d.step(2.5, 2.0), 0.0, "1 from the shared period, 1.5 from the next one");
    }

    #[test]
    fn a_job_that_fits_the_shared_period_needs_no_further_period() {
        let mut d = figure_1();
        d.step(6.5, 2.0); // four periods: ε = 10, x = 1.5
        assert_eq!((d.error_ns(), d.residual_ns()), (10.0, 1.5));
        assert_eq!(d.step(1.0, 2.0), 0.0);
        assert_eq!(d.residual_ns(), 0.0, "no longer late, so no residual budget");
    }

    #[test]
    fn the_residual_budget_stays_for_the_job_after_next() {
        let mut d = figure_1();
        d.step(14.5, 2.0); // eight periods: ε = 30, x = 1.5
        assert_eq!(d.step(1.0, 2.0), 20.0);
        assert_eq!(d.residual_ns(), 0.5);
    }

    proptest! {
        #[test]
        fn the_simplified_model_bounds_the_exact_one_from_above(
            jobs in prop::collection::vec((0.1f64..60.0, 0.2f64..5.0), 1..60),
        ) {
            let mut d = Dynamics::new(40.0, 2.5);
            for (cost, budget) in jobs {
                let bound = without_residual(d.error_ns(), cost, budget, 40.0, 2.5);
                let error = d.step(cost, budget);
                prop_assert!(error <= bound);
                prop_assert!(d.residual_ns() >= 0.0 && d.residual_ns() <= 5.0);
            }
        }

        #[test]
        fn errors_stay_on_the_lattice_of_server_periods(
            jobs in prop::collection::vec((0.1f64..60.0, 0.2f64..5.0), 1..60),
        ) {
            let mut d = Dynamics::new(40.0, 2.5);
            for (cost, budget) in jobs {
                let error = d.step(cost, budget);
                prop_assert_eq!(error.rem_euclid(2.5), 0.0);
                prop_assert!(error >= -37.5);
            }
        }
    }
}
