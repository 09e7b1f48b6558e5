//! One constant bandwidth server: the state of a reservation `(Q, P)`. Times in nanoseconds; budgets are real
//! numbers, because reclaiming spends them at fractional rates.
//!
//! ```text
//!            wake                     budget spent, hard, GRUB or IRIS
//!   Asleep --------> Ready ------------------------------------------> Throttled
//!     ^  ^             |  ^  `-- budget spent, soft: new budget, deadline later   |
//!     |  |  zero lag   |  `-- replenish, at the deadline; IRIS, soft: or idle ----'
//!     |  `-- Lagging <-'  sleep (its bandwidth still counts as active until then)
//!     `----------------'  sleep, lag already zero
//! ```
//! Rules as in `kernel/sched/deadline.c`: a changed reservation applies from the next replenishment on, and at once
//! if the deadline has passed; a wake-up keeps budget and deadline unless that would exceed the bandwidth.

use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};

/// Largest distance of a soft server's deadline from now before the server waits. Without a bound, a server that
/// ran alone for a long time would later wait for a long time behind servers that wake up.
pub const AHEAD_MAX: Nanos = Nanos::new(u32::MAX as u64);

/// An overrun smaller than this comes from the rounding of the machine's events and is ignored.
const NOTICED_NS: f64 = 10.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Has no work; its bandwidth is free for other servers.
    #[default]
    Asleep,
    /// Has no work, but its bandwidth counts as used until this time, its zero-lag time.
    Lagging(Instant),
    /// Wants the CPU.
    Ready,
    /// Budget spent; replenished at [`Server::recharge_at`].
    Throttled,
}

/// The state of a reservation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    reservation: Reservation,
    mode: Reclaiming,
    budget_ns: f64,
    deadline: Instant,
    state: State,
}

impl Server {
    /// A sleeping server without budget.
    pub fn new(reservation: Reservation, mode: Reclaiming) -> Self {
        Server { reservation, mode, budget_ns: 0.0, deadline: Instant::ZERO, state: State::Asleep }
    }

    /// Sets another reservation, which applies from the next replenishment on. The rest of the old budget stays.
    /// The bandwidth of a sleeping server counts as unused from now on, even before its zero-lag time (Linux:
    /// `dl_rq_change_utilization`). Setting the same reservation again changes nothing.
    ///
    /// Linux takes a task that is awake off its queue and puts it back: a spent budget is noticed before the next
    /// tick (`update_curr_dl`), and a server whose deadline has passed begins a new period (`setup_new_dl_entity`).
    /// A task that was first then becomes one of the last, with a full budget.
    pub fn change(&mut self, reservation: Reservation, mode: Reclaiming, now: Instant) {
        if (self.reservation, self.mode) == (reservation, mode) {
            return;
        }
        let is_requeued = self.state == State::Ready && matches!(mode, Reclaiming::Hard | Reclaiming::Grub);
        if is_requeued && self.budget_ns <= 0.0 {
            self.exhaust(now);
        }
        (self.reservation, self.mode) = (reservation, mode);
        if is_requeued && self.state == State::Ready && self.deadline < now {
            self.start_period(now);
        }
        if matches!(self.state, State::Lagging(_)) {
            self.state = State::Asleep;
        }
    }

