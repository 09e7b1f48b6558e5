//! What every mechanism that carries reservations out can do, and the ways in which it can fail.
//!
//! A refusal changes nothing: the thread keeps the reservation it had.

use std::os::fd::OwnedFd;

use qfabric_types::api::Problem;
use qfabric_types::{Abilities, Instant, ServerCounts, Setting, Share, ThreadId};

use crate::cpus::CpuList;

/// Carries settings out on threads of this host.
pub trait Mechanism {
    /// Its name, as `--mechanism` and `doctor` say it.
    fn name(&self) -> &'static str;

    /// Gives the thread its reservation from the next replenishment on; `None` puts it back exactly as it
    /// was before the first reservation, or begins to ([`Mechanism::next_step`]). On an error the thread keeps what
    /// it had.
    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError>;

    /// Forgets a thread that is over, without touching whoever has its number now.
    fn forget(&mut self, thread: ThreadId);

    /// A covered thread made another: gives the child the nice value and fair policy that its parent had before
    /// it was reserved, as it would have inherited them then. (RESET_ON_FORK starts it at nice 0.) Nothing
    /// happens where the parent is not reserved, or was real-time before.
    fn born(&mut self, _child: ThreadId, _parent: ThreadId) {}

    /// Looks after the threads under reservation: call it about once a second. Answers the threads that the
    /// kernel had forgotten and that run again now.
    fn tend(&mut self) -> Vec<ThreadId> {
        Vec::new()
    }

    /// When [`Mechanism::advance`] is to be called next: a thread is on its way back. `None`: nobody is.
    fn next_step(&self) -> Option<Instant> {
        None
    }

    /// Whether the thread is on its way back, and under its reservation still.
    fn is_leaving(&self, _thread: ThreadId) -> bool {
        false
    }

    /// Goes on with what is due at `now`, without waiting for anything. Answers threads that cannot be put back.
    fn advance(&mut self, _now: Instant) -> Vec<ApplyError> {
        Vec::new()
    }

    /// What it can do beyond one budget per thread. What it cannot, it refuses with [`ApplyError::Incapable`].
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Whether the thread sleeps and its server owes nothing: then what is taken from it is free at once, and nothing
    /// of an overrun is left to be paid from the smaller budget. `false` where that cannot be known.
    fn is_at_rest(&self, _thread: ThreadId) -> bool {
        false
    }

    /// How much may be promised in all, where the mechanism itself decides that; `None`: what the kernel admits.
    fn capacity(&self) -> Option<Share> {
        None
    }

    /// An event is pending for the thread: its server is favoured until it has run, or until `deadline`.
    /// Answers whether anybody is favoured by it.
    fn raise(&mut self, _thread: ThreadId, _deadline: Option<Instant>) -> bool {
        false
    }

    /// The memory by which handlers in the kernel raise events themselves (`struct qf_raised`), where there is such.
    fn raised_memory(&self) -> Option<OwnedFd> {
        None
    }

    /// Where in that memory events for the thread are raised; `None`: nobody is favoured by them.
    fn raised_for(&self, _thread: ThreadId) -> Option<RaiseTarget> {
        None
    }

    /// What the server of the thread counted so far, where it has one that counts.
    fn counts(&self, _thread: ThreadId) -> Option<ServerCounts> {
        None
    }

    /// The scheduling deadline that the thread's server has now (AQuoSA's virtual finishing time, when a job has just
    /// ended), where the mechanism can tell.
    fn server_deadline(&mut self, _thread: ThreadId) -> Option<Instant> {
        None
    }

    /// Why the kernel has thrown the mechanism out, if it has: then every thread is back under the normal
    /// scheduler, and nothing can be set any more.
    fn ejected(&mut self) -> Option<String> {
        None
    }

    /// Puts every thread back; answers those that could not be, with the reason. Gone threads are no failure.
    fn restore_all(&mut self) -> Vec<ApplyError>;
}

/// A server, as handlers in the kernel name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseTarget {
    /// Its number, from 1 on.
    pub slot: u32,
    /// On which CPU it serves.
    pub cpu: u32,
}

