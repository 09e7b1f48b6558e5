//! Takes one thread out of SCHED_DEADLINE in steps. No step waits; a step returns the time of the next one.
//!
//! ```text
//!            ┌─────────── in an overrun, or about to be: wait for the refill ──────────┐
//!            v                                                                         │
//!  begun ─> bring accounts up to date ─────────────────────────────────────────────────┤
//!                                                                                      │
//!            budget left, or never ran, or waited long enough <────────────────────────┘
//!            └─> weightless, leave ─> may be reserved again at once, or after a rest
//! ```
//! P is the period and Q the budget of the reservation; r is the remaining budget. Times in nanoseconds.

use std::io;

use qfabric_types::{Instant, Nanos, Reservation, ThreadId};

use super::account::{self, Account, Reading};
use crate::sched_attr::{Policy, RECLAIM, SchedAttr, remaining_ns};
use crate::{clock, threads};

/// A thread with less budget than this may overrun before the next system call.
const MARGIN: i64 = 200_000;
const MARGIN_TIME: Nanos = Nanos::new(MARGIN as u64);
/// Time between two looks at the thread, in thousandths of a period. The value is not a simple fraction of the period,
/// so successive looks fall into different parts of it. One of them then finds budget, even if the thread uses its
/// budget as soon as it is refilled.
const BETWEEN_LOOKS: u64 = 236;
/// Rest of a thread that left weightless, counted from its last overrun of 1,024 ns: one weightless period (1.1 s).
const REFILL: u64 = 1_100_000_000;
/// Longest rest of a thread whose account is visible. An overrun seldom moves the deadline, because the thread must
/// still be weightless at its next refill. If it did, [`enter`](super::enter) finds the deadline far away and refuses.
const LONGEST_REST: Nanos = account::WEIGHTLESS;
/// Longest wait for a refill. A refill comes within one or two periods; a thread that never ran gets none.
const PATIENCE: Nanos = Nanos::from_millis(2_000);
/// Longest period whose triple is within the kernel's limit of 4.19 s.
const LONGEST_STRETCHED: u64 = 1_390_000_000;
/// Reservation that a weightless thread receives first. A process that died between its last two calls left the thread
/// weightless; such a thread is refilled once in 1.1 s, and the overrun of one tick would take an hour to pay.
const SOME_WEIGHT: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(10));
/// Rest of a thread whose remaining budget the kernel does not report: 24 h, longer than its program is expected to
/// run.
const UNKNOWN_REST: Nanos = Nanos::from_millis(24 * 3_600 * 1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The thread is outside the class. It must not be reserved again before `rest` has passed.
    Left { rest: Nanos },
    /// The thread stays in the class with the same bandwidth; the next step is due after this time.
    Wait(Nanos),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    thread: ThreadId,
    /// Scheduling attributes for the time after the departure.
    to: SchedAttr,
    /// Scheduling attributes when the departure began.
    held: SchedAttr,
    /// State of its server immediately after it entered the class, if known.
    entered: Option<Account>,
    began: Instant,
    steps: u64,
}

impl Departure {
    /// `held`: the attributes that `thread` has now. Changes nothing yet.
    pub(crate) fn begin(thread: ThreadId, held: SchedAttr, to: SchedAttr, entered: Option<Account>) -> Departure {
        Departure { thread, to, held, entered, began: clock::now(), steps: 0 }
    }

    /// Runs all steps and sleeps between them: for at most about 2 s, or for two periods if these are longer.
    pub(crate) fn finish(mut self) -> io::Result<Nanos> {
        loop {
            match self.step()? {
                Step::Left { rest } => return Ok(rest),
                Step::Wait(time) => std::thread::sleep(std::time::Duration::from_nanos(time.get())),
            }
        }
    }

