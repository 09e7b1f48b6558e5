//! What the kernel tells of a reserved thread's server: the budget that is left and how often the thread slept.
//!
//! Source 1 is `/proc/TID/sched` (every kernel since 6.15, earlier ones with CONFIG_SCHED_DEBUG). Source 2 is
//! `sched_getattr` with DL_DYNAMIC (Linux 7.1) beside `/proc/TID/status`. Times in nanoseconds.

use qfabric_types::{Nanos, ThreadId};

use crate::files;
use crate::sched_attr::{Policy, SchedAttr, remaining};
use crate::{clock, sched_attr, threads};

/// A deadline farther away than this is that of a weightless thread which overran: each 1,024 ns of its debt moved the
/// deadline by 1.1 s. (The clocks that are compared here may differ by seconds after months.)
const FAR: Nanos = Nanos::from_millis(10_000);

/// The state of a reserved thread's server at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Budget left; negative after an overrun. As old as the last accounting: a tick, unless parameters were changed.
    pub runtime_ns: i64,
    /// How often the thread gave up its CPU by itself.
    pub sleeps: u64,
    /// How often it was switched off a CPU in all.
    pub switches: u64,
    /// How far away its deadline is; zero where it is past.
    pub ahead: Nanos,
}

impl Account {
    /// Whether it would hardly run before its deadline, seconds to hours from now, whatever it is given: parameters change,
    /// the deadline stays. Its 0-lag time is as far away, so it may leave weightless only.
    pub fn is_far(&self) -> bool {
        self.ahead > FAR
    }
}

/// The answer to a look at a thread's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The thread is gone, or outside SCHED_DEADLINE.
    NotReserved,
    /// The thread is reserved, and this kernel does not tell what is left.
    Hidden,
    /// The thread is reserved.
    Known(Account),
}

impl Reading {
    /// Looks at `thread` now.
    pub fn of(thread: ThreadId) -> Reading {
        let text = files::text(threads::file(thread, "sched")).unwrap_or_default();
        if let Some(account) = in_sched(&text, clock::raw().get()) {
            return Reading::Known(account);
        }
        if SchedAttr::of(thread).map(|a| a.policy).ok() != Some(Policy::DEADLINE) {
            return Reading::NotReserved;
        }
        by_getattr(thread).map_or(Reading::Hidden, Reading::Known)
    }

    /// What is known, if anything is.
    pub fn known(self) -> Option<Account> {
        match self {
            Reading::Known(account) => Some(account),
            _ => None,
        }
    }
}

/// How often `thread` gave up its CPU by itself, in or outside of the class.
pub(crate) fn sleeps(thread: ThreadId) -> Option<u64> {
    threads::switches(thread).map(|(sleeps, _)| sleeps)
}

fn by_getattr(thread: ThreadId) -> Option<Account> {
    let (runtime_ns, (_, deadline)) = (sched_attr::remaining_ns(thread).ok()?, remaining(thread).ok()?);
    let (sleeps, forced) = threads::switches(thread)?;
    Some(Account { runtime_ns, sleeps, switches: sleeps + forced, ahead: deadline.since(clock::now()) })
}

/// `now` is that of the run queues' clock, which no time server slews.
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
    fn an_overrun_is_read_with_its_sign() {
        let text = "player (7, #threads: 1)\nnr_switches                                  :                   12\n\
                    nr_voluntary_switches                        :                    9\n\
                    dl.runtime                                   :               -41234\n\
                    dl.deadline                                  :       19550099900463\n";
        let account = |now| in_sched(text, now).unwrap();
        let ahead = Nanos::new(10_000_000);
        assert_eq!(account(19_550_089_900_463), Account { runtime_ns: -41_234, sleeps: 9, switches: 12, ahead });
        assert!(account(18_292_739_900_463).is_far() && !account(19_550_089_900_463).is_far());
        assert_eq!(account(u64::MAX).ahead, Nanos::ZERO);
    }

    #[test]
    fn a_thread_outside_the_class_has_no_account() {
        assert_eq!(in_sched("nr_switches : 1\nnr_voluntary_switches : 1\n", 0), None);
        assert_eq!(Reading::of(ThreadId(std::process::id() as i32)), Reading::NotReserved);
        assert_eq!(Reading::of(ThreadId(i32::MAX)), Reading::NotReserved);
    }
}