/// Why a setting was not carried out. The thread keeps what it had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum ApplyError {
    /// The kernel's own admission test: too much is booked at this moment; or the thread was put back a moment
    /// ago and must rest (at most a second). Try again.
    Busy {
        /// Which thread.
        thread: ThreadId,
        /// What it would have got.
        asked: Share,
    },
    /// The thread is over, or its number belongs to another thread by now.
    Gone {
        /// Which thread.
        thread: ThreadId,
    },
    /// SCHED_DEADLINE needs a thread that may run on every CPU of its root domain.
    Affinity {
        /// Which thread.
        thread: ThreadId,
        /// Where it may run.
        mask: CpuList,
        /// The span of its root domain.
        needed: CpuList,
    },
    /// The kernel says no for another reason.
    Denied {
        /// Which thread.
        thread: ThreadId,
        /// What the kernel answered.
        errno: i32,
        /// What that means here.
        why: String,
        /// What to do.
        fix: String,
    },
    /// The program gave this thread a real-time policy itself.
    Foreign {
        /// Which thread.
        thread: ThreadId,
        /// Its policy.
        policy: &'static str,
    },
    /// The setting asks for what this mechanism cannot do.
    Incapable {
        /// Which thread.
        thread: ThreadId,
        /// Which mechanism.
        mechanism: &'static str,
        /// What it cannot give.
        what: &'static str,
    },
    /// The kernel has thrown the mechanism out: everything runs under the default scheduler.
    Ejected {
        /// Which thread.
        thread: ThreadId,
        /// What the kernel said.
        reason: String,
    },
    /// More threads than are kept track of.
    Full {
        /// Which thread.
        thread: ThreadId,
        /// The bound.
        limit: usize,
    },
}

impl ApplyError {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            ApplyError::Busy { thread, asked } => Problem::new(
                "busy",
                format!("thread {thread}: the kernel has no room for {asked} now"),
                "shrink other reservations first, or retry after one period of whoever left (their bandwidth stays booked until then)",
            ),
            ApplyError::Gone { thread } => {
                Problem::new("no_such_thread", format!("thread {thread} is gone"), "forget it")
            }
            ApplyError::Affinity { thread, mask, needed } => Problem::new(
                "affinity",
                format!("thread {thread} may run on CPUs {mask}, but a reservation needs all of {needed}"),
                format!(
                    "widen it (taskset -cp {needed} {thread}) or give CPUs {mask} a cpuset partition of their own (cpuset.cpus.partition = root) and move it there"
                ),
            ),
            ApplyError::Denied { thread, errno, why, fix } => {
                Problem::new("mechanism", format!("thread {thread}: refused (errno {errno}), {why}"), fix)
            }
            ApplyError::Foreign { thread, policy } => Problem::new(
                "foreign",
                format!("thread {thread} runs under {policy}, which its program chose itself, and is left alone"),
                "to have it reserved instead, start the program without its own real-time option",
            ),
            ApplyError::Incapable { thread, mechanism, what } => Problem::new(
                "unavailable",
                format!("thread {thread}: the mechanism {mechanism} cannot give {what}"),
                "use --mechanism ext (kernel 6.19 or newer), or leave that out",
            ),
            ApplyError::Ejected { thread, reason } => Problem::new(
                "unavailable",
                format!("thread {thread}: the kernel ended the scheduler ({reason})"),
                "see the service's log, and start it again",
            ),
            ApplyError::Full { thread, limit } => Problem::new(
                "full",
                format!("thread {thread}: {limit} threads are under reservation already"),
                "release some, or reserve per process",
            ),
        }
    }
}

impl ApplyError {
    /// The kernel's error number that says the same.
    pub fn errno(&self) -> i32 {
        match self {
            ApplyError::Busy { .. } => libc::EBUSY,
            ApplyError::Gone { .. } => libc::ESRCH,
            ApplyError::Affinity { .. } => libc::EPERM,
            ApplyError::Denied { errno, .. } => *errno,
            ApplyError::Foreign { .. } => libc::EEXIST,
            ApplyError::Incapable { .. } => libc::EOPNOTSUPP,
            ApplyError::Ejected { .. } => libc::ENODEV,
            ApplyError::Full { .. } => libc::ENOSPC,
        }
    }

    /// Which thread it is about.
    pub fn thread(&self) -> ThreadId {
        match *self {
            ApplyError::Busy { thread, .. }
            | ApplyError::Gone { thread }
            | ApplyError::Affinity { thread, .. }
            | ApplyError::Denied { thread, .. }
            | ApplyError::Foreign { thread, .. }
            | ApplyError::Incapable { thread, .. }
            | ApplyError::Ejected { thread, .. }
            | ApplyError::Full { thread, .. } => thread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_thread_the_values_and_the_way_out() {
        let error = ApplyError::Affinity {
            thread: ThreadId(7),
            mask: CpuList::parse("0").unwrap(),
            needed: CpuList::parse("0-1").unwrap(),
        };
        let text = error.to_string();
        for part in ["thread 7", "CPUs 0,", "0-1", "taskset -cp 0-1 7", "cpuset.cpus.partition"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert_eq!(error.errno(), libc::EPERM);
        assert_eq!(error.thread(), ThreadId(7));
    }
}