    /// Takes the thread out of the class if its state allows a departure without lost bandwidth; takes about 30 µs.
    /// If this fails, the thread is still reserved.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        self.check_alive()?;
        if self.steps == 0 && self.held.is_weightless() {
            if let Some(account) = with_far_deadline(Reading::of(self.thread).known()) {
                return self.leave_far(account);
            }
            self.give_weight()?;
        }
        if !self.bring_up_to_date()? {
            return Ok(Step::Left { rest: Nanos::ZERO });
        }
        let started = clock::now();
        let account = match Reading::of(self.thread) {
            Reading::NotReserved => return Ok(Step::Left { rest: Nanos::ZERO }),
            Reading::Hidden => return self.leave_unseen(),
            Reading::Known(account) => account,
        };
        self.check_alive()?; // it may have died meanwhile, so that the stretched parameters went to a dead thread
        let asleep = threads::is_asleep(self.thread);
        let never_ran = asleep && self.entered.is_some_and(|e| same_stay(e, account));
        let look = Look { started, asleep, account, never_ran };
        if account.is_far(Nanos::new(self.held.period_ns)) {
            return self.leave_far(account);
        }
        if account.runtime_ns < MARGIN && !never_ran && started < self.give_up_at(account) {
            return Ok(Step::Wait(self.until_next_look(&look)));
        }
        self.leave_weightless(&look)
    }

    fn check_alive(&self) -> io::Result<()> {
        if threads::start_time(self.thread).is_some() {
            return Ok(());
        }
        self.keep_dead()?;
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn until_next_look(&self, look: &Look) -> Nanos {
        match look.account.runtime_ns >= 0 && !look.asleep {
            true => MARGIN_TIME, // the thread uses the rest of its budget in this time
            false => Nanos::new((self.held.period_ns / 1_000 * BETWEEN_LOOKS).max(50_000)),
        }
    }

    /// Without room for it, the thread keeps its weightless reservation. Fails if the thread died in the call: its
    /// weight would stay booked with no owner.
    fn give_weight(&mut self) -> io::Result<()> {
        let (budget, period) = SOME_WEIGHT;
        let some = SchedAttr::deadline(Reservation::new(budget, period).expect("a tenth of a CPU is one"), false);
        if some.give(self.thread).is_ok() {
            self.held = some;
        }
        self.check_alive()
    }

    /// Makes the kernel charge the thread for the time that it has run. Returns `false` if the thread has left the
    /// class by itself.
    ///
    /// Since Linux 7.1, reading the remaining budget has this effect. Before 7.1, a change of parameters has it. Twice
    /// or three times the budget *and* the period are the same bandwidth: the kernel books nothing and cancels no
    /// timer, and if this process dies here, the thread keeps its bandwidth. One case loses bandwidth: if the thread
    /// dies while the call looks it up, its bandwidth may already be subtracted and is then booked again with no owner.
    /// The caller may be preempted at that point for as long as reserved threads run.
    fn bring_up_to_date(&mut self) -> io::Result<bool> {
        let now = SchedAttr::of(self.thread)?;
        if now.policy != Policy::DEADLINE {
            return Ok(false);
        }
        let k = 2 + self.steps % 2;
        self.steps += 1;
        if remaining_ns(self.thread).is_ok() {
            return Ok(true);
        }
        let SchedAttr { runtime_ns, deadline_ns, period_ns, flags, .. } = self.held;
        let changed = match period_ns <= LONGEST_STRETCHED {
            true => SchedAttr {
                runtime_ns: k * runtime_ns,
                deadline_ns: k * deadline_ns,
                period_ns: k * period_ns,
                ..self.held
            },
            // The period is too long to be stretched. Switching GRUB on or off is also a change, and also books
            // nothing.
            false => SchedAttr { flags: if k == 2 { flags ^ RECLAIM } else { flags }, ..self.held },
        };
        match changed.give(self.thread) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(error),
            _ => Ok(true), // if refused, the account is at most one tick old
        }
    }

    /// A thread in an overrun waits for its refill. A thread with little budget waits only until the end of its period;
    /// this makes an overrun between the last two calls unlikely.
    fn give_up_at(&self, account: Account) -> Instant {
        let two_periods = Nanos::new(2 * self.held.period_ns);
        self.began + if account.runtime_ns > 0 { two_periods } else { PATIENCE.max(two_periods) }
    }

    /// Books a bandwidth that rounds to zero, then leaves: no bandwidth can be lost, whatever the state of the thread.
    fn leave_weightless(&self, look: &Look) -> io::Result<Step> {
        let weighed = clock::now();
        // Refused only if the kernel's limit on periods was lowered; then the thread leaves with its present bandwidth.
        let _ = SchedAttr::weightless().give(self.thread);
        self.end_reservation()?;
        let left = clock::now();
        let (sleeps, asleep) = (account::sleeps(self.thread), threads::is_asleep(self.thread));
        Ok(Step::Left { rest: look.rest(weighed, left, sleeps, asleep) })
    }

    /// A weightless thread that an ended service left behind, after an overrun. A larger bandwidth would stay booked
    /// until the far deadline, so the thread leaves weightless.
    fn leave_far(&self, account: Account) -> io::Result<Step> {
        let _ = SchedAttr::weightless().give(self.thread);
        self.end_reservation()?;
        Ok(Step::Left { rest: account.ahead })
    }

    /// Loses no bandwidth. A stale throttled mark is possible, so the thread stays outside the class.
    fn leave_unseen(&self) -> io::Result<Step> {
        let _ = SchedAttr::weightless().give(self.thread);
        self.end_reservation()?;
        Ok(Step::Left { rest: UNKNOWN_REST })
    }

    /// Ends the reservation. A thread that cannot get its former attributes back becomes an ordinary thread, because a
    /// weightless thread would hardly ever run again.
    ///
    /// A thread that died in the class stays there. Its exit decreased its cpuset's number of reserved threads
    /// (`cgroup_exit`). Leaving would decrease that number again, and if the number is wrongly 0, a rebuild of the root
    /// domain forgets the reservations of all living threads. A thread that died during the call is counted again.
    fn end_reservation(&self) -> io::Result<()> {
        let left = self.to.give(self.thread).or_else(|error| {
            let gone = error.raw_os_error() == Some(libc::ESRCH);
            if !gone {
                SchedAttr::fair(0).give(self.thread)?;
            }
            Err(error)
        });
        if threads::start_time(self.thread).is_none() {
            let _ = self.keep_dead(); // fails if the thread is already reaped, which is harmless
        }
        left
    }

    /// Puts a dead thread back into the class, with no bandwidth booked.
    fn keep_dead(&self) -> io::Result<()> {
        SchedAttr::weightless().give(self.thread)
    }
}

