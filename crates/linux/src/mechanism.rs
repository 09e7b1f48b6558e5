//! The interface of all mechanisms that apply reservations, and the errors that it can return.
//!
//! A refusal changes nothing: the thread keeps its former reservation.

use std::os::fd::OwnedFd;

use qfabric_types::api::{DispatchTableStatus, Problem};
use qfabric_types::{DispatchRules, Instant, MechanismFeatures, MechanismName, ServerCounts, Setting, Share, ThreadId};
use rustix::thread::CapabilitySet;

use crate::cpus::CpuList;
use crate::ext::{self, Ext};
use crate::{capability, capacity, dispatcher};

/// Applies settings to threads of this host.
pub trait Mechanism {
    /// Name, as in `--mechanism` and in the output of `doctor`.
    fn name(&self) -> &'static str;

    /// Gives the thread its reservation from the next replenishment on. `None` restores exactly the attributes before
    /// the first reservation, or begins to do so ([`Mechanism::next_step`]). If this fails, the thread keeps its former
    /// reservation.
    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError>;

    /// Forgets a thread that has ended, without touching another thread that has its id now.
    fn forget(&mut self, thread: ThreadId);

    /// Call this when a covered thread started another one. Gives the child the nice value and fair policy that its
    /// parent had before its reservation, as the child would have inherited them then. (RESET_ON_FORK starts the child
    /// at nice 0.) Does nothing if the parent is not reserved, or was under a real-time policy before.
    fn born(&mut self, _child: ThreadId, _parent: ThreadId) {}

    /// The thread has finished the job that was released at `_release`, and needs no more time in the period of this
    /// release. Without effect unless the mechanism gives slots, and in a later period.
    fn yielded(&mut self, _thread: ThreadId, _release: Instant) {}

    /// Checks the reserved threads; call it about once a second. Returns the threads that the kernel no longer ran and
    /// that run again now.
    fn tend(&mut self) -> Vec<ThreadId> {
        Vec::new()
    }

    /// Time of the next call of [`Mechanism::advance`]. `None` if no thread is leaving its reservation.
    fn next_step(&self) -> Option<Instant> {
        None
    }

    /// True if the thread is being put back and is still under its reservation.
    fn is_leaving(&self, _thread: ThreadId) -> bool {
        false
    }

    /// Continues the departures that are due at `now`; never waits. Returns the errors of threads that cannot be put
    /// back.
    fn advance(&mut self, _now: Instant) -> Vec<ApplyError> {
        Vec::new()
    }

    /// Number of reservations that the kernel accepted for threads that were gone immediately afterwards. If a thread
    /// dies within the call, before the kernel books it, its bandwidth stays booked with no owner: no later call can
    /// reach the thread.
    fn given_to_the_gone(&self) -> u64 {
        0
    }

    /// Features beyond one budget per thread. The mechanism refuses all others with [`ApplyError::Incapable`].
    fn features(&self) -> MechanismFeatures {
        MechanismFeatures::default()
    }

    /// True if the thread sleeps and its server owes no time. A decrease then frees bandwidth at once, and the smaller
    /// budget pays for no overrun. `false` if the mechanism cannot find out.
    fn is_at_rest(&self, _thread: ThreadId) -> bool {
        false
    }

    /// Bandwidth that can be promised in total, if the mechanism decides it; `None`: the kernel's admission control
    /// decides.
    fn capacity(&self) -> Option<Share> {
        None
    }

    /// Reports an event that is pending for the thread: its server is favoured until the thread has run, or until
    /// `deadline`. Returns `true` if a server is favoured because of this call.
    fn raise(&mut self, _thread: ThreadId, _deadline: Option<Instant>) -> bool {
        false
    }

    /// The memory by which handlers in the kernel raise events themselves (`struct qf_raised`), if the mechanism has
    /// one.
    fn raised_memory(&self) -> Option<OwnedFd> {
        None
    }

    /// The memory of [`ext::SchedulerClock`], if the mechanism asks for clocks itself.
    fn clock_memory(&self) -> Option<OwnedFd> {
        None
    }

    /// Place in that memory at which events for the thread are raised; `None` if events favour no server of the thread.
    fn raised_for(&self, _thread: ThreadId) -> Option<RaiseTarget> {
        None
    }

