//! The controller of a thread whose jobs are unknown: it uses only the thread's CPU consumption. Times in
//! [`Nanos`].
//!
//! Approach: once per window, the budget follows the consumption per server period. Under a hard reservation it
//! follows a high percentile, because a peak must fit into the budget. If the thread reclaims, it follows the mean,
//! because a peak then runs on time that others leave over, and bandwidth booked above the mean is lost to all
//! other threads. A throttled thread wanted more than it got, and its consumption does not show how much more: the
//! budget grows by a factor until the throttling ends. The budget shrinks slowly, because a short idle time is weak
//! evidence. Source: the idea is LFS++'s (legacy feedback scheduling, AQuoSA's successor); the law is this
//! project's own.
//!
//! ```text
//!   Growing ──not throttled──> Following ──throttled; hard: or saturated──> Growing
//!   each window: Growing Q·1.5    Following max(1.15·percentile; Q·0.9), hard, or max(1.1·mean; Q·0.7)
//! ```

use qfabric_types::{Contract, MIN_BUDGET, Nanos, Reclaiming, Reservation};

/// Number of remembered windows: one second of 40 ms windows.
const WINDOWS: usize = 25;
/// Fraction of the windows whose consumption the budget must cover.
const COVERED: f64 = 0.95;
/// Factor of the budget over the covered consumption under a hard reservation, and over the mean if the thread
/// reclaims. A thread that reclaims can also use time that others leave over; if it is throttled anyway, its budget
/// grows.
const MARGIN_HARD: f64 = 1.15;
const MARGIN_RECLAIMING: f64 = 1.1;
/// Growth per throttled window: from a hundredth of a CPU to a whole CPU in a dozen windows.
const GROWTH: f64 = 1.5;
/// Least factor per window while the budget shrinks: halves the budget in seven windows under a hard reservation,
/// and in two if the thread reclaims, because a budget that is too small then costs it little.
const DECAY_HARD: f64 = 0.9;
const DECAY_RECLAIMING: f64 = 0.7;
/// A consumption above this fraction of the grant counts as throttled, because enforcement at the tick is coarse.
const SATURATED: f64 = 0.95;
/// Least budget, as a fraction of the server period. A thread that wakes up must be able to show its demand: within
/// the budget under a hard reservation, beyond the budget if it reclaims.
const FLOOR_HARD: f64 = 0.01;
const FLOOR_RECLAIMING: f64 = 0.001;

/// Decides the budget per server period from the consumption alone.
#[derive(Clone, Debug)]
pub struct ConsumptionController {
    server_period: Nanos,
    max_budget: Nanos,
    reclaims: bool,
    budget_ns: f64,
    /// Consumption per server period in each of the last windows; the oldest is overwritten first.
    consumed: [f64; WINDOWS],
    next: usize,
    seen: usize,
}

impl ConsumptionController {
    /// Takes a checked contract; starts with the maximum budget.
    pub fn new(contract: &Contract) -> Self {
        let max_budget = contract.max_budget().max(MIN_BUDGET);
        ConsumptionController {
            server_period: contract.server_period,
            max_budget,
            reclaims: contract.reclaiming != Reclaiming::Hard,
            budget_ns: max_budget.as_f64(),
            consumed: [0.0; WINDOWS],
            next: 0,
            seen: 0,
        }
    }

    /// Records a window of length `window` in which the thread used `used` under the reservation `granted` (if
    /// any); `throttled` tells whether the thread was throttled. Returns the next budget per server period.
    pub fn on_window(&mut self, used: Nanos, window: Nanos, granted: Option<Reservation>, throttled: bool) -> Nanos {
        if window == Nanos::ZERO {
            return self.budget();
        }
        let per_period_ns = used.as_f64() / window.as_f64() * self.server_period.as_f64();
        self.remember(per_period_ns);
        let held_back = throttled || (!self.reclaims && granted.is_some_and(|grant| saturated(used, window, grant)));
        let wanted_ns = if self.reclaims { MARGIN_RECLAIMING * self.mean() } else { MARGIN_HARD * self.covering() };
        self.budget_ns = if held_back {
            wanted_ns.max(granted_ns(granted, self.server_period).unwrap_or(self.budget_ns) * GROWTH)
        } else {
            wanted_ns.max(self.budget_ns * if self.reclaims { DECAY_RECLAIMING } else { DECAY_HARD })
        };
        self.budget_ns = self.budget_ns.clamp(self.floor_ns(), self.max_budget.as_f64());
        self.budget()
    }

    /// Q per server period, as last decided.
    pub fn budget(&self) -> Nanos {
        Nanos::from_f64(self.budget_ns.ceil()).clamp(MIN_BUDGET, self.max_budget)
    }

    /// Takes a changed contract. The remembered windows stay.
    pub fn on_change(&mut self, contract: &Contract) {
        let scale = contract.server_period.as_f64() / self.server_period.as_f64();
        self.consumed.iter_mut().for_each(|ns| *ns *= scale);
        self.server_period = contract.server_period;
        self.max_budget = contract.max_budget().max(MIN_BUDGET);
        self.reclaims = contract.reclaiming != Reclaiming::Hard;
        self.budget_ns = (self.budget_ns * scale).clamp(self.floor_ns(), self.max_budget.as_f64());
    }

    /// Whether the budget is at its floor, because the last windows had almost no consumption.
    pub fn is_at_rest(&self) -> bool {
        self.budget_ns <= 1.01 * self.floor_ns()
    }

