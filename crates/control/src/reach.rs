//! Computes the budgets that make the target interval reachable. Times in nanoseconds. Approach: Theorem 3's means
//! `mean ⌈H_j/Q̄⌉·Q̄` are compared with `L·Q̄`. Divided by Q̄, both sides count server periods, and `mean ⌈H_j/Q̄⌉`
//! never grows with Q̄, so bisection finds the least Q̄. Source: AQuoSA 2009, §4.3.1 (Theorems 2 and 3). Departure:
//! the limit over all jobs is replaced by the mean over the jobs of a trial execution.

use crate::Target;

/// Upper bounds `H_j` of the computation times of successive jobs, in ns, each above 0.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    costs: &'a [f64],
    target: Target,
}

impl<'a> Reach<'a> {
    /// For jobs bounded by `costs`, with the target `target`.
    pub fn new(costs: &'a [f64], target: Target) -> Self {
        Reach { costs, target }
    }

    /// H̄ at the maximum budget `q_max_ns`: the mean of `⌈H_j/Q̄⌉·Q̄`, in ns.
    pub fn mean_rounded_ns(&self, q_max_ns: f64) -> f64 {
        self.periods(q_max_ns).sum::<f64>() * q_max_ns / self.costs.len().max(1) as f64
    }

    /// H_h at the maximum budget `q_max_ns`: the largest mean of `⌈H_j/Q̄⌉·Q̄` over `h` successive jobs, in ns.
    pub fn worst_mean_rounded_ns(&self, h: usize, q_max_ns: f64) -> f64 {
        self.worst_periods(h, q_max_ns) * q_max_ns / h.clamp(1, self.costs.len().max(1)) as f64
    }

    /// Theorem 3 (1): `Q̄ > H̄/L` suffices for global reachability.
    pub fn is_reachable(&self, q_max_ns: f64) -> bool {
        // Both sides divided by Q̄ are whole numbers, so that rounding does not decide.
        self.periods(q_max_ns).sum::<f64>() < self.target.periods_per_job() * self.costs.len() as f64
    }

    /// Theorem 3 (2): `Q̄ >= H̄/L` is necessary for global reachability.
    pub fn may_be_reachable(&self, q_max_ns: f64) -> bool {
        self.periods(q_max_ns).sum::<f64>() <= self.target.periods_per_job() * self.costs.len() as f64
    }

    /// The least h that Theorem 3 (3) allows with any budget: `⌈(Γ−Ê)/(L−1)⌉`; `None` if `L = 1`.
    pub fn least_steps(&self, deviation: f64) -> Option<u64> {
        let (l, late) = (self.target.periods_per_job(), self.target.late());
        (l > 1.0).then(|| ((deviation - late) / (l - 1.0)).ceil().max(1.0) as u64)
    }

    /// Theorem 3 (3): whether the error returns from a deviation of `Γ = deviation` server periods within `h` jobs,
    /// given global reachability: `h >= ⌈(Γ−Ê)/(L−1)⌉` and `Q̄ >= h·H_h/(hL − Γ + Ê)`.
    pub fn is_reachable_in(&self, h: usize, deviation: f64, q_max_ns: f64) -> bool {
        let (l, late, jobs) = (self.target.periods_per_job(), self.target.late(), h as f64);
        let room = jobs * l - deviation + late;
        let least_h = if l > 1.0 { ((deviation - late) / (l - 1.0)).ceil() } else { f64::INFINITY };
        // h·H_h/Q̄ server periods must fit into the room.
        let needed = self.worst_periods(h, q_max_ns) * jobs / h.clamp(1, self.costs.len().max(1)) as f64;
        jobs >= least_h && room >= needed
    }

    /// The bound `sup H / L` of Theorem 2, in ns, which Q̄ must exceed.
    pub fn least_invariant_ns(&self) -> f64 {
        self.highest() / self.target.periods_per_job()
    }

    /// The least Q̄, in ns, with which the interval is globally reachable; rounded up by at most a millionth.
    pub fn least_reachable_ns(&self) -> f64 {
        self.least(|q_max_ns| self.is_reachable(q_max_ns))
    }

    /// The least Q̄, in ns, with which the interval is also reached within `h` jobs from `deviation` server
    /// periods; `None` if no budget suffices.
    pub fn least_reachable_in_ns(&self, h: usize, deviation: f64) -> Option<f64> {
        let enough = |q_max_ns: f64| self.is_reachable(q_max_ns) && self.is_reachable_in(h, deviation, q_max_ns);
        enough(self.ample()).then(|| self.least(enough))
    }

    fn highest(&self) -> f64 {
        self.costs.iter().copied().fold(0.0, f64::max)
    }

    /// A budget with which any of the jobs ends in one server period, in ns.
    fn ample(&self) -> f64 {
        self.highest() + 1.0
    }

