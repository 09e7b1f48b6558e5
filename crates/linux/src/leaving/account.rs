//! What the kernel tells of a reserved thread's server: the budget that is left and how often the thread slept.
//!
//! Source 1 is `/proc/TID/sched` (every kernel since 6.15, earlier ones with CONFIG_SCHED_DEBUG). Source 2 is
//! `sched_getattr` with DL_DYNAMIC (Linux 7.1) beside `/proc/TID/status`. Times in nanoseconds.

use std::fs;

use qfabric_types::ThreadId;

use crate::sched_attr::{Policy, SchedAttr, remaining_ns};
use crate::threads;

/// The state of a reserved thread's server at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Budget left; negative after an overrun. As old as the last accounting: a tick, unless parameters were changed.
    pub runtime_ns: i64,
    /// How often the thread gave up its CPU by itself.
    pub sleeps: u64,
    /// How often it was switched off a CPU in all.
    pub switches: u64,
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
        let text = fs::read_to_string(threads::file(thread, "sched")).unwrap_or_default();
        if let Some(account) = in_sched(&text) {
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
    let runtime_ns = remaining_ns(thread).ok()?;
    let (sleeps, forced) = threads::switches(thread)?;
    Some(Account { runtime_ns, sleeps, switches: sleeps + forced })
}

fn in_sched(text: &str) -> Option<Account> {
    let field = |name: &str| {
        let line = text.lines().find(|l| l.split([' ', ':']).next() == Some(name))?;
        line.rsplit(':').next()?.trim().parse::<i64>().ok()
    };
    Some(Account {
        runtime_ns: field("dl.runtime")?,
        sleeps: field("nr_voluntary_switches")? as u64,
        switches: field("nr_switches")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_is_read_with_its_sign() {
        let text = "player (7, #threads: 1)\nnr_switches                                  :                   12\n\
                    nr_voluntary_switches                        :                    9\n\
                    dl.runtime                                   :               -41234\n";
        assert_eq!(in_sched(text), Some(Account { runtime_ns: -41_234, sleeps: 9, switches: 12 }));
    }

    #[test]
    fn a_thread_outside_the_class_has_no_account() {
        assert_eq!(in_sched("nr_switches : 1\nnr_voluntary_switches : 1\n"), None);
        assert_eq!(Reading::of(ThreadId(std::process::id() as i32)), Reading::NotReserved);
        assert_eq!(Reading::of(ThreadId(i32::MAX)), Reading::NotReserved);
    }
}
