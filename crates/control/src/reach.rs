//! How much budget makes the target interval reachable, and what is guaranteed for it. Times in nanoseconds.
//! Approach: Theorem 3's means `mean ⌈H_j/Q̄⌉·Q̄` are compared with `L·Q̄`; divided by Q̄ both sides count
//! server periods, and `mean ⌈H_j/Q̄⌉ < L` only gets truer as Q̄ grows: the least Q̄ is found by bisection.
//! Source: AQuoSA 2009, §4.3.1 (Theorems 2 and 3), §4.4 (guaranteed minima). Departure: the limit over all
//! jobs is taken over a profile, the jobs of a trial execution.

use qfabric_types::{Class, Contract, MIN_BUDGET, Profile, Share};

use crate::Target;

/// h: within how many jobs class A is back inside after the largest deviation (the paper's first experiment).
pub const RECOVERY_JOBS: usize = 10;
/// Γ: that largest deviation, in task periods (the same experiment).
pub const DEVIATION_PERIODS: f64 = 1.0;

/// Upper bounds `H_j` of the computation times of a stretch of jobs, in ns, each above 0.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    costs: &'a [f64],
    target: Target,
}

impl<'a> Reach<'a> {
    /// For jobs bounded by `costs`, kept to `target`.
    pub fn new(costs: &'a [f64], target: Target) -> Self {
        Reach { costs, target }
    }

    /// H̄ at maximum budget `q_max_ns`: mean of `⌈H_j/Q̄⌉·Q̄`, in ns.
    pub fn mean_rounded_ns(&self, q_max_ns: f64) -> f64 {
        self.periods(q_max_ns).sum::<f64>() * q_max_ns / self.costs.len().max(1) as f64
    }

    /// H_h at maximum budget `q_max_ns`: the largest mean of the same over `h` successive jobs, in ns.
    pub fn worst_mean_rounded_ns(&self, h: usize, q_max_ns: f64) -> f64 {
        self.worst_periods(h, q_max_ns) * q_max_ns / h.clamp(1, self.costs.len().max(1)) as f64
    }

    /// Theorem 3 (1): `Q̄ > H̄/L` suffices for global reachability.
    pub fn is_reachable(&self, q_max_ns: f64) -> bool {
        // Both sides over Q̄: whole numbers, so that no rounding decides.
        self.periods(q_max_ns).sum::<f64>() < self.target.periods_per_job() * self.costs.len() as f64
    }

    /// Theorem 3 (2): `Q̄ >= H̄/L` is needed for global reachability.
    pub fn may_be_reachable(&self, q_max_ns: f64) -> bool {
        self.periods(q_max_ns).sum::<f64>() <= self.target.periods_per_job() * self.costs.len() as f64
    }

    /// Theorem 3 (3): from a deviation of `Γ = deviation` server periods back inside within `h` jobs, given
    /// global reachability: `h >= ⌈(Γ−Ê)/(L−1)⌉` and `Q̄ >= h·H_h/(hL − Γ + Ê)`.
    pub fn is_reachable_in(&self, h: usize, deviation: f64, q_max_ns: f64) -> bool {
        let (l, late, jobs) = (self.target.periods_per_job(), self.target.late(), h as f64);
        let room = jobs * l - deviation + late;
        let least_h = if l > 1.0 { ((deviation - late) / (l - 1.0)).ceil() } else { f64::INFINITY };
        // h·H_h/Q̄ server periods have to fit into the room.
        let needed = self.worst_periods(h, q_max_ns) * jobs / h.clamp(1, self.costs.len().max(1)) as f64;
        jobs >= least_h && room >= needed
    }

    /// The least Q̄ that Theorem 2 allows: just above `sup H / L`.
    pub fn least_invariant_ns(&self) -> f64 {
        self.highest() / self.target.periods_per_job()
    }

    /// The least Q̄ (up to rounding, from above) with which the interval is globally reachable.
    pub fn least_reachable_ns(&self) -> f64 {
        self.least(|q_max_ns| self.is_reachable(q_max_ns))
    }

    /// The least Q̄ with which it is also reached within `h` jobs from `deviation` server periods; `None`
    /// where no budget does it.
    pub fn least_reachable_in_ns(&self, h: usize, deviation: f64) -> Option<f64> {
        let enough = |q_max_ns: f64| self.is_reachable(q_max_ns) && self.is_reachable_in(h, deviation, q_max_ns);
        enough(self.ample()).then(|| self.least(enough))
    }

    fn highest(&self) -> f64 {
        self.costs.iter().copied().fold(0.0, f64::max)
    }

    /// A budget that finishes any of the jobs in one server period.
    fn ample(&self) -> f64 {
        self.highest() + 1.0
    }

    /// Server periods each job takes under `q_max_ns`.
    fn periods(&self, q_max_ns: f64) -> impl Iterator<Item = f64> {
        self.costs.iter().map(move |cost| (cost / q_max_ns).ceil())
    }

