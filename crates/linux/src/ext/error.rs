//! The ways in which the scheduler can fail, each with its way out.

use qfabric_types::{Nanos, Share, ThreadId};

use super::ServerId;

/// Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtError {
    /// This kernel has no sched_ext that will do.
    #[error("Linux {release}: {why}; {instead}")]
    Unsupported {
        /// The running kernel.
        release: String,
        /// What it lacks.
        why: String,
        /// What to use instead.
        instead: String,
    },
    /// Another sched_ext scheduler is in charge.
    #[error("the sched_ext scheduler {name:?} is in charge of this host; stop it first")]
    Occupied {
        /// Its name.
        name: String,
    },
    /// The kernel refused it.
    #[error("cannot {what}: {why} (errno {errno}); {fix}")]
    Refused {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        errno: i32,
        /// What it means here.
        why: String,
        /// What to do.
        fix: String,
    },
    /// The scheduler is not in charge any more.
    #[error("the scheduler is gone ({reason}); every thread is under the kernel's own scheduler again: load it anew")]
    Gone {
        /// What the kernel says about it.
        reason: String,
    },
    /// A value outside what is possible.
    #[error("{what} {value} is outside {limits}; {fix}")]
    OutOfRange {
        /// Which value.
        what: &'static str,
        /// What was asked.
        value: String,
        /// What is possible.
        limits: String,
        /// What to do.
        fix: &'static str,
    },
    /// No CPU has so much left.
    #[error("{asked} of a CPU asked for, at most {free} is free on {place}; {fix}")]
    NoRoom {
        /// C/T.
        asked: Share,
        /// What is left.
        free: Share,
        /// Where.
        place: String,
        /// What to do.
        fix: &'static str,
    },
    /// There is no such CPU, or it is offline.
    #[error("CPU {cpu} is not online; choose one of {online}")]
    NoCpu {
        /// Which was asked for.
        cpu: u32,
        /// Those that are.
        online: String,
    },
    /// Every slot is taken.
    #[error("{limit} servers exist already; destroy some, or put several threads into one")]
    Full {
        /// The bound.
        limit: u32,
    },
    /// No server has this number.
    #[error("there is no server {}; create it first", .id.0)]
    NoServer {
        /// The number.
        id: ServerId,
    },
    /// The thread is over.
    #[error("thread {thread} is gone; forget it")]
    NoThread {
        /// Which.
        thread: ThreadId,
    },
    /// A real-time policy keeps the thread out of sched_ext's reach.
    #[error(
        "thread {thread} runs under {policy}, which precedes sched_ext; give it SCHED_OTHER first (chrt -o -p 0 {thread})"
    )]
    RealTime {
        /// Which.
        thread: ThreadId,
        /// Its policy.
        policy: &'static str,
    },
    /// The thread may not run where its server serves.
    #[error(
        "thread {thread} may run on CPUs {mask}, its server serves on CPU {cpu}; widen it (taskset -cp {cpu} {thread})"
    )]
    Affinity {
        /// Which.
        thread: ThreadId,
        /// Where it may run.
        mask: String,
        /// Where its server serves.
        cpu: u32,
    },
    /// The budget is over the period.
    #[error("service {service} is longer than its period {period}; ask for at most the period")]
    ServiceOverPeriod {
        /// C.
        service: Nanos,
        /// T.
        period: Nanos,
    },
}
