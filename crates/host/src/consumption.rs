//! Consumption of a thread per window, for programs of which only that can be seen.
//!
//! A window is a whole number of server periods, at least [`LEAST_WINDOW`]: kernels that enforce budgets at
//! a 4 ms tick make shorter ones meaningless. Windows end at whole multiples of their length on the clock,
//! so that applications with the same period are looked at in one go. A thread that does not run closes no
//! windows and costs nothing.

use qfabric_types::{Contract, Instant, MIN_BUDGET, Nanos, Reservation};

/// No window is shorter.
pub(crate) const LEAST_WINDOW: Nanos = Nanos::from_millis(10);

/// What one thread consumed in the current window.
pub(crate) struct Consumption {
    controller: ConsumptionController,
    window: Nanos,
    floor: Nanos,
    ceiling: Nanos,
    start: Instant,
    used: Nanos,
    /// Its last stretch ended without a sleep.
    stopped: bool,
    /// When the current window ends; NEVER while the thread is quiet.
    end: Instant,
    budget: Nanos,
}

/// What a closed window said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub used: Nanos,
    pub length: Nanos,
    pub throttled: bool,
}

impl Consumption {
    /// For one thread of a program under `contract`. It starts with the floor, or with all the contract
    /// allows where it is the only thing known (`lead`).
    pub(crate) fn new(contract: &Contract, lead: bool) -> Self {
        let period = contract.server_period;
        let periods = LEAST_WINDOW.get().div_ceil(period.get().max(1)).max(1);
        let ceiling = contract.max_budget().max(MIN_BUDGET);
        // Half a percent of a CPU: enough to wake up, notice and be noticed within a window.
        let floor = Nanos::new(period.get() / 200).clamp(MIN_BUDGET, ceiling);
        Consumption {
            controller: ConsumptionController::new(contract),
            window: period.saturating_mul(periods),
            floor,
            ceiling,
            start: Instant::ZERO,
            used: Nanos::ZERO,
            stopped: false,
            end: Instant::NEVER,
            budget: if lead { ceiling } else { floor },
        }
    }

    pub(crate) fn budget(&self) -> Nanos {
        self.budget
    }

    pub(crate) fn due(&self) -> Instant {
        self.end
    }

    /// A stretch on the CPU.
    pub(crate) fn ran(&mut self, to: Instant, used: Nanos, slept: bool) {
        if self.end == Instant::NEVER {
            let length = self.window.get().max(1);
            self.start = Instant::new(to.get() / length * length);
            self.end = self.start + self.window;
        }
        self.used += used;
        self.stopped = !slept;
    }

    /// Time has passed. Closes the window if it is over, and decides.
    pub(crate) fn on_time(&mut self, now: Instant, granted: Option<Reservation>) -> Option<Window> {
        if now < self.end {
            return None;
        }
        let window = self.close(now, granted);
        let wanted = self.controller.on_window(window.used, window.length, granted, window.throttled);
        self.budget = wanted.clamp(self.floor, self.ceiling);
        Some(window)
    }

    fn close(&mut self, now: Instant, granted: Option<Reservation>) -> Window {
        let length = Nanos::new(now.since(self.start).get() / self.window.get() * self.window.get());
        let used = std::mem::take(&mut self.used);
        // Stopped and out of budget: it would have run on. One tick of inexactness is forgiven.
        let throttled = self.stopped && granted.is_some_and(|r| used.as_f64() >= 0.9 * length.as_f64() * share_of(r));
        let quiet = used == Nanos::ZERO && !self.stopped;
        self.start = self.start + length;
        self.end = if quiet { Instant::NEVER } else { self.start + self.window };
        Window { used, length, throttled }
    }
}

fn share_of(reservation: Reservation) -> f64 {
    reservation.budget().as_f64() / reservation.period().as_f64()
}

/// Stand-in until control's lands.
struct ConsumptionController {
    period: Nanos,
    ceiling: Nanos,
    mean: f64,
}

impl ConsumptionController {
    fn new(contract: &Contract) -> Self {
        ConsumptionController { period: contract.server_period, ceiling: contract.max_budget(), mean: 0.0 }
    }
    fn on_window(&mut self, used: Nanos, window: Nanos, granted: Option<Reservation>, throttled: bool) -> Nanos {
        let per_period = used.as_f64() * self.period.as_f64() / window.as_f64();
        self.mean = if per_period > self.mean { per_period } else { 0.9 * self.mean + 0.1 * per_period };
        let grown = granted.filter(|_| throttled).map_or(0.0, |r| 1.5 * r.budget().as_f64());
        Nanos::from_f64((1.2 * self.mean).max(grown)).min(self.ceiling)
    }
}