    fn floor_ns(&self) -> f64 {
        let floor = if self.reclaims { FLOOR_RECLAIMING } else { FLOOR_HARD };
        (floor * self.server_period.as_f64()).clamp(MIN_BUDGET.as_f64(), self.max_budget.as_f64())
    }

    fn remember(&mut self, per_period_ns: f64) {
        self.consumed[self.next] = per_period_ns;
        self.next = (self.next + 1) % WINDOWS;
        self.seen = (self.seen + 1).min(WINDOWS);
    }

    /// Mean consumption of the remembered windows.
    fn mean(&self) -> f64 {
        self.consumed[..self.seen].iter().sum::<f64>() / self.seen.max(1) as f64
    }

    /// The consumption that [`COVERED`] of the remembered windows did not exceed.
    fn covering(&self) -> f64 {
        let mut sorted = self.consumed;
        let sorted = &mut sorted[..self.seen];
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = (COVERED * self.seen as f64).ceil() as usize;
        sorted[rank.clamp(1, self.seen) - 1]
    }
}

fn saturated(used: Nanos, window: Nanos, grant: Reservation) -> bool {
    used.as_f64() / window.as_f64() >= SATURATED * grant.budget().as_f64() / grant.period().as_f64()
}

/// The grant, converted to the server period of this contract.
fn granted_ns(granted: Option<Reservation>, server_period: Nanos) -> Option<f64> {
    granted.map(|grant| grant.budget().as_f64() / grant.period().as_f64() * server_period.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qfabric_types::Share;

    const WINDOW: Nanos = Nanos::from_millis(40);
    const P: Nanos = Nanos::from_millis(10);

    fn contract() -> Contract {
        let mut contract = Contract::new("test", WINDOW).reclaimed_as(Reclaiming::Hard);
        contract.max_bandwidth = Share::from_ppm(800_000);
        contract
    }

    #[test]
    fn a_thread_that_reclaims_gets_its_mean_and_a_margin_despite_peaks() {
        let grub = contract().reclaimed_as(Reclaiming::Grub);
        let mut controller = ConsumptionController::new(&grub);
        for k in 0..100 {
            let used = Nanos::from_millis(if k % 5 == 0 { 24 } else { 4 });
            controller.on_window(used, WINDOW, Reservation::new(controller.budget(), P).ok(), false);
        }
        let share = controller.budget().as_f64() / P.as_f64();
        assert!((share - MARGIN_RECLAIMING * 0.2).abs() < 0.001, "mean 8 ms in 40 ms, largest 24 ms: {share}");
        assert!(!controller.is_at_rest());
    }

    #[test]
    fn a_throttled_thread_that_reclaims_gets_a_larger_budget() {
        let mut controller = ConsumptionController::new(&contract().reclaimed_as(Reclaiming::Grub));
        windows(&mut controller, 100, 0.0);
        assert!(controller.is_at_rest());
        let grown = (0..50).take_while(|_| window(&mut controller, 0.5) < 0.5).count();
        assert!(grown <= 18, "{grown} windows from a thousandth of a CPU to a half");
    }

    /// Runs one window of a thread that wants the fraction `want` of a CPU, under its current budget.
    fn window(controller: &mut ConsumptionController, want: f64) -> f64 {
        let budget = controller.budget();
        let share = budget.as_f64() / P.as_f64();
        let used = Nanos::from_f64(want.min(share) * WINDOW.as_f64());
        let grant = Reservation::new(budget, P).unwrap();
        controller.on_window(used, WINDOW, Some(grant), want > share).as_f64() / P.as_f64()
    }

    fn windows(controller: &mut ConsumptionController, n: usize, want: f64) {
        for _ in 0..n {
            window(controller, want);
        }
    }

    #[test]
    fn the_budget_settles_a_margin_above_the_consumption() {
        let mut controller = ConsumptionController::new(&contract());
        let shares: Vec<f64> = (0..60).map(|_| window(&mut controller, 0.2)).collect();
        assert!((shares[59] - 0.23).abs() < 0.001, "{shares:?}");
        assert!(shares.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "no overshoot: {shares:?}");
    }

    #[test]
    fn a_thread_that_wakes_up_gets_its_demand_within_a_dozen_windows() {
        let mut controller = ConsumptionController::new(&contract());
        windows(&mut controller, 100, 0.0);
        assert!((controller.budget().as_f64() / P.as_f64() - FLOOR_HARD).abs() < 1e-6);
        let windows = (0..50).take_while(|_| window(&mut controller, 0.5) < 0.5).count();
        assert!(windows <= 12, "{windows}");
    }

    #[test]
    fn one_idle_window_does_not_lower_the_budget() {
        let mut controller = ConsumptionController::new(&contract());
        windows(&mut controller, 60, 0.3);
        let before = controller.budget();
        window(&mut controller, 0.0);
        assert_eq!(controller.budget(), before);
    }

    #[test]
    fn without_a_reservation_the_consumption_alone_decides() {
        let mut controller = ConsumptionController::new(&contract());
        for _ in 0..60 {
            controller.on_window(Nanos::from_millis(12), WINDOW, None, false);
        }
        assert_eq!(controller.budget(), Nanos::new(3_450_000));
    }

    proptest! {
        #[test]
        fn any_report_gives_a_budget_the_kernel_accepts(
            reports in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 1..80),
        ) {
            let mut controller = ConsumptionController::new(&contract());
            for (used, window, throttled) in reports {
                let budget = controller.on_window(Nanos::new(used), Nanos::new(window), None, throttled);
                prop_assert!((MIN_BUDGET..=Nanos::from_millis(8)).contains(&budget));
            }
        }
    }
}
