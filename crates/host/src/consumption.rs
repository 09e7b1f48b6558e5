//! The CPU time of a thread per window, for programs without known jobs.
//!
//! A window is the period T, or as many periods as make [`LEAST_WINDOW`]: kernels that enforce budgets at a 4 ms
//! tick make shorter windows meaningless. Windows end at whole multiples of their length on the clock, so that
//! applications with equal periods are handled together. A thread at rest, whose budget has decayed to nothing,
//! closes no windows and costs nothing until it runs again. It keeps a small floor, with which it can show that it
//! needs more.

use qfabric_control::ConsumptionController;
use qfabric_types::{Contract, Instant, Nanos, Reclaiming, Reservation, Sample};

/// Shortest window.
const LEAST_WINDOW: Nanos = Nanos::from_millis(10);
/// A thread under reclaiming may run beyond its budget. It counts as throttled if it waited for a CPU for this part
/// of a window and still waits.
const WAITING_PART: f64 = 0.25;
/// Number of empty windows after which a controller has forgotten everything.
const FORGET_AFTER: usize = 64;

/// The consumption of one thread in the present window.
pub(crate) struct Consumption {
    controller: ConsumptionController,
    reclaims: bool,
    window: Nanos,
    start: Instant,
    used: Nanos,
    /// The thread has been ready but not running since this time: its last stretch ended without a sleep.
    stopped: Option<Instant>,
    /// Time in this window that the thread was ready but did not run, up to its last stretch.
    waited: Nanos,
    /// Whether the thread is at rest: it needs only the floor.
    rests: bool,
    /// End of the present window; NEVER while the thread is at rest.
    end: Instant,
}

/// The result of a closed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub used: Nanos,
    pub length: Nanos,
    pub throttled: bool,
}

impl Consumption {
    /// For one thread under `contract`. A lead thread starts with all that the contract allows, any other thread at
    /// rest.
    pub(crate) fn new(contract: &Contract, lead: bool) -> Self {
        let mut consumption = Consumption {
            controller: ConsumptionController::new(contract),
            reclaims: contract.reclaiming != Reclaiming::Hard,
            window: window_of(contract),
            start: Instant::ZERO,
            used: Nanos::ZERO,
            stopped: None,
            waited: Nanos::ZERO,
            rests: !lead,
            end: Instant::NEVER,
        };
        for _ in 0..if lead { 0 } else { FORGET_AFTER } {
            consumption.controller.on_window(Nanos::ZERO, consumption.window, None, false);
        }
        consumption
    }

    /// Applies a changed contract; the consumption so far stays.
    pub(crate) fn change(&mut self, contract: &Contract) {
        self.controller.on_change(contract);
        (self.reclaims, self.window) = (contract.reclaiming != Reclaiming::Hard, window_of(contract));
    }

    /// The budget Q that the thread wants in every P; `floor` at rest.
    pub(crate) fn budget(&self, floor: Nanos) -> Nanos {
        if self.rests { floor } else { self.controller.budget().max(floor) }
    }

    /// Whether the thread has the largest budget and has never run.
    pub(crate) fn is_untried(&self) -> bool {
        !self.rests && self.start == Instant::ZERO
    }

    pub(crate) fn due(&self) -> Instant {
        self.end
    }

    /// Adds a stretch on the CPU.
    pub(crate) fn ran(&mut self, &Sample { from, to, used, slept, .. }: &Sample) {
        if self.end == Instant::NEVER {
            let length = self.window.get().max(1);
            self.start = Instant::new(to.get() / length * length);
            self.end = self.start + self.window;
        }
        self.used += used;
        let waits_since = self.stopped.map_or(from, |stopped| stopped.max(self.start));
        self.waited += from.since(waits_since);
        self.stopped = (!slept).then_some(to);
    }

    /// Closes the window and decides, if the window is over.
    pub(crate) fn on_time(&mut self, now: Instant, granted: Option<Reservation>) -> Option<Window> {
        if now < self.end {
            return None;
        }
        let window = self.close(now, granted);
        self.controller.on_window(window.used, window.length, granted, window.throttled);
        self.rests = !window.throttled && self.controller.is_at_rest();
        self.end = if self.rests && window.used == Nanos::ZERO { Instant::NEVER } else { self.start + self.window };
        Some(window)
    }