    /// Counters of the thread's server, if it has any.
    fn counts(&self, _thread: ThreadId) -> Option<ServerCounts> {
        None
    }

    /// The dispatch tables in force, if the mechanism has such tables.
    fn dispatch_tables(&self) -> Vec<DispatchTableStatus> {
        Vec::new()
    }

    /// The present scheduling deadline of the thread's server, if the mechanism can read it. Immediately after the end
    /// of a job, it is AQuoSA's virtual finishing time.
    fn server_deadline(&mut self, _thread: ThreadId) -> Option<Instant> {
        None
    }

    /// The reason, if the kernel has ejected the mechanism. Every thread is then back under the normal scheduler, and
    /// the mechanism accepts no setting any more.
    fn ejected(&mut self) -> Option<String> {
        None
    }

    /// Puts every thread back. Returns the errors of those that could not be put back; ended threads are not an error.
    fn restore_all(&mut self) -> Vec<ApplyError>;
}

/// The mechanisms other than the one in force that this machine and this process can use, with their features.
/// `rules`: those of the dispatcher. Probes the kernel; call it at the start, before any admission.
pub fn alternatives(in_force: &str, rules: DispatchRules) -> Vec<(MechanismName, MechanismFeatures)> {
    let may_load = || capability::held(CapabilitySet::BPF) && capability::held(CapabilitySet::PERFMON);
    let is_usable = |name: MechanismName| match name {
        MechanismName::Ext => Ext::supported().is_ok() && may_load(),
        MechanismName::Dispatcher => dispatcher::supported().is_ok(),
        MechanismName::Deadline => capacity::probe().is_ok_and(|free| free > Share::ZERO),
        MechanismName::Auto => false,
    };
    let features = |name: MechanismName| match name {
        MechanismName::Ext => ext::features(Vec::new()),
        MechanismName::Dispatcher => MechanismFeatures { slots: Some(rules), ..MechanismFeatures::default() },
        MechanismName::Deadline | MechanismName::Auto => MechanismFeatures::default(),
    };
    let others = MechanismName::ALL.into_iter().filter(|name| name.name() != in_force);
    others.filter(|name| is_usable(*name)).map(|name| (name, features(name))).collect()
}

/// A server, as named by handlers in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseTarget {
    /// Number of the server, from 1.
    pub slot: u32,
    /// CPU of the server.
    pub cpu: u32,
}

/// Why a setting was not applied. The thread keeps its former reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum ApplyError {
    /// The kernel's admission test failed because too much is booked now, or the thread was put back recently and must
    /// rest (at most one second). Try again.
    Busy { thread: ThreadId, asked: Share },
    /// The thread has ended, or its id belongs to another thread now.
    Gone { thread: ThreadId },
    /// SCHED_DEADLINE accepts only threads that may run on every CPU of their root domain; a server on one CPU only
    /// threads that may run there.
    Affinity {
        thread: ThreadId,
        /// CPUs on which the thread may run.
        mask: CpuList,
        /// CPUs of its root domain, or the CPU of its server.
        needed: CpuList,
    },
    /// The dispatch table of the CPU has no slots for it.
    NoSlots {
        thread: ThreadId,
        why: String,
        /// Next step.
        fix: String,
    },
    /// The kernel refused the call for another reason.
    Denied {
        thread: ThreadId,
        errno: i32,
        /// Cause on this host.
        why: String,
        /// Next step.
        fix: String,
    },
    /// The program itself put this thread under a real-time policy.
    Foreign { thread: ThreadId, policy: &'static str },
    /// The mechanism does not have an ability that the setting requires.
    Incapable { thread: ThreadId, mechanism: &'static str, what: &'static str },
    /// The kernel has ejected the mechanism: all threads run under the default scheduler.
    Ejected { thread: ThreadId, reason: String },
    /// The limit of tracked threads is reached.
    Full { thread: ThreadId, limit: usize },
}

