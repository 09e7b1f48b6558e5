//! Errors of the scheduler, each with the next step.

use qfabric_types::api::Problem;
use qfabric_types::{Nanos, Share, ThreadId};

use super::ServerId;

/// An error of the scheduler. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum ExtError {
    /// This kernel has no usable sched_ext.
    Unsupported {
        release: String,
        /// The missing ability.
        why: String,
        /// An alternative.
        instead: String,
    },
    Occupied {
        name: String,
    },
    /// The kernel refused a call.
    Refused {
        /// The attempted operation, after «cannot».
        what: String,
        errno: i32,
        /// The cause.
        why: String,
        /// Next step.
        fix: String,
    },
    /// The scheduler is no longer in charge.
    Gone {
        /// The kernel's message.
        reason: String,
    },
    OutOfRange {
        what: &'static str,
        value: String,
        limits: String,
        /// Next step.
        fix: &'static str,
    },
    /// No CPU has enough bandwidth left.
    NoRoom {
        /// C/T.
        asked: Share,
        free: Share,
        /// The CPU, as text.
        place: String,
        /// Next step.
        fix: &'static str,
    },
    /// The CPU does not exist or is offline.
    NoCpu {
        cpu: u32,
        online: String,
    },
    /// All slots are in use.
    Full {
        limit: u32,
    },
    NoServer {
        id: ServerId,
    },
    /// The thread has ended.
    NoThread {
        thread: ThreadId,
    },
    /// The thread has a real-time policy, which precedes sched_ext.
    RealTime {
        thread: ThreadId,
        policy: &'static str,
    },
    /// The thread may not run on the CPU of its server.
    Affinity {
        thread: ThreadId,
        /// CPUs on which the thread may run.
        mask: String,
        /// CPU of the server.
        cpu: u32,
    },
    /// The service is longer than the period.
    ServiceOverPeriod {
        /// C.
        service: Nanos,
        /// T.
        period: Nanos,
    },
}

impl ExtError {
    pub fn problem(&self) -> Problem {
        match self {
            ExtError::Unsupported { release, why, instead } => {
                Problem::new("mechanism", format!("Linux {release}: {why}"), instead)
            }
            ExtError::Occupied { name } => Problem::new(
                "mechanism",
                format!("the sched_ext scheduler {name:?} is in charge of this host"),
                "stop it first",
            ),
            ExtError::Refused { what, errno, why, fix } => {
                Problem::new("mechanism", format!("cannot {what}: {why} (errno {errno})"), fix)
            }
            ExtError::Gone { reason } => Problem::new(
                "mechanism",
                format!("the scheduler is no longer in charge ({reason})"),
                "all threads run under the kernel's own scheduler; load the scheduler again",
            ),
            ExtError::OutOfRange { what, value, limits, fix } => {
                Problem::new("mechanism", format!("{what} {value} is outside the range {limits}"), *fix)
            }
            ExtError::NoRoom { asked, free, place, fix } => {
                Problem::new("mechanism", format!("{asked} requested, but only {free} is free on {place}"), *fix)
            }
            ExtError::NoCpu { cpu, online } => Problem::new(
                "mechanism",
                format!("CPU {cpu} is not online"),
                format!("choose one of the CPUs {online}"),
            ),
            ExtError::Full { limit } => Problem::new(
                "mechanism",
                format!("{limit} servers already exist, which is the limit"),
                "destroy some servers, or put several threads into one server",
            ),
            ExtError::NoServer { id } => {
                Problem::new("mechanism", format!("there is no server {}", id.0), "create the server first")
            }
            ExtError::NoThread { thread } => {
                Problem::new("mechanism", format!("thread {thread} has ended"), "stop using this id")
            }
            ExtError::RealTime { thread, policy } => Problem::new(
                "mechanism",
                format!("thread {thread} runs under {policy}, which precedes sched_ext"),
                format!("put it under SCHED_OTHER first (chrt -o -p 0 {thread})"),
            ),
            ExtError::Affinity { thread, mask, cpu } => Problem::new(
                "mechanism",
                format!("thread {thread} may run on CPUs {mask}, but its server is on CPU {cpu}"),
                format!("allow that CPU (taskset -cp {cpu} {thread})"),
            ),
            ExtError::ServiceOverPeriod { service, period } => Problem::new(
                "mechanism",
                format!("service {service} is longer than the period {period}"),
                "request at most the period",
            ),
        }
    }
}
