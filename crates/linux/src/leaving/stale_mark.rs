//! Reserves a thread, and detects a thread that still has the throttled mark of an earlier reservation.
//!
//! A thread with a stale mark never runs. It usually has no budget when it enters the class; after `sched_yield` the
//! kernel marks a thread that has budget, too. Leaving again after its 0-lag time clears the mark. A thread that used
//! its budget between two of our calls, or that yielded, looks the same, but is refilled within one period. So this file
//! watches a suspicious thread for two periods. docs/design/0007 calls the clearing *washing*.

use std::io;

use qfabric_types::{Instant, Nanos, ThreadId};

use super::{Account, Reading};
use crate::sched_attr::SchedAttr;
use crate::{clock, threads};

/// Reserves `wanted` for `thread`, whose former attributes are `was`. Fails with EBUSY if the deadline of an earlier
/// reservation is far away, because the thread would not run until then. The returned account lets a later departure
/// find out if the thread ever ran. A returned watch means that the thread may have a stale mark.
pub(crate) fn enter(
    thread: ThreadId,
    wanted: SchedAttr,
    was: SchedAttr,
) -> io::Result<(Option<Account>, Option<Watch>)> {
    wanted.give(thread)?;
    let account = Reading::of(thread).known();
    if account.is_some_and(|a| a.is_far(Nanos::new(wanted.period_ns))) {
        let _ = SchedAttr::weightless().give(thread);
        was.give(thread)?;
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let suspicious = account.filter(|a| may_be_marked(a) && !threads::is_asleep(thread));
    Ok((account, suspicious.map(|a| Watch::begin(thread, a))))
}

/// True if a runnable thread in this state may wait for a refill that never comes. A thread that is to be refilled after
/// `sched_yield` has budget, and its deadline is still ahead. (0 is no budget, either.)
fn may_be_marked(account: &Account) -> bool {
    account.runtime_ns <= 0 || account.ahead == Nanos::ZERO
}

/// A reserved thread that was seen runnable, and without budget or after its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    since: Instant,
    switches: u64,
    cpu_ns: Option<u64>,
}

impl Watch {
    fn begin(thread: ThreadId, account: Account) -> Watch {
        Watch { since: clock::now(), switches: account.switches, cpu_ns: threads::cpu_time(thread) }
    }

    /// True if `thread` was runnable, but without budget or after its deadline, and did not run for more than two
    /// periods: it will never run again.
    pub(crate) fn is_stuck(watch: &mut Option<Watch>, thread: ThreadId, period: Nanos) -> bool {
        let seen = (!threads::is_asleep(thread)).then(|| Reading::of(thread).known()).flatten();
        let Some(account) = seen.filter(may_be_marked) else {
            *watch = None;
            return false;
        };
        let now = Watch::begin(thread, account);
        let first = *watch.get_or_insert(now);
        if (first.switches, first.cpu_ns) != (now.switches, now.cpu_ns) {
            *watch = Some(now);
            return false;
        }
        now.since.since(first.since) > period + period
    }

    /// Time of the next useful look.
    pub(crate) fn due(&self, period: Nanos) -> Instant {
        self.since + period + period + Nanos::from_micros(500)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(10);

    fn account(runtime_ns: i64, ahead: Nanos) -> Account {
        Account { runtime_ns, sleeps: 5, switches: 9, ahead }
    }

    #[test]
    fn a_thread_with_budget_is_suspicious_only_after_its_deadline() {
        assert!(!may_be_marked(&account(900_000, PERIOD)), "it runs, or is refilled at its deadline");
        assert!(may_be_marked(&account(900_000, Nanos::ZERO)), "it yielded, and no refill came");
        assert!(may_be_marked(&account(0, PERIOD)), "the kernel throttles at 0");
        assert!(may_be_marked(&account(-1, PERIOD)));
    }
}
