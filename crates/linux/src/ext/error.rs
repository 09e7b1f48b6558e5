//! The ways in which the scheduler can fail, each with its way out.

use qfabric_types::api::Problem;
use qfabric_types::{Nanos, Share, ThreadId};

use super::ServerId;

/// Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum ExtError {
    /// This kernel has no sched_ext that will do.
    Unsupported {
        /// The running kernel.
        release: String,
        /// What it lacks.
        why: String,
        /// What to use instead.
        instead: String,
    },
    /// Another sched_ext scheduler is in charge.
    Occupied {
        /// Its name.
        name: String,
    },
    /// The kernel refused it.
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
    Gone {
        /// What the kernel says about it.
        reason: String,
    },
    /// A value outside what is possible.
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
    NoCpu {
        /// Which was asked for.
        cpu: u32,
        /// Those that are.
        online: String,
    },
    /// Every slot is taken.
    Full {
        /// The bound.
        limit: u32,
    },
    /// No server has this number.
    NoServer {
        /// The number.
        id: ServerId,
    },
    /// The thread is over.
    NoThread {
        /// Which.
        thread: ThreadId,
    },
    /// A real-time policy keeps the thread out of sched_ext's reach.
    RealTime {
        /// Which.
        thread: ThreadId,
        /// Its policy.
        policy: &'static str,
    },
    /// The thread may not run where its server serves.
    Affinity {
        /// Which.
        thread: ThreadId,
        /// Where it may run.
        mask: String,
        /// Where its server serves.
        cpu: u32,
    },
    /// The budget is over the period.
    ServiceOverPeriod {
        /// C.
        service: Nanos,
        /// T.
        period: Nanos,
    },
}

impl ExtError {
    /// What happened, and what to do about it.
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
                format!("the scheduler is gone ({reason})"),
                "every thread is under the kernel's own scheduler again: load it anew",
            ),
            ExtError::OutOfRange { what, value, limits, fix } => {
                Problem::new("mechanism", format!("{what} {value} is outside {limits}"), *fix)
            }
            ExtError::NoRoom { asked, free, place, fix } => Problem::new(
                "mechanism",
                format!("{asked} of a CPU asked for, at most {free} is free on {place}"),
                *fix,
            ),
            ExtError::NoCpu { cpu, online } => {
                Problem::new("mechanism", format!("CPU {cpu} is not online"), format!("choose one of {online}"))
            }
            ExtError::Full { limit } => Problem::new(
                "mechanism",
                format!("{limit} servers exist already"),
                "destroy some, or put several threads into one",
            ),
            ExtError::NoServer { id } => {
                Problem::new("mechanism", format!("there is no server {}", id.0), "create it first")
            }
            ExtError::NoThread { thread } => Problem::new("mechanism", format!("thread {thread} is gone"), "forget it"),
            ExtError::RealTime { thread, policy } => Problem::new(
                "mechanism",
                format!("thread {thread} runs under {policy}, which precedes sched_ext"),
                format!("give it SCHED_OTHER first (chrt -o -p 0 {thread})"),
            ),
            ExtError::Affinity { thread, mask, cpu } => Problem::new(
                "mechanism",
                format!("thread {thread} may run on CPUs {mask}, its server serves on CPU {cpu}"),
                format!("widen it (taskset -cp {cpu} {thread})"),
            ),
            ExtError::ServiceOverPeriod { service, period } => Problem::new(
                "mechanism",
                format!("service {service} is longer than its period {period}"),
                "ask for at most the period",
            ),
        }
    }
}
