//! The feedback law: computes the budget that keeps the error in its interval. Budgets and times in nanoseconds.
//!
//! Approach: the family of Theorem 2, formula (7), `Q in [ H/(L + Ê − S(ε)/P), min{ h/(L − 1 − ê − S(ε)/P), Q̄ }
//! [`, and one point of it by [`Choice`]. Outside the family (error too large, prediction too wide) the law
//! recovers: it takes the left end, or Q̄ if there is no left end. Source: AQuoSA 2009, §4.3.1, Fact 1.

use qfabric_types::Choice;

use crate::{Interval, Target};

/// Factor above the closed left end of Fact 1, so that rounding cannot make an exact job late.
const JUST_ABOVE: f64 = 1.0 + 1e-12;

/// The ends of (7). `right` is `None` if the family is empty: no budget suits both ends of the prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// The least budget that avoids errors above E; at most Q̄.
    pub left: f64,
    /// The budget from which on errors fall below −e; at most Q̄.
    pub right: Option<f64>,
}

impl Family {
    /// (7) at error `error_ns`, for a job with the predicted costs `costs`, under the maximum budget `q_max_ns`
    /// (Q̄).
    pub fn at(target: &Target, costs: Interval, error_ns: f64, q_max_ns: f64) -> Family {
        let late_by = error_ns.max(0.0) / target.server_period_ns();
        let left_periods = target.periods_per_job() + target.late() - late_by;
        let left = over(costs.high, left_periods).unwrap_or(q_max_ns).min(q_max_ns);
        let right_periods = target.periods_per_job() - 1.0 - target.early() - late_by;
        let right = over(costs.low, right_periods).map(|q| q.min(q_max_ns)).filter(|&q| q > left);
        Family { left, right }
    }
}

/// `cost / periods`; `None` if no periods are left.
fn over(cost_ns: f64, periods: f64) -> Option<f64> {
    (periods > 0.0).then(|| cost_ns / periods)
}

/// The budget for the next job: real-valued, in `[0, q_max_ns]`.
///
/// * `left`: the left end; `right`: the right end itself; `middle`: the mean of both.
/// * `zero`: the left end of Fact 1's range for the centre of the prediction, intersected with (7).
/// * `cost`: the budget in (7) with the least `(H − h)/(Q·L) + Q/P`: one period of uncertainty about the next error
///   weighs as much as one CPU. The sum is convex with its minimum at `√((H − h)·P/L)`.
///
/// An empty family, or one without a right end, gives the left end; without a left end the result is Q̄. A
/// prediction with `H = 0` (from a filter that diverged) also gives Q̄: a budget of 0 would never let a job end.
pub fn decide(target: &Target, choice: Choice, costs: Interval, error_ns: f64, q_max_ns: f64) -> f64 {
    if costs.high <= 0.0 {
        return q_max_ns;
    }
    let Family { left, right } = Family::at(target, costs, error_ns, q_max_ns);
    let Some(right) = right else { return left };
    match choice {
        Choice::Left => left,
        Choice::Middle => left + (right - left) / 2.0,
        Choice::Right => right,
        Choice::Zero => {
            zero(target, costs, error_ns).map_or(left, |from| if from < right { from.max(left) } else { left })
        }
        Choice::Cost => cheapest(target, costs).clamp(left, right),
    }
}

/// [`decide`] for a kernel that counts whole nanoseconds: rounded up for the need of the job, and below the open
/// end of (7). `Choice::Right` therefore gives the largest whole budget inside the half-open family. If the family
/// contains no whole number, the result is the left end rounded up. In `[0, ⌈q_max_ns⌉]`.
pub fn decide_whole(target: &Target, choice: Choice, costs: Interval, error_ns: f64, q_max_ns: f64) -> f64 {
    let budget = decide(target, choice, costs, error_ns, q_max_ns).ceil();
    if costs.high <= 0.0 {
        return budget;
    }
    let family = Family::at(target, costs, error_ns, q_max_ns);
    family.right.map_or(budget, |end| budget.min(below(end)).max(family.left.ceil()))
}

/// The largest whole number below `end`.
fn below(end: f64) -> f64 {
    end.ceil() - 1.0
}

/// Fact 1: the least budget with which the centre of the prediction ends with error zero.
fn zero(target: &Target, costs: Interval, error_ns: f64) -> Option<f64> {
    let late_by = error_ns.max(0.0) / target.server_period_ns();
    over(costs.centre(), target.periods_per_job() - late_by).map(|q| q * JUST_ABOVE)
}

