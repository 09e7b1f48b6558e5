//! A thread that is still marked as throttled from an earlier stay shows no budget on entering, and never runs.
//! Leaving again after its 0-lag time clears the mark. One that ran out of its budget between two of our calls shows
//! none either; it is refilled within a period. So a suspicious thread is watched for two.

use std::io;

use qfabric_types::{Instant, Nanos, ThreadId};

use super::{Account, Reading};
use crate::sched_attr::SchedAttr;
use crate::{clock, threads};

/// Reserves `wanted` for `thread`, which was under `was`: EBUSY where its deadline of an earlier stay is far away,
/// since it would stand still until then. The account tells a later departure whether it ever ran; the watch says that the
/// thread may be marked.
pub(crate) fn enter(
    thread: ThreadId,
    wanted: SchedAttr,
    was: SchedAttr,
) -> io::Result<(Option<Account>, Option<Watch>)> {
    wanted.give(thread)?;
    let account = Reading::of(thread).known();
    if account.is_some_and(|a| a.is_far()) {
        let _ = SchedAttr::weightless().give(thread);
        was.give(thread)?;
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let suspicious = account.filter(|a| a.runtime_ns < 0 && !threads::is_asleep(thread));
    Ok((account, suspicious.map(|a| Watch::begin(thread, a))))
}

/// A reserved thread that was seen runnable without budget.
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

    /// Whether `thread` has stood still, runnable and without budget, for more than two periods: nothing will wake it.
    pub fn is_stuck(watch: &mut Option<Watch>, thread: ThreadId, period: Nanos) -> bool {
        let seen = (!threads::is_asleep(thread)).then(|| Reading::of(thread).known()).flatten();
        let Some(account) = seen.filter(|a| a.runtime_ns < 0) else {
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

    /// When the next look is worth while.
    pub fn due(&self, period: Nanos) -> Instant {
        self.since + period + period + Nanos::from_micros(500)
    }
}