impl ApplyError {
    pub fn problem(&self) -> Problem {
        match self {
            ApplyError::Busy { thread, asked } => Problem::new(
                "busy",
                format!("thread {thread}: the kernel cannot book {asked} now"),
                "reduce other reservations, or try again after one period of the threads that left (their bandwidth stays \
                 booked until then)",
            ),
            ApplyError::Gone { thread } => {
                Problem::new("no_such_thread", format!("thread {thread} has ended"), "stop using this id")
            }
            ApplyError::Affinity { thread, mask, needed } if needed.len() == 1 => Problem::new(
                "affinity",
                format!("thread {thread} may run on CPUs {mask}, but its server is on CPU {needed}"),
                format!(
                    "allow that CPU (taskset -cp {needed} {thread}), or pin the program before it is reserved: the server \
                     is then on one of its CPUs"
                ),
            ),
            ApplyError::Affinity { thread, mask, needed } => Problem::new(
                "affinity",
                format!(
                    "thread {thread} may run on CPUs {mask}, but a reservation needs all CPUs of its root domain ({needed})"
                ),
                for_pinned(*thread, mask, needed),
            ),
            ApplyError::NoSlots { thread, why, fix } => {
                Problem::new("no_slots", format!("thread {thread}: {why}"), fix)
            }
            ApplyError::Denied { thread, errno, why, fix } => Problem::new(
                "mechanism",
                format!("thread {thread}: the kernel refused the call (errno {errno}): {why}"),
                fix,
            ),
            ApplyError::Foreign { thread, policy } => Problem::new(
                "foreign",
                format!("thread {thread} runs under {policy}, which its program chose itself, and is left alone"),
                "to reserve it, start the program without its own real-time option",
            ),
            ApplyError::Incapable { thread, mechanism, what } => Problem::new(
                "unavailable",
                format!("thread {thread}: the mechanism {mechanism} cannot give {what}"),
                "use --mechanism ext (Linux 6.19 or newer), or do without it",
            ),
            ApplyError::Ejected { thread, reason } => Problem::new(
                "unavailable",
                format!("thread {thread}: the kernel ejected the scheduler ({reason})"),
                "read the log of the service, and restart the service",
            ),
            ApplyError::Full { thread, limit } => Problem::new(
                "full",
                format!("thread {thread}: {limit} threads are already reserved, which is the limit"),
                "end some reservations, or reserve whole processes",
            ),
        }
    }
}

/// The next steps for a thread that may not run on all CPUs of its root domain.
fn for_pinned(thread: ThreadId, mask: &CpuList, needed: &CpuList) -> String {
    format!(
        "allow all of them (taskset -cp {needed} {thread}), or make a cpuset partition of CPUs {mask} \
         (cpuset.cpus.partition = root) and move the thread there, or reserve slots of one CPU: set mechanism.name = \
         \"dispatcher\" in the daemon's configuration, or stop the daemon and use --mechanism dispatcher; then ask for a fixed \
         service (--period T --service C)"
    )
}

impl ApplyError {
    /// The error number of the kernel with the same meaning.
    pub fn errno(&self) -> i32 {
        match self {
            ApplyError::Busy { .. } => libc::EBUSY,
            ApplyError::Gone { .. } => libc::ESRCH,
            ApplyError::Affinity { .. } => libc::EPERM,
            ApplyError::NoSlots { .. } => libc::ENOSPC,
            ApplyError::Denied { errno, .. } => *errno,
            ApplyError::Foreign { .. } => libc::EEXIST,
            ApplyError::Incapable { .. } => libc::EOPNOTSUPP,
            ApplyError::Ejected { .. } => libc::ENODEV,
            ApplyError::Full { .. } => libc::ENOSPC,
        }
    }

    pub fn thread(&self) -> ThreadId {
        match *self {
            ApplyError::Busy { thread, .. }
            | ApplyError::Gone { thread }
            | ApplyError::Affinity { thread, .. }
            | ApplyError::NoSlots { thread, .. }
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
    fn a_refusal_names_the_thread_the_values_and_the_next_step() {
        let error = ApplyError::Affinity {
            thread: ThreadId(7),
            mask: CpuList::parse("0").unwrap(),
            needed: CpuList::parse("0-1").unwrap(),
        };
        let text = error.to_string();
        for part in [
            "thread 7",
            "CPUs 0,",
            "0-1",
            "taskset -cp 0-1 7",
            "cpuset.cpus.partition",
            "mechanism.name = \"dispatcher\"",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert_eq!(error.errno(), libc::EPERM);
        assert_eq!(error.thread(), ThreadId(7));
    }
}
