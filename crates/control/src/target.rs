//! The interval in which a task's scheduling errors should stay, and the condition under which it can be kept.
//! Lengths in server periods. Source: AQuoSA 2009, §4.3.1, Theorem 2. Departure: ê and Ê are real numbers (`e/P`,
//! `E/P`); if they are not whole, [`Target::on_lattice`] gives the interval of whole numbers of the theorem.

use qfabric_types::{Contract, Nanos};

/// An error at most this far outside an edge counts as on the edge, in T: decimals do not represent the edge
/// exactly.
const EDGE: f64 = 1e-6;

/// `I = [−e, E] = [−ê·P, Ê·P]` for a task of period `T = L·P`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    server_period_ns: f64,
    periods_per_job: f64,
    early: f64,
    late: f64,
}

impl Target {
    /// `I = [−early·T, late·T]`, for jobs that are released every `period` and served every `server_period`.
    pub fn new(period: Nanos, server_period: Nanos, early: f64, late: f64) -> Self {
        let server_period_ns = server_period.as_f64().max(1.0);
        let periods_per_job = period.as_f64() / server_period_ns;
        Target { server_period_ns, periods_per_job, early: early * periods_per_job, late: late * periods_per_job }
    }

    /// The target of a contract.
    pub fn of(contract: &Contract) -> Self {
        Target::new(contract.period, contract.server_period, contract.early, contract.late)
    }

    /// The largest interval of whole server periods inside this one. The possible errors inside are the same, and
    /// Theorem 2 applies only to such intervals.
    pub fn on_lattice(self) -> Self {
        let whole = |periods: f64| (periods + EDGE).floor();
        Target { early: whole(self.early), late: whole(self.late), ..self }
    }

    pub fn server_period_ns(&self) -> f64 {
        self.server_period_ns
    }
    pub fn period_ns(&self) -> f64 {
        self.periods_per_job * self.server_period_ns
    }
    /// L = T/P.
    pub fn periods_per_job(&self) -> f64 {
        self.periods_per_job
    }
    /// ê = e/P.
    pub fn early(&self) -> f64 {
        self.early
    }
    /// Ê = E/P.
    pub fn late(&self) -> f64 {
        self.late
    }

    /// Whether the error `error_ns` is inside, edges included.
    pub fn contains(&self, error_ns: f64) -> bool {
        let error = error_ns / self.server_period_ns;
        let slack = EDGE * self.periods_per_job;
        error >= -self.early - slack && error <= self.late + slack
    }

    /// Theorem 2: whether `I` can be kept for any costs inside the predicted intervals, with `alpha = inf h_k/H_k`
    /// and `Q̄ > sup H_k / L`: `ê + α·Ê > L·(1 − α) − 1`.
    pub fn is_invariant(&self, alpha: f64, highest_ns: f64, max_budget_ns: f64) -> bool {
        self.early + alpha * self.late > self.periods_per_job * (1.0 - alpha) - 1.0
            && max_budget_ns > highest_ns / self.periods_per_job
    }

    /// The least `α = inf h_k/H_k` with which `I` can be kept, from 0 to 1: the required precision of a predictor.
    pub fn least_alpha(&self) -> f64 {
        ((self.periods_per_job - 1.0 - self.early) / (self.periods_per_job + self.late)).max(0.0)
    }

    /// The least `e/T`, on the lattice, with which `I` can be kept at this `alpha`; `None` if `ê + Ê < L − 1`
    /// allows none. A hundredth of a server period is added, so that decimals do not fall below the lattice.
    pub fn least_early(&self, alpha: f64) -> Option<f64> {
        let bound = self.periods_per_job * (1.0 - alpha) - 1.0 - alpha * self.late;
        let early = (bound.floor() + 1.0).max(0.0);
        let decimals = ((early + 0.01) / self.periods_per_job * 1e4).ceil() / 1e4;
        (early + self.late < self.periods_per_job - 1.0).then_some(decimals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(early: f64, late: f64) -> Target {
        Target::new(Nanos::from_millis(40), Nanos::new(2_500_000), early, late)
    }

    #[test]
    fn fractions_of_the_period_are_converted_to_server_periods() {
        let t = target(0.2, 0.05);
        assert_eq!((t.periods_per_job(), t.late()), (16.0, 0.8));
        assert!((t.early() - 3.2).abs() < 1e-12);
        assert_eq!((t.on_lattice().early(), t.on_lattice().late()), (3.0, 0.0));
        assert_eq!(target(0.25, 0.125).on_lattice(), target(0.25, 0.125));
    }

    #[test]
    fn the_same_errors_are_inside_the_interval_on_the_lattice() {
        for early in [0.0, 0.1, 0.2, 0.25, 0.9] {
            let t = target(early, 0.2);
            for h in -15..8 {
                let error_ns = f64::from(h) * 2.5e6;
                assert_eq!(t.contains(error_ns), t.on_lattice().contains(error_ns), "e = {early}, {h} periods");
            }
        }
    }

    #[test]
    fn a_sharper_prediction_than_the_least_alpha_can_be_kept() {
        let t = target(0.25, 0.125);
        let alpha = t.least_alpha();
        assert!(t.is_invariant(alpha + 1e-6, 16.0, 1.1));
        assert!(!t.is_invariant(alpha - 1e-6, 16.0, 1.1));
        assert!(!t.is_invariant(1.0, 16.0, 1.0), "the budget must exceed H/L");
    }
}