/// The account of a weightless thread whose deadline is far away. Such a thread gets no weight: if it died before it
/// left, the kernel would keep the weight booked until that deadline.
fn with_far_deadline(weightless: Option<Account>) -> Option<Account> {
    weightless.filter(|account| account.is_far(SOME_WEIGHT.1))
}

/// The state of the thread before it became weightless.
struct Look {
    started: Instant,
    asleep: bool,
    account: Account,
    never_ran: bool,
}

impl Look {
    /// Time for which the thread must not be reserved again. Zero if the thread certainly left with budget. Otherwise
    /// it may have woken, and may have overrun the weightless budget by at most the time between the calls. That time
    /// includes the time in which other reserved threads ran, so it says little if it is long.
    fn rest(&self, weighed: Instant, left: Instant, sleeps: Option<u64>, asleep: bool) -> Nanos {
        let since_look = left.since(self.started).get();
        let had_budget = self.account.runtime_ns > since_look as i64;
        let same = sleeps == Some(self.account.sleeps);
        let calm = same && (!self.asleep || asleep);
        let fell_asleep = !self.asleep && asleep && sleeps == Some(self.account.sleeps + 1);
        if (calm || fell_asleep) && (self.never_ran || had_budget) {
            return Nanos::ZERO;
        }
        let overrun = if had_budget { left.since(weighed).get() } else { since_look };
        Nanos::new(REFILL.saturating_add((overrun / 1_024).saturating_mul(REFILL))).min(LONGEST_REST)
    }
}

