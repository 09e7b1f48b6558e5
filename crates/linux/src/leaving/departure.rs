//! One thread's way out of SCHED_DEADLINE, in steps that never wait themselves.
//!
//! ```text
//!            ┌─────────── in an overrun, or about to be: wait for the refill ──────────┐
//!            v                                                                         │
//!  begun ─> bring accounts up to date ─────────────────────────────────────────────────┤
//!                                                                                      │
//!            budget left, or never ran, or waited long enough <────────────────────────┘
//!            └─> weightless, leave ─> may return at once, or rests
//! ```
//! P is the period and Q the budget of the reservation, r what is left of the budget. Times in nanoseconds.

use std::io;

use qfabric_types::{Instant, Nanos, Reservation, ThreadId};

use super::account::{self, Account, Reading};
use crate::sched_attr::{Policy, RECLAIM, SchedAttr, remaining_ns};
use crate::{clock, threads};

/// A thread with less budget than this may be in an overrun before the next call.
const MARGIN: i64 = 200_000;
const MARGIN_TIME: Nanos = Nanos::new(MARGIN as u64);
/// Looks are so many thousandths of a period apart. Not a simple fraction, so that they come at ever other moments of the
/// period, and find a thread with budget that spends it as soon as it has it.
const BETWEEN_LOOKS: u64 = 236;
/// A thread that left weightless is clean this long after its last overrun of 1,024 ns: the weightless period.
const REFILL: u64 = 1_100_000_000;
/// A refill comes within a period or two; a thread that never ran gets none.
const PATIENCE: Nanos = Nanos::from_millis(2_000);
/// The longest period that may be multiplied by three within the kernel's limit of 4.19 s.
const LONGEST_STRETCHED: u64 = 1_390_000_000;
/// What a weightless thread is given first, which a process that died between the last two calls left behind: by
/// itself it would be refilled once in 1.1 s, and pay for a tick's overrun for an hour.
const SOME_WEIGHT: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(10));
/// Where the kernel does not tell what is left, nobody knows when the thread is clean: not while its program runs.
const UNKNOWN_REST: Nanos = Nanos::from_millis(24 * 3_600 * 1_000);

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The thread is out of the class. It must not be reserved again for `rest`.
    Left { rest: Nanos },
    /// The thread goes on in the class with the same bandwidth; the next step is due after this time.
    Wait(Nanos),
}

/// A thread that is leaving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    thread: ThreadId,
    /// What it gets outside of the class.
    to: SchedAttr,
    /// What it held when the departure began.
    held: SchedAttr,
    /// Its server right after it entered the class, if that is known.
    entered: Option<Account>,
    began: Instant,
    steps: u64,
}

impl Departure {
    /// `held` is what `thread` has now. Nothing is done yet.
    pub fn begin(thread: ThreadId, held: SchedAttr, to: SchedAttr, entered: Option<Account>) -> Departure {
        Departure { thread, to, held, entered, began: clock::now(), steps: 0 }
    }

    /// Takes the steps in turn, sleeping in between: at most about 2 s, or two periods.
    pub fn finish(mut self) -> io::Result<Nanos> {
        loop {
            match self.step()? {
                Step::Left { rest } => return Ok(rest),
                Step::Wait(time) => std::thread::sleep(std::time::Duration::from_nanos(time.get())),
            }
        }
    }