    fn close(&mut self, now: Instant, granted: Option<Reservation>) -> Window {
        let length = Nanos::new(now.since(self.start).get() / self.window.get() * self.window.get());
        let used = std::mem::take(&mut self.used);
        let throttled = self.was_throttled(used, length, granted);
        self.start = self.start + length;
        self.waited = Nanos::ZERO;
        Window { used, length, throttled }
    }

    /// Whether the thread stopped because its budget was used up. 10 % tolerance covers the inexactness of a tick.
    fn was_throttled(&self, used: Nanos, length: Nanos, granted: Option<Reservation>) -> bool {
        let (Some(stopped), Some(granted)) = (self.stopped, granted) else { return false };
        let waited = self.waited + (self.start + length).since(stopped.max(self.start));
        let out_of_budget = used.as_f64() >= 0.9 * length.as_f64() * share_of(granted);
        out_of_budget && (!self.reclaims || waited.as_f64() >= WAITING_PART * length.as_f64())
    }
}

fn window_of(contract: &Contract) -> Nanos {
    let periods = LEAST_WINDOW.get().div_ceil(contract.period.get().max(1)).max(1);
    contract.period.saturating_mul(periods)
}

fn share_of(reservation: Reservation) -> f64 {
    reservation.budget().as_f64() / reservation.period().as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::{Share, ThreadId};

    const FLOOR: Nanos = Nanos::from_micros(50);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn sample(from_ms: u64, to_ms: u64, used: Nanos, slept: bool) -> Sample {
        Sample { thread: ThreadId(1), from: at(from_ms), to: at(to_ms), used, slept }
    }

    fn contract() -> Contract {
        Contract { max_bandwidth: Share::from_ppm(800_000), ..Contract::new("test", Nanos::from_millis(40)) }
    }

    #[test]
    fn windows_end_at_multiples_of_their_length() {
        let mut consumption = Consumption::new(&contract(), true);
        assert_eq!(consumption.due(), Instant::NEVER);
        consumption.ran(&sample(95, 95, Nanos::from_millis(4), true));
        assert_eq!(consumption.due(), at(120));
        assert_eq!(consumption.on_time(at(119), None), None);
        let window = consumption.on_time(at(165), None).unwrap();
        assert_eq!((window.used, window.length), (Nanos::from_millis(4), Nanos::from_millis(80)));
    }

    #[test]
    fn a_thread_that_stops_running_comes_to_rest_and_closes_no_more_windows() {
        let mut consumption = Consumption::new(&contract(), true);
        consumption.ran(&sample(39, 39, Nanos::from_millis(20), true));
        let mut windows = 0;
        while consumption.due() != Instant::NEVER {
            consumption.on_time(consumption.due(), None);
            windows += 1;
            assert!(windows < 200, "the thread never comes to rest");
        }
        assert_eq!(consumption.budget(FLOOR), FLOOR);
    }

    #[test]
    fn a_new_thread_starts_at_rest_and_grows_when_throttled() {
        let mut consumption = Consumption::new(&contract(), false);
        assert_eq!(consumption.budget(FLOOR), FLOOR);
        let granted = Reservation::new(FLOOR, Nanos::from_millis(10)).unwrap();
        consumption.ran(&sample(20, 20, Nanos::from_micros(200), false));
        assert!(consumption.on_time(at(40), Some(granted)).unwrap().throttled);
        assert!(consumption.budget(FLOOR) > FLOOR);
    }

    #[test]
    fn a_short_stop_counts_as_throttling_under_a_hard_reservation_only() {
        for (reclaiming, throttled) in [(Reclaiming::Hard, true), (Reclaiming::Grub, false)] {
            let mut consumption = Consumption::new(&contract().reclaimed_as(reclaiming), false);
            let granted = Reservation::new(FLOOR, Nanos::from_millis(10)).ok();
            consumption.ran(&sample(0, 39, Nanos::from_millis(12), false));
            assert_eq!(consumption.on_time(at(40), granted).unwrap().throttled, throttled, "{reclaiming}");
        }
    }
}