/// True if the thread has not run between `a` and `b`.
fn same_stay(a: Account, b: Account) -> bool {
    (a.runtime_ns, a.sleeps) == (b.runtime_ns, b.sleeps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Worker, live_lock, may_reserve};

    const AT: fn(u64) -> Instant = Instant::new;

    fn look(runtime_ns: i64, asleep: bool) -> Look {
        let account = Account { runtime_ns, sleeps: 5, switches: 9, ahead: Nanos::ZERO };
        Look { started: AT(1_000), asleep, account, never_ran: false }
    }

    /// A thread that dies during a change of its parameters would leave bandwidth booked with no owner.
    #[test]
    fn no_parameter_changes_if_the_kernel_reports_the_remaining_budget() {
        let _alone = live_lock();
        if !may_reserve() {
            return;
        }
        let reservation = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(100)).unwrap();
        let (sleeper, held) = (Worker::sleeping(), SchedAttr::deadline(reservation, false));
        held.give(sleeper.thread).unwrap();
        let mut departure = Departure::begin(sleeper.thread, held, SchedAttr::fair(0), None);
        let is_in = departure.bring_up_to_date();
        let (now, tells) = (SchedAttr::of(sleeper.thread), remaining_ns(sleeper.thread).is_ok());
        departure.finish().unwrap();
        let (now, stretched) = (now.unwrap(), if tells { 1 } else { 2 });
        assert!(is_in.unwrap());
        assert_eq!((now.runtime_ns, now.period_ns), (stretched * held.runtime_ns, stretched * held.period_ns));
    }

    /// The thread could be refilled, run and fall asleep before the call that takes it out; its bandwidth would stay
    /// booked.
    #[test]
    fn a_thread_in_an_overrun_does_not_leave_before_its_refill() {
        let _alone = live_lock();
        if !may_reserve() {
            return;
        }
        let reservation = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(500)).unwrap();
        let (hog, held) = (Worker::burning(), SchedAttr::deadline(reservation, false));
        held.give(hog.thread).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut departure = Departure::begin(hog.thread, held, SchedAttr::fair(0), None);
        let (step, now) = (departure.step(), SchedAttr::of(hog.thread));
        departure.finish().unwrap();
        assert!(matches!(step, Ok(Step::Wait(_))), "{step:?}");
        assert_eq!(now.unwrap().policy, Policy::DEADLINE);
        assert_ne!(SchedAttr::of(hog.thread).unwrap().policy, Policy::DEADLINE);
    }

    /// A tenth of a CPU would stay booked for minutes to hours if the thread were killed before it left.
    #[test]
    fn a_weightless_thread_gets_weight_only_if_its_deadline_is_near() {
        let account = |ahead| Some(Account { ahead, ..look(-1_000, false).account });
        assert_eq!(with_far_deadline(account(Nanos::from_millis(600_000))), account(Nanos::from_millis(600_000)));
        assert_eq!(with_far_deadline(account(Nanos::from_millis(1_100))), None);
        assert_eq!(with_far_deadline(None), None, "this kernel shows no account");
    }

    #[test]
    fn a_thread_that_left_with_budget_may_be_reserved_again_at_once() {
        assert_eq!(look(500_000, true).rest(AT(20_000), AT(30_000), Some(5), true), Nanos::ZERO);
        assert_eq!(look(500_000, false).rest(AT(20_000), AT(30_000), Some(5), false), Nanos::ZERO);
        assert_eq!(look(500_000, false).rest(AT(20_000), AT(30_000), Some(6), true), Nanos::ZERO, "it fell asleep");
    }

    #[test]
    fn a_thread_that_may_have_overrun_the_weightless_budget_rests() {
        let woken = look(500_000, true).rest(AT(20_000), AT(20_000 + 1_024), Some(6), false);
        assert_eq!(woken, Nanos::new(2 * REFILL));
        let spent = look(10_000, true).rest(AT(20_000), AT(1_000 + 1_000), Some(5), false);
        assert_eq!(spent, Nanos::new(REFILL));
    }

    /// The calls are far apart if the caller is preempted between them. The whole distance as an overrun would keep
    /// the thread without a reservation for minutes to hours.
    #[test]
    fn a_long_time_between_the_calls_is_no_long_rest() {
        let preempted = look(500_000, false).rest(AT(20_000), AT(5_000_000), Some(7), true);
        assert_eq!(preempted, LONGEST_REST);
    }

    #[test]
    fn a_thread_that_never_ran_has_nothing_to_pay() {
        let fresh = Look { never_ran: true, ..look(0, true) };
        assert_eq!(fresh.rest(AT(2_000), AT(9_000_000), Some(5), true), Nanos::ZERO);
        assert_ne!(fresh.rest(AT(2_000), AT(9_000_000), Some(6), false), Nanos::ZERO);
    }
}