fn cheapest(target: &Target, costs: Interval) -> f64 {
    ((costs.high - costs.low) * target.server_period_ns() / target.periods_per_job()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::without_residual;
    use proptest::prelude::*;
    use qfabric_types::Nanos;

    const ALL: [Choice; 5] = [Choice::Left, Choice::Middle, Choice::Right, Choice::Zero, Choice::Cost];
    /// Nanoseconds stand for any unit here: with T = 40, P = 2.5 would not be whole, so T = 1600, P = 100, L = 16.
    const T: Nanos = Nanos::new(1600);
    const P: Nanos = Nanos::new(100);

    fn target(early: f64, late: f64) -> Target {
        Target::new(T, P, early / 16.0, late / 16.0)
    }

    fn costs(low: f64, high: f64) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn the_ends_are_those_of_formula_7() {
        let t = target(4.0, 1.0);
        let family = Family::at(&t, costs(300.0, 340.0), 0.0, 90.0);
        assert_eq!(family, Family { left: 20.0, right: Some(300.0 / 11.0) });
        let late = Family::at(&t, costs(300.0, 340.0), 300.0, 90.0);
        assert_eq!(late, Family { left: 340.0 / 14.0, right: Some(300.0 / 8.0) });
        assert_eq!(
            Family::at(&t, costs(300.0, 340.0), -300.0, 90.0),
            family,
            "an early job does not change the family"
        );
    }

    #[test]
    fn the_middle_is_the_mean_of_both_ends_and_the_right_is_the_end_itself() {
        let t = target(4.0, 1.0);
        let at = |choice| decide(&t, choice, costs(275.0, 340.0), 0.0, 90.0);
        assert_eq!([at(Choice::Left), at(Choice::Middle), at(Choice::Right)], [20.0, 22.5, 25.0]);
        assert_eq!(decide(&t, Choice::Right, costs(275.0, 340.0), 0.0, 24.0), 24.0, "Q̄ limits the right end");
        assert_eq!(decide(&t, Choice::Middle, costs(275.0, 340.0), 0.0, 24.0), 22.0);
    }

    #[test]
    fn a_whole_budget_is_the_largest_below_the_open_end_or_the_least_above_the_closed_one() {
        let t = target(4.0, 1.0);
        let at = |choice, low, q_max| decide_whole(&t, choice, costs(low, 341.0), 0.0, q_max);
        assert_eq!(at(Choice::Right, 275.0, 90.0), 24.0, "275/11 = 25 is the open end");
        assert_eq!(at(Choice::Right, 276.0, 90.0), 25.0, "25.09 rounds down");
        assert_eq!(at(Choice::Right, 275.0, 24.0), 23.0, "(7) is open at Q̄, too");
        assert_eq!([at(Choice::Left, 275.0, 90.0), at(Choice::Middle, 275.0, 90.0)], [21.0, 23.0], "20.06, 22.53");
        assert_eq!(at(Choice::Right, 225.0, 90.0), 21.0, "[20.06, 20.45[ holds no whole number");
    }

    #[test]
    fn an_empty_family_gives_the_left_end() {
        for choice in ALL {
            assert_eq!(decide(&target(0.0, 0.0), choice, costs(100.0, 320.0), 0.0, 90.0), 20.0, "{choice}");
            assert_eq!(decide(&target(4.0, 0.0), choice, costs(0.0, 320.0), 0.0, 90.0), 20.0, "{choice}, h = 0");
        }
    }

    #[test]
    fn without_a_right_end_the_law_takes_the_left_end_and_without_both_the_maximum() {
        for choice in ALL {
            // L − 1 − ê − S(ε)/P = 0: no right end.
            assert_eq!(decide(&target(15.0, 0.0), choice, costs(320.0, 320.0), 0.0, 90.0), 20.0, "{choice}");
            // L + Ê − S(ε)/P = 0, then below: no left end.
            for error in [1600.0, 1700.0, 1e9] {
                assert_eq!(decide(&target(4.0, 0.0), choice, costs(320.0, 320.0), error, 90.0), 90.0, "{choice}");
            }
            assert_eq!(decide(&target(4.0, 0.0), choice, costs(3200.0, 3200.0), 0.0, 90.0), 90.0, "{choice}");
            assert_eq!(decide(&target(4.0, 0.0), choice, costs(0.0, 0.0), 0.0, 90.0), 90.0, "{choice}, H = 0");
        }
    }

    #[test]
    fn zero_gives_the_budget_that_ends_an_exact_job_at_its_deadline() {
        let t = target(4.0, 3.0);
        let q = decide(&t, Choice::Zero, costs(640.0, 640.0), 0.0, 90.0);
        assert!((q - 40.0).abs() < 1e-9, "{q}; the left end is {}", 640.0 / 19.0);
        assert_eq!(without_residual(0.0, 640.0, q, 1600.0, 100.0), 0.0);
    }

    #[test]
    fn cost_minimises_the_sum_of_uncertainty_and_bandwidth() {
        let t = target(10.0, 0.0);
        let at = |low, high| decide(&t, Choice::Cost, costs(low, high), 0.0, 90.0);
        assert_eq!(at(320.0, 320.0), 20.0, "no uncertainty, so the least bandwidth");
        let price = |q: f64| 80.0 / (q * 16.0) + q / 100.0;
        let (q, family) = (at(240.0, 320.0), Family::at(&t, costs(240.0, 320.0), 0.0, 90.0));
        for other in [family.left, (family.left + q) / 2.0, q * 1.1, family.right.unwrap()] {
            assert!(price(q) <= price(other) + 1e-12, "{q} costs more than {other}");
        }
    }

    /// A target, a prediction for which the condition of Theorem 2 holds, and an error inside the interval.
    fn kept() -> impl Strategy<Value = (Target, Interval, f64)> {
        (0u32..13, 0u32..8, 100.0f64..2000.0, 0.0f64..1.0, 0.0f64..1.0).prop_map(|(early, late, high, sharp, at)| {
            let t = target(f64::from(early), f64::from(late));
            let alpha = t.least_alpha() + (1.0 - t.least_alpha()) * (0.001 + 0.999 * sharp);
            let (late, early) = (t.late(), t.early());
            let error = (at * (early + late + 1.0)).floor().min(early + late) - early;
            (t, costs(alpha * high, high), error * 100.0)
        })
    }

    proptest! {
        #[test]
        fn every_choice_keeps_the_interval_when_theorem_2_holds(
            (t, interval, error) in kept(),
            choice in prop::sample::select(&ALL[..]),
            at in 0.0f64..=1.0,
        ) {
            let q_max = interval.high / 16.0 * 40.0;
            prop_assume!(t.is_invariant(interval.low / interval.high, interval.high, q_max));
            let mut q = decide(&t, choice, interval, error, q_max);
            if choice == Choice::Right {
                q *= 1.0 - 1e-9; // (7) is open on the right
            }
            let cost = interval.low + at * (interval.high - interval.low);
            let next = without_residual(error, cost, q * (1.0 + 1e-13), 1600.0, 100.0);
            prop_assert!(t.contains(next), "c = {}, Q = {}, ε = {} -> {}", cost, q, error, next);
        }

        #[test]
        fn whole_budgets_keep_the_interval_if_the_family_contains_one(
            (t, interval, error) in kept(), choice in prop::sample::select(&ALL[..]), at in 0.0f64..1.0,
        ) {
            // Nanoseconds instead of the unit of the other tests: a million times finer.
            let fine = |x: f64| (x * 1e6).round();
            let interval = costs(fine(interval.low), fine(interval.high));
            let t = Target::new(Nanos::new(1_600_000_000), Nanos::new(100_000_000), t.early() / 16.0, t.late() / 16.0);
            let (error, q_max) = (error * 1e6, 4e9);
            let family = Family::at(&t, interval, error, q_max);
            prop_assume!(family.right.is_some_and(|end| below(end) > family.left));
            let q = decide_whole(&t, choice, interval, error, q_max);
            let cost = (interval.low + at * (interval.high - interval.low)).round();
            let next = without_residual(error, cost, q, 1.6e9, 1e8);
            prop_assert!(q.fract() == 0.0 && t.contains(next), "c = {}, Q = {}, ε = {} -> {}", cost, q, error, next);
        }

        #[test]
        fn no_budget_keeps_the_interval_when_theorem_2_fails(
            early in 0u32..13, late in 0u32..8, high in 100.0f64..2000.0, blunt in 0.0f64..0.999, q in 0.001f64..1.0,
        ) {
            let t = target(f64::from(early), f64::from(late));
            prop_assume!(t.least_alpha() > 0.01);
            let low = blunt * t.least_alpha() * high;
            prop_assert!(!t.is_invariant(low / high, high, f64::INFINITY));
            // Errors that are not late are the worst states inside: fewest budgets then suit both ends of the
            // prediction.
            let (error, budget) = (0.0, q * high);
            let ends = [low, high].map(|cost| without_residual(error, cost, budget, 1600.0, 100.0));
            prop_assert!(ends.iter().any(|&end| !t.contains(end)), "Q = {}: {:?}", budget, ends);
        }

        #[test]
        fn the_budget_is_always_between_zero_and_the_maximum(
            early in 0.0f64..16.0, late in 0.0f64..200.0, low in 0.0f64..3000.0, width in 0.0f64..3000.0,
            error in -1500.0f64..9000.0, q_max in 1.0f64..100.0, choice in prop::sample::select(&ALL[..]),
        ) {
            let q = decide(&target(early, late), choice, costs(low, low + width), error, q_max);
            prop_assert!((0.0..=q_max).contains(&q), "{q}");
        }
    }
}
