//! Reads the state of a reserved thread's server from the kernel: remaining budget, sleeps, and distance to the
//! deadline.
//!
//! First source: `/proc/TID/sched` (all kernels since 6.15; earlier kernels with CONFIG_SCHED_DEBUG). Second source:
//! `sched_getattr` with DL_DYNAMIC (Linux 7.1), together with `/proc/TID/status`. Times in nanoseconds.

use qfabric_types::{Instant, Nanos, ThreadId};

use crate::files;
use crate::sched_attr::{Policy, SchedAttr, remaining};
use crate::{clock, sched_attr, threads};

/// A weightless thread that overran its budget has a deadline in the far future: each 1,024 ns of its debt moved it by
/// one weightless period, 1.1 s. Two such periods may be the rest of a former stay that the kernel still knows.
pub(super) const WEIGHTLESS: Nanos = Nanos::from_millis(2_200);

/// Periods by which ordinary overruns, of at most some ticks, move a deadline.
const PERIODS: u64 = 4;

/// The compared clocks may differ by one part in this after a long time. (Both count the same hardware; seconds were
/// seen after months.)
const DRIFT: u64 = 250_000;

/// Upper bound of all of these.
const FAR: Nanos = Nanos::from_millis(10_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Remaining budget; negative after an overrun. As old as the last accounting, which happens at each tick and when
    /// the parameters change.
    pub runtime_ns: i64,
    /// Number of voluntary context switches.
    pub sleeps: u64,
    /// Number of all context switches.
    pub switches: u64,
    /// Time until the deadline; zero if the deadline has passed.
    pub ahead: Nanos,
}

impl Account {
    /// True if the thread, with a reservation of this `period`, would not run for seconds to hours: new parameters do
    /// not move a deadline. The 0-lag time is equally far away, so the thread may only leave weightless.
    pub(crate) fn is_far(&self, period: Nanos) -> bool {
        self.ahead > far(period, clock::raw())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The thread does not exist, or is outside SCHED_DEADLINE.
    NotReserved,
    /// The thread is reserved, but this kernel does not report the remaining budget.
    Hidden,
    Known(Account),
}

impl Reading {
    pub(crate) fn of(thread: ThreadId) -> Reading {
        let text = files::text(threads::file(thread, "sched")).unwrap_or_default();
        if let Some(account) = in_sched(&text, clock::raw().get()) {
            return Reading::Known(account);
        }
        if SchedAttr::of(thread).map(|a| a.policy).ok() != Some(Policy::DEADLINE) {
            return Reading::NotReserved;
        }
        by_getattr(thread).map_or(Reading::Hidden, Reading::Known)
    }

    pub(crate) fn known(self) -> Option<Account> {
        match self {
            Reading::Known(account) => Some(account),
            _ => None,
        }
    }
}

/// Number of voluntary context switches of `thread`, inside or outside SCHED_DEADLINE.
pub(crate) fn sleeps(thread: ThreadId) -> Option<u64> {
    threads::switches(thread).map(|(sleeps, _)| sleeps)
}

/// A deadline that is further ahead than this is far. `uptime` is the age of the clocks, which differ more as they age.
fn far(period: Nanos, uptime: Instant) -> Nanos {
    let drift = Nanos::new(uptime.get() / DRIFT);
    FAR.min(period.saturating_mul(PERIODS) + WEIGHTLESS + drift)
}

fn by_getattr(thread: ThreadId) -> Option<Account> {
    let (runtime_ns, (_, deadline)) = (sched_attr::remaining_ns(thread).ok()?, remaining(thread).ok()?);
    let (sleeps, forced) = threads::switches(thread)?;
    Some(Account { runtime_ns, sleeps, switches: sleeps + forced, ahead: deadline.since(clock::now()) })
}

/// `now` is a time of the run queues' clock, which no time server slews.
fn in_sched(text: &str, now: u64) -> Option<Account> {
    let field = |name: &str| {
        let line = text.lines().find(|l| l.split([' ', ':']).next() == Some(name))?;
        line.rsplit(':').next()?.trim().parse::<i64>().ok()
    };
    Some(Account {
        runtime_ns: field("dl.runtime")?,
        sleeps: field("nr_voluntary_switches")? as u64,
        switches: field("nr_switches")? as u64,
        ahead: Nanos::new((field("dl.deadline").unwrap_or(0) as u64).saturating_sub(now)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_of_four_weightless_budgets_makes_a_deadline_far() {
        let account =
            Account { runtime_ns: -1_928_338, sleeps: 1_673, switches: 1_949, ahead: Nanos::from_millis(4_299) };
        assert!(account.ahead > far(Nanos::from_millis(10), Instant::new(100_000_000_000)));
        assert!(account.ahead < far(Nanos::from_millis(1_000), Instant::ZERO), "ordinary with a period of 1 s");
        let months = Instant::new(30 * 24 * 3_600 * 1_000_000_000);
        assert_eq!(far(Nanos::from_millis(10), months), FAR);
    }

    #[test]
    fn an_overrun_is_read_with_its_sign() {
        let text = "player (7, #threads: 1)\nnr_switches                                  :                   12\n\
                    nr_voluntary_switches                        :                    9\n\
                    dl.runtime                                   :               -41234\n\
                    dl.deadline                                  :       19550099900463\n";
        let account = |now| in_sched(text, now).unwrap();
        let ahead = Nanos::new(10_000_000);
        assert_eq!(account(19_550_089_900_463), Account { runtime_ns: -41_234, sleeps: 9, switches: 12, ahead });
        let period = Nanos::from_millis(10);
        assert!(account(18_292_739_900_463).is_far(period) && !account(19_550_089_900_463).is_far(period));
        assert_eq!(account(u64::MAX).ahead, Nanos::ZERO);
    }

    #[test]
    fn a_thread_outside_the_class_has_no_account() {
        assert_eq!(in_sched("nr_switches : 1\nnr_voluntary_switches : 1\n", 0), None);
        assert_eq!(Reading::of(ThreadId(std::process::id() as i32)), Reading::NotReserved);
        assert_eq!(Reading::of(ThreadId(i32::MAX)), Reading::NotReserved);
    }
}