    /// (Q, P) from the next replenishment on.
    pub fn reservation(&self) -> Reservation {
        self.reservation
    }
    /// The rule that applies when the budget is spent.
    pub fn mode(&self) -> Reclaiming {
        self.mode
    }
    /// The rest of the budget until the deadline, in ns; negative after an overrun.
    pub fn budget_ns(&self) -> f64 {
        self.budget_ns
    }
    /// The scheduling deadline: the end of the server period. At the end of a job it is the job's virtual finishing
    /// time s_k.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
    pub fn state(&self) -> State {
        self.state
    }
    /// Whether its bandwidth counts as used.
    pub fn is_active(&self) -> bool {
        self.state != State::Asleep
    }
    /// Whether it has no work and no overrun to make up for.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Asleep | State::Lagging(_)) && self.budget_ns >= 0.0
    }
    /// Q/P.
    pub fn share(&self) -> Share {
        self.reservation.share()
    }

    /// The server has work again.
    pub fn wake(&mut self, now: Instant) {
        if matches!(self.state, State::Ready | State::Throttled) {
            return;
        }
        self.state = State::Ready;
        if self.deadline <= now || self.exceeds_bandwidth(now) {
            self.start_period(now);
        } else if self.budget_ns <= 0.0 {
            self.exhaust(now);
        }
    }

    /// The wake-up rule: whether spending the rest of the budget by the deadline would exceed the bandwidth Q/P.
    fn exceeds_bandwidth(&self, now: Instant) -> bool {
        let (q, p) = (self.reservation.budget().as_f64(), self.reservation.period().as_f64());
        self.budget_ns * p > self.deadline.since(now).as_f64() * q
    }

    fn start_period(&mut self, now: Instant) {
        self.deadline = now + self.reservation.period();
        self.budget_ns = self.reservation.budget().as_f64();
    }

    /// The server ran and spent `spent_ns` of its budget.
    pub fn spend(&mut self, spent_ns: f64) {
        self.budget_ns -= spent_ns;
    }

    /// Handles a spent budget at the time at which it is noticed.
    pub fn exhaust(&mut self, now: Instant) {
        debug_assert!(self.budget_ns <= 0.0, "{} ns are left", self.budget_ns);
        // Applies to hard servers, too, if the deadline has already passed when it is noticed: the next period has
        // begun.
        if self.recharge_at() <= now {
            self.refill(now);
        } else {
            self.state = State::Throttled;
        }
    }

    /// The time at which a server with a spent budget is replenished, unless the CPU idles before.
    pub fn recharge_at(&self) -> Instant {
        match self.mode {
            Reclaiming::Soft => self.deadline - AHEAD_MAX,
            Reclaiming::Hard | Reclaiming::Grub | Reclaiming::Iris => self.deadline,
        }
    }

    /// Whether the server waits with a spent budget and may use idle time.
    pub fn wants_idle_time(&self) -> bool {
        self.state == State::Throttled && matches!(self.mode, Reclaiming::Iris | Reclaiming::Soft)
    }

    /// Moves the period forward by `time`, because the CPU idles. In IRIS all waiting servers are brought forward
    /// by the same time, which shares idle time in proportion to their bandwidths.
    pub fn bring_forward(&mut self, time: Nanos) {
        self.deadline = self.deadline - time;
    }

    /// Begins a new period of a throttled server.
    pub fn replenish(&mut self, now: Instant) {
        self.state = State::Ready;
        self.refill(now);
    }

    /// Adds as many periods as needed to make up for an overrun: the server may run at once, with a deadline that
    /// is later by these periods. A deadline in the past is replaced by a new one from now.
    fn refill(&mut self, now: Instant) {
        while self.budget_ns <= 0.0 {
            self.deadline = self.deadline + self.reservation.period();
            self.budget_ns += self.reservation.budget().as_f64();
        }
        if self.deadline < now {
            self.start_period(now);
        }
    }

    /// The server has no work left. Its bandwidth counts as used until its zero-lag time: the time at which it
    /// would have spent its used budget at the rate Q/P.
    ///
    /// An overrun that was not noticed before is noticed now and made up for at the deadline.
    pub fn sleep(&mut self, now: Instant) {
        if self.state == State::Ready && self.budget_ns <= -NOTICED_NS {
            self.exhaust(now);
        }
        let left_ns = self.budget_ns.max(0.0) * self.reservation.period().as_f64();
        let zero_lag = self.deadline - Nanos::from_f64(left_ns / self.reservation.budget().as_f64());
        if self.state == State::Throttled {
            // Slept with no budget left: the deadline stays, and the server stays throttled.
            return;
        }
        self.state = if zero_lag <= now { State::Asleep } else { State::Lagging(zero_lag) };
    }

    /// Ends a lag that is over at `now`.
    pub fn on_time(&mut self, now: Instant) {
        if matches!(self.state, State::Lagging(zero_lag) if zero_lag <= now) {
            self.state = State::Asleep;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn reservation(budget_ms: u64) -> Reservation {
        Reservation::new(Nanos::from_millis(budget_ms), Nanos::from_millis(10)).unwrap()
    }

    fn awake(mode: Reclaiming) -> Server {
        let mut server = Server::new(reservation(2), mode);
        server.wake(at(100));
        server
    }

    #[test]
    fn a_first_wake_up_starts_a_period() {
        let server = awake(Reclaiming::Hard);
        assert_eq!((server.budget_ns(), server.deadline(), server.state()), (2e6, at(110), State::Ready));
    }

    #[test]
    fn a_hard_server_with_a_spent_budget_waits_for_its_deadline() {
        let mut server = awake(Reclaiming::Hard);
        server.spend(2e6);
        server.exhaust(at(103));
        assert_eq!((server.state(), server.deadline()), (State::Throttled, at(110)));
        server.replenish(at(110));
        assert_eq!((server.budget_ns(), server.deadline(), server.state()), (2e6, at(120), State::Ready));
    }

    #[test]
    fn a_soft_server_continues_with_a_later_deadline() {
        let mut server = awake(Reclaiming::Soft);
        server.spend(2e6);
        server.exhaust(at(103));
        assert_eq!((server.state(), server.deadline(), server.budget_ns()), (State::Ready, at(120), 2e6));
    }

    #[test]
    fn a_soft_server_far_ahead_of_its_deadline_waits() {
        let mut server = awake(Reclaiming::Soft);
        while server.state() == State::Ready {
            server.spend(2e6);
            server.exhaust(at(100));
        }
        let ahead = server.deadline().since(at(100));
        assert!(ahead > AHEAD_MAX && ahead <= AHEAD_MAX + Nanos::from_millis(10), "{ahead}");
        assert_eq!(server.recharge_at(), server.deadline() - AHEAD_MAX);
    }

    #[test]
    fn an_iris_server_is_replenished_at_its_deadline_or_when_brought_forward() {
        let mut server = awake(Reclaiming::Iris);
        server.spend(2e6);
        server.exhaust(at(103));
        assert_eq!((server.state(), server.recharge_at()), (State::Throttled, at(110)));
        server.bring_forward(Nanos::from_millis(6));
        server.replenish(at(104));
        assert_eq!((server.state(), server.deadline(), server.budget_ns()), (State::Ready, at(114), 2e6));
    }

    #[test]
    fn waking_with_more_than_the_bandwidth_left_starts_a_new_period() {
        let mut server = awake(Reclaiming::Hard);
        server.spend(1e6);
        server.sleep(at(101));
        server.wake(at(106));
        assert_eq!((server.deadline(), server.budget_ns()), (at(116), 2e6), "1 ms in 4 ms exceeds 2 ms in 10 ms");
    }

    #[test]
    fn waking_with_less_than_the_bandwidth_left_keeps_budget_and_deadline() {
        let mut server = awake(Reclaiming::Hard);
        server.spend(1.5e6);
        server.sleep(at(102));
        server.wake(at(104));
        assert_eq!((server.deadline(), server.budget_ns()), (at(110), 0.5e6));
    }

    #[test]
    fn a_changed_budget_is_used_from_the_next_replenishment_on() {
        let mut server = awake(Reclaiming::Hard);
        server.spend(1e6);
        server.change(reservation(5), Reclaiming::Hard, at(102));
        assert_eq!(server.budget_ns(), 1e6);
        server.spend(1e6);
        server.exhaust(at(104));
        server.replenish(at(110));
        assert_eq!(server.budget_ns(), 5e6);
    }

    #[test]
    fn a_change_after_the_deadline_begins_a_new_period() {
        let mut server = awake(Reclaiming::Grub);
        server.spend(1e6);
        server.change(reservation(5), Reclaiming::Grub, at(112));
        assert_eq!((server.budget_ns(), server.deadline(), server.state()), (5e6, at(122), State::Ready));
        server.change(reservation(5), Reclaiming::Grub, at(123));
        assert_eq!((server.budget_ns(), server.deadline()), (5e6, at(122)), "the same reservation changes nothing");
    }

    #[test]
    fn a_change_notices_a_spent_budget_before_the_tick() {
        let mut server = awake(Reclaiming::Grub);
        server.spend(2.5e6);
        server.change(reservation(5), Reclaiming::Grub, at(103));
        assert_eq!((server.state(), server.recharge_at()), (State::Throttled, at(110)));
        server.replenish(at(110));
        assert_eq!((server.budget_ns(), server.deadline()), (4.5e6, at(120)));
    }

    #[test]
    fn bandwidth_stays_in_use_until_the_lag_is_zero() {
        let mut server = awake(Reclaiming::Grub);
        server.spend(1e6);
        server.sleep(at(102));
        assert_eq!(server.state(), State::Lagging(at(105)), "half the budget is left, so the lag is half the period");
        server.on_time(at(104));
        assert!(server.is_active());
        server.on_time(at(105));
        assert!(!server.is_active());
    }

    #[test]
    fn an_overrun_noticed_at_sleep_is_made_up_for_at_the_deadline() {
        let mut server = awake(Reclaiming::Grub);
        server.spend(3e6);
        server.sleep(at(103));
        assert_eq!((server.state(), server.is_at_rest()), (State::Throttled, false));
        server.replenish(at(110));
        server.sleep(at(110));
        assert!(server.is_at_rest() && server.budget_ns() == 1e6);
    }

    #[test]
    fn an_overrun_is_made_up_for_with_a_later_deadline() {
        let mut server = awake(Reclaiming::Hard);
        server.spend(5e6);
        server.exhaust(at(105));
        server.replenish(at(110));
        assert_eq!((server.state(), server.budget_ns(), server.deadline()), (State::Ready, 1e6, at(130)));
    }
}