    /// The server periods that each job takes under `q_max_ns`.
    fn periods(&self, q_max_ns: f64) -> impl Iterator<Item = f64> {
        self.costs.iter().map(move |cost| (cost / q_max_ns).ceil())
    }

    /// The largest number of server periods that `h` successive jobs take together.
    fn worst_periods(&self, h: usize, q_max_ns: f64) -> f64 {
        let h = h.clamp(1, self.costs.len().max(1));
        let mut sum = 0.0;
        let sums = self.periods(q_max_ns).enumerate().map(|(k, periods)| {
            sum += periods - if k >= h { (self.costs[k - h] / q_max_ns).ceil() } else { 0.0 };
            sum
        });
        sums.fold(0.0, f64::max)
    }

    /// The least budget for which `enough` holds, if it holds for every larger one; to a millionth.
    fn least(&self, enough: impl Fn(f64) -> bool) -> f64 {
        let (mut too_little, mut plenty) = (0.0, self.ample());
        while plenty - too_little > 1e-6 * plenty {
            let middle = too_little + (plenty - too_little) / 2.0;
            if enough(middle) { plenty = middle } else { too_little = middle }
        }
        plenty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Dynamics;
    use crate::{Interval, law};
    use proptest::prelude::*;
    use qfabric_types::{Choice, Nanos};

    /// T = 1600, P = 100: L = 16.
    fn target(late: f64) -> Target {
        Target::new(Nanos::new(1600), Nanos::new(100), 0.25, late / 16.0)
    }

    #[test]
    fn the_means_count_whole_server_periods() {
        let costs = [100.0, 250.0, 400.0, 90.0];
        let reach = Reach::new(&costs, target(0.0));
        assert_eq!(reach.mean_rounded_ns(100.0), (100.0 + 300.0 + 400.0 + 100.0) / 4.0);
        assert_eq!(reach.worst_mean_rounded_ns(2, 100.0), 350.0);
        assert_eq!(reach.worst_mean_rounded_ns(1, 100.0), 400.0);
        assert_eq!(reach.worst_mean_rounded_ns(99, 100.0), 225.0, "h is limited to the number of jobs");
    }

    #[test]
    fn constant_jobs_need_exactly_their_share() {
        let costs = [320.0; 50];
        let least = Reach::new(&costs, target(0.0)).least_reachable_ns();
        // ⌈320/Q̄⌉ < 16 means 15 server periods at most.
        assert!((least - 320.0 / 15.0).abs() < 1e-3, "{least}");
        assert_eq!(Reach::new(&costs, target(0.0)).least_invariant_ns(), 20.0);
    }

    #[test]
    fn too_few_recovery_jobs_are_unreachable_with_any_budget() {
        let reach = Reach::new(&[320.0; 50], target(0.0));
        assert_eq!(reach.least_reachable_in_ns(1, 16.0), None, "⌈16/15⌉ = 2 jobs at least");
        assert!(reach.least_reachable_in_ns(2, 16.0).is_some());
        assert!(reach.least_reachable_in_ns(10, 16.0) < reach.least_reachable_in_ns(3, 16.0));
    }

    fn jobs() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(50.0f64..900.0, 12..60)
    }

    proptest! {
        #[test]
        fn more_budget_never_hurts(costs in jobs(), h in 2usize..12, more in 1.0f64..3.0) {
            let reach = Reach::new(&costs, target(0.0));
            let least = reach.least_reachable_ns();
            prop_assert!(reach.is_reachable(least * more) && !reach.is_reachable(least * 0.999));
            prop_assert!(reach.may_be_reachable(least));
            if let Some(least) = reach.least_reachable_in_ns(h, 16.0) {
                prop_assert!(reach.is_reachable_in(h, 16.0, least * more));
            }
        }

        #[test]
        fn the_law_returns_within_h_jobs_if_theorem_3_holds(
            costs in jobs(), h in 2usize..10, late in 0u32..4, at in 0usize..40,
        ) {
            let target = target(f64::from(late));
            let deviation = 16.0;
            let reach = Reach::new(&costs, target);
            let q_max = reach.least_reachable_in_ns(h, deviation).unwrap() * (1.0 + 1e-9);
            let mut reservation = Dynamics::new(1600.0, 100.0).with_error(deviation * 100.0);
            let from = at % (costs.len() - 10);
            let mut error = deviation * 100.0;
            for cost in &costs[from..from + h] {
                let interval = Interval { low: *cost, high: *cost };
                let q = law::decide(&target, Choice::Left, interval, error, q_max) * (1.0 + 1e-12);
                error = reservation.step(*cost, q.min(q_max));
                if error <= target.late() * 100.0 {
                    break;
                }
            }
            prop_assert!(error <= target.late() * 100.0, "ε = {}", error);
        }
    }
}