    /// Most server periods that `h` successive jobs take together.
    fn worst_periods(&self, h: usize, q_max_ns: f64) -> f64 {
        let h = h.clamp(1, self.costs.len().max(1));
        let mut sum = 0.0;
        let sums = self.periods(q_max_ns).enumerate().map(|(k, periods)| {
            sum += periods - if k >= h { (self.costs[k - h] / q_max_ns).ceil() } else { 0.0 };
            sum
        });
        sums.fold(0.0, f64::max)
    }

    /// The least budget of which `enough` holds, if it holds of every larger one; to a millionth.
    fn least(&self, enough: impl Fn(f64) -> bool) -> f64 {
        let (mut too_little, mut plenty) = (0.0, self.ample());
        while plenty - too_little > 1e-6 * plenty {
            let middle = too_little + (plenty - too_little) / 2.0;
            if enough(middle) { plenty = middle } else { too_little = middle }
        }
        plenty
    }
}

/// The share guaranteed to `contract` (§4.4): class B what Theorem 3 asks for, class A the most of Theorems 2
/// and 3 with [`RECOVERY_JOBS`] and [`DEVIATION_PERIODS`], class C nothing. Never above the maximum bandwidth:
/// beyond it the contract itself forbids the guarantee. `None` where the contract's profile has no jobs to
/// derive it from. A share named in the contract comes first.
pub fn guaranteed(contract: &Contract) -> Option<Share> {
    if contract.class == Class::C {
        return Some(Share::ZERO);
    }
    if let Some(named) = contract.guaranteed {
        return Some(named);
    }
    let profile = contract.profile.as_ref().filter(|profile| !profile.costs.is_empty())?;
    Some(least_share(contract, profile))
}

fn least_share(contract: &Contract, profile: &Profile) -> Share {
    let costs: Vec<f64> = profile.costs.iter().map(|cost| cost.as_f64()).collect();
    let target = Target::of(contract).on_lattice();
    let reach = Reach::new(&costs, target);
    let budget_ns = match contract.class {
        Class::A => class_a_ns(&reach, &target),
        _ => reach.least_reachable_ns(),
    };
    let cpus = budget_ns.max(MIN_BUDGET.as_f64()) / target.server_period_ns();
    // Counting a promise: rounded up.
    Share::from_f64((cpus * 1e6).ceil() / 1e6).min(contract.max_bandwidth)
}

fn class_a_ns(reach: &Reach, target: &Target) -> f64 {
    let deviation = DEVIATION_PERIODS * target.periods_per_job();
    let recovery_ns = reach.least_reachable_in_ns(RECOVERY_JOBS, deviation).unwrap_or(f64::INFINITY);
    reach.least_invariant_ns().max(reach.least_reachable_ns()).max(recovery_ns)
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
        assert_eq!(reach.worst_mean_rounded_ns(99, 100.0), 225.0, "no longer stretch than there is");
    }

    #[test]
    fn constant_jobs_need_their_share_and_no_more() {
        let costs = [320.0; 50];
        let least = Reach::new(&costs, target(0.0)).least_reachable_ns();
        // ⌈320/Q̄⌉ < 16 means 15 server periods at most.
        assert!((least - 320.0 / 15.0).abs() < 1e-3, "{least}");
        assert_eq!(Reach::new(&costs, target(0.0)).least_invariant_ns(), 20.0);
    }

    #[test]
    fn too_few_jobs_to_recover_in_are_too_few_at_any_budget() {
        let reach = Reach::new(&[320.0; 50], target(0.0));
        assert_eq!(reach.least_reachable_in_ns(1, 16.0), None, "⌈16/15⌉ = 2 jobs at least");
        assert!(reach.least_reachable_in_ns(2, 16.0).is_some());
        assert!(reach.least_reachable_in_ns(10, 16.0) < reach.least_reachable_in_ns(3, 16.0));
    }

    #[test]
    fn class_a_is_promised_at_least_what_class_b_is_and_class_c_nothing() {
        let mut contract = Contract::new("test", Nanos::from_millis(40));
        contract.server_period = Nanos::new(2_500_000);
        let costs = (0..200).map(|k| Nanos::from_millis(if k % 12 == 0 { 20 } else { 6 })).collect();
        let share = |class| guaranteed(&Contract { class, ..contract.clone() });
        assert_eq!([share(Class::A), share(Class::B), share(Class::C)], [None, None, Some(Share::ZERO)]);
        let profile = Some(Profile { costs, hints: vec![] });
        let share = |class| guaranteed(&Contract { class, profile: profile.clone(), ..contract.clone() }).unwrap();
        let (a, b) = (share(Class::A), share(Class::B));
        assert!(a >= b && a.as_f64() >= 0.5, "{a}: the longest job alone takes half the period");
        assert!((0.17..0.25).contains(&b.as_f64()), "{b}: the mean is {}", (20.0 + 11.0 * 6.0) / 12.0 / 40.0);
        let named = Contract { class: Class::A, guaranteed: Some(Share::from_ppm(1)), ..contract };
        assert_eq!(guaranteed(&named), Some(Share::from_ppm(1)), "the application's own word comes first");
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
        fn the_law_is_back_inside_within_h_jobs_when_theorem_3_says_so(
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