    /// Leaves, if the thread's state lets it leave without a trace; takes some 30 µs. On an error the thread is
    /// still reserved.
    pub fn step(&mut self) -> io::Result<Step> {
        self.check_alive()?;
        if self.steps == 0 && self.held.is_weightless() {
            self.give_weight();
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
        self.check_alive()?; // it may have died meanwhile, and been given twice its budget after its end
        let asleep = threads::is_asleep(self.thread);
        let never_ran = asleep && self.entered.is_some_and(|e| same_stay(e, account));
        let look = Look { started, asleep, account, never_ran };
        if account.is_far() {
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
            true => MARGIN_TIME, // spent by then
            false => Nanos::new((self.held.period_ns / 1_000 * BETWEEN_LOOKS).max(50_000)),
        }
    }

    fn give_weight(&mut self) {
        let (budget, period) = SOME_WEIGHT;
        let some = SchedAttr::deadline(Reservation::new(budget, period).expect("a tenth of a CPU is one"), false);
        if some.give(self.thread).is_ok() {
            self.held = some;
        }
    }

    /// Makes the kernel account for what the thread ran. `false`: the thread left the class by itself.
    ///
    /// Since Linux 7.1 asking for what is left does it. Before, a change of parameters does: twice or three times budget
    /// *and* period are the same bandwidth, so nothing is booked, no timer is cancelled, and a thread that is left so (this
    /// process dies) has what it had. Only a thread that dies while the call looks for it may have been subtracted already,
    /// and is booked once more for nobody: the caller may be preempted there for as long as reservations run.
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
            // Too long to be stretched: GRUB on or off is a change, too, and books nothing either.
            false => SchedAttr { flags: if k == 2 { flags ^ RECLAIM } else { flags }, ..self.held },
        };
        match changed.give(self.thread) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(error),
            _ => Ok(true), // refused: the account is a tick old at most
        }
    }

    /// Who is in an overrun waits for the refill; one with a little budget only for the end of its period, so
    /// that it seldom overruns between the last two calls.
    fn give_up_at(&self, account: Account) -> Instant {
        let two_periods = Nanos::new(2 * self.held.period_ns);
        self.began + if account.runtime_ns > 0 { two_periods } else { PATIENCE.max(two_periods) }
    }

    /// A bandwidth that rounds to zero is booked at once and leaves nothing to lose, whatever state the thread is in.
    fn leave_weightless(&self, look: &Look) -> io::Result<Step> {
        let weighed = clock::now();
        // Refused only where the kernel's longest period was lowered: then it leaves with what it has.
        let _ = SchedAttr::weightless().give(self.thread);
        self.out()?;
        let left = clock::now();
        let (sleeps, asleep) = (account::sleeps(self.thread), threads::is_asleep(self.thread));
        Ok(Step::Left { rest: look.rest(weighed, left, sleeps, asleep) })
    }

    /// A weightless thread that a service left behind, and that overran: with any weight it would hold that until then.
    fn leave_far(&self, account: Account) -> io::Result<Step> {
        let _ = SchedAttr::weightless().give(self.thread);
        self.out()?;
        Ok(Step::Left { rest: account.ahead })
    }

    /// Nothing is lost, and a stale mark is possible: it stays outside.
    fn leave_unseen(&self) -> io::Result<Step> {
        let _ = SchedAttr::weightless().give(self.thread);
        self.out()?;
        Ok(Step::Left { rest: UNKNOWN_REST })
    }

    /// Weightless, a thread would hardly ever run again: where it cannot get what it had, it becomes an ordinary one.
    ///
    /// A thread that died in the class stays there. Its exit took it off its cpuset's number of reserved threads
    /// (`cgroup_exit`); leaving takes it off once more, and where that number is 0 by mistake, a rebuild of the root
    /// domain forgets the reservations of all living threads. One that died on its way is put on it again.
    fn out(&self) -> io::Result<()> {
        let left = self.to.give(self.thread).or_else(|error| {
            let gone = error.raw_os_error() == Some(libc::ESRCH);
            if !gone {
                SchedAttr::fair(0).give(self.thread)?;
            }
            Err(error)
        });
        if threads::start_time(self.thread).is_none() {
            let _ = self.keep_dead(); // reaped: it has no number any more
        }
        left
    }

    /// In the class, with nothing booked.
    fn keep_dead(&self) -> io::Result<()> {
        SchedAttr::weightless().give(self.thread)
    }
}

/// What was seen before the thread became weightless.
struct Look {
    started: Instant,
    asleep: bool,
    account: Account,
    never_ran: bool,
}

impl Look {
    /// Zero where the thread certainly left with budget to spend. Else it may have woken, and overrun the
    /// weightless budget by at most the time between the calls.
    fn rest(&self, weighed: Instant, left: Instant, sleeps: Option<u64>, asleep: bool) -> Nanos {
        let since_look = left.since(self.started).get();
        let had_budget = self.account.runtime_ns > since_look as i64;
        let same = sleeps == Some(self.account.sleeps);
        let calm = same && (!self.asleep || asleep);
        let dozed_off = !self.asleep && asleep && sleeps == Some(self.account.sleeps + 1);
        if (calm || dozed_off) && (self.never_ran || had_budget) {
            return Nanos::ZERO;
        }
        let overrun = if had_budget { left.since(weighed).get() } else { since_look };
        Nanos::new(REFILL.saturating_add((overrun / 1_024).saturating_mul(REFILL)))
    }
}

/// Whether the thread has not run between two looks.
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

    /// A thread that died while its parameters were changed would be booked for nobody.
    #[test]
    fn where_the_kernel_tells_what_is_left_nothing_is_changed_to_learn_it() {
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

    /// It may be refilled, run and fall asleep before the call that takes it out; then its bandwidth would stay booked.
    #[test]
    fn who_is_in_an_overrun_does_not_leave_before_its_refill() {
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

    #[test]
    fn a_thread_that_left_with_budget_may_return_at_once() {
        assert_eq!(look(500_000, true).rest(AT(20_000), AT(30_000), Some(5), true), Nanos::ZERO);
        assert_eq!(look(500_000, false).rest(AT(20_000), AT(30_000), Some(5), false), Nanos::ZERO);
        assert_eq!(look(500_000, false).rest(AT(20_000), AT(30_000), Some(6), true), Nanos::ZERO, "it dozed off");
    }

    #[test]
    fn a_thread_that_may_have_overrun_the_weightless_budget_rests_until_that_is_paid() {
        let woken = look(500_000, true).rest(AT(20_000), AT(20_000 + 2_048), Some(6), false);
        assert_eq!(woken, Nanos::new(3 * REFILL));
        let spent = look(10_000, true).rest(AT(20_000), AT(1_000 + 10_240), Some(5), true);
        assert_eq!(spent, Nanos::new(11 * REFILL));
    }

    #[test]
    fn a_thread_that_never_ran_has_nothing_to_pay() {
        let fresh = Look { never_ran: true, ..look(0, true) };
        assert_eq!(fresh.rest(AT(2_000), AT(9_000_000), Some(5), true), Nanos::ZERO);
        assert_ne!(fresh.rest(AT(2_000), AT(9_000_000), Some(6), false), Nanos::ZERO);
    }
}
