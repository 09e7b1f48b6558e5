//! ECalls: an application's code, run by the kernel where an event happens, and the event's way to the
//! application.
//!
//! | question | module |
//! |---|---|
//! | which events are there, with which fields | [`services`], one short file each |
//! | put a chain of steps at a service | [`Kernel::install`] |
//! | memory that kernel and application share | [`UpMemory`], [`DownMemory`] |
//! | events for steps in user space | [`EventRing`] |
//! | servers of the CPU scheduler favoured by events | [`Step::Favour`], [`Aim`] |
//! | which sockets are ready, without a system call | [`SocketModule`] |
//! | E-code run by the kernel on demand | [`KernelEngine`] |
//! | a real-time signal with data | [`signal_queue`] |
//!
//! Everything lives as long as its descriptors: nothing is pinned, so that whatever an owner had put into the
//! kernel is gone when it drops it, or dies.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use qfabric_ecode::{Fault, Limits, Program};
use qfabric_types::Nanos;
use qfabric_types::api::Problem;

mod assemble;
mod delivery;
mod engine;
mod favour;
mod handler;
mod kernel;
mod memory;
mod options;
mod reads;
mod ring;
pub mod services;
mod signal;
mod socket;
mod source;
mod state;
mod wake;

pub use engine::KernelEngine;
pub use favour::Aim;
pub use handler::Installed;
pub use kernel::Kernel;
pub use memory::{DownMemory, UpMemory};
pub use ring::{EventRing, Record};
pub use services::{OptionSpec, Service};
pub use signal::signal_queue;
pub use socket::{SocketModule, bind_socket, bind_socket_as};

/// This kernel, or this process, cannot do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Unsupported {
    /// What is missing.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// A step that is carried out in the kernel, or hands over to user space.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Runs a program on the event; its output, if it has one, is the event from here on; verdict 0 ends the
    /// chain. Attributes are words of the installation's [`DownMemory`], by their numbers in the program.
    Handler(&'a Program),
    /// Puts the event into shared memory. With [`qfabric_types::memory::Layout::Bits`], `position` names the
    /// event's field that says where; none: the next free slot.
    Memory {
        /// Where to.
        memory: &'a UpMemory,
        /// The field that names the slot.
        position: Option<&'a str>,
    },
    /// Favours servers of the CPU scheduler.
    Favour {
        /// The scheduler's memory for that ([`crate::mechanism::Mechanism::raised_memory`]).
        raised: BorrowedFd<'a>,
        /// Whose.
        aim: &'a Aim,
    },
    /// Hands the event to user space: a record with this number goes to the ring. The last step.
    Tail {
        /// Which ring.
        ring: &'a EventRing,
        /// The subscription.
        id: u64,
    },
}

/// What is to be installed.
#[derive(Clone, Debug)]
pub struct Install<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Its options, as [`Service::options`] lists them.
    pub options: &'a BTreeMap<String, String>,
    /// Only events of this process (its id in the initial PID namespace).
    pub only_pid: Option<i32>,
    /// In order. A verdict 0 ends the chain.
    pub steps: &'a [Step<'a>],
    /// Bounds of each call.
    pub limits: Limits,
    /// The application session's attributes; none: memory of its own.
    pub down: Option<&'a DownMemory>,
    /// Events are of use for so long; none: always.
    pub deadline: Option<Nanos>,
    /// After a handler's fault the event passes on, as the handler left it; otherwise it is blocked.
    pub fault_passes: bool,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InstallError {
    /// There is no such service.
    UnknownService {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
    /// The service cannot be had here.
    Unavailable {
        /// Which.
        service: String,
        /// Why not, and what to do.
        why: Unsupported,
    },
    /// An option is unknown, missing or has a bad value.
    Option {
        /// Which service.
        service: String,
        /// Which option.
        option: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// The formats or the order of the steps do not fit.
    Steps(String),
    /// The code is too large for the kernel.
    TooLarge(qfabric_ecode::bpf::TooLarge),
    /// The kernel's verifier refused the code: a bug here, for whatever `check` accepts should be accepted.
    Refused {
        /// The kernel's answer.
        error: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// A system call failed.
    System {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl InstallError {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            InstallError::UnknownService { asked, known } => Problem::new(
                "chain",
                format!("no service {asked:?}, there are {known}"),
                "list them with `qfabric services`",
            ),
            InstallError::Unavailable { service, why } => {
                Problem::new("unavailable", format!("service {service} cannot be had here: {}", why.what), &why.remedy)
            }
            InstallError::Option { service, option, why } => Problem::new(
                "chain",
                format!("service {service}, option {option}: {why}"),
                format!("see qfabric services {service}"),
            ),
            InstallError::Steps(why) => Problem::new("chain", why, "see the guide's page on ECalls"),
            InstallError::TooLarge(error) => error.problem(),
            InstallError::Refused { error, log } => Problem::new(
                "internal",
                format!("the kernel refused the handler ({error}): {log}"),
                "please report this with the program's text",
            ),
            InstallError::System { what, error } => {
                Problem::new("internal", format!("{what}: {error}"), "see the service's log")
            }
        }
    }
}

/// Whether the kernel has a BPF program of that number ([`Installed::program_ids`]).
pub fn program_exists(id: u32) -> bool {
    crate::bpf::exists(id)
}

/// What an installation has done so far. Read without stopping it: numbers of one moment may differ by events
/// in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that reached the chain: the sum of passed, blocked and contended.
    pub events: u64,
    /// Events that all steps let pass.
    pub passed: u64,
    /// Events that a verdict ended.
    pub blocked: u64,
    /// Calls that ended with a fault; their events are also counted as passed or blocked.
    pub faults: u64,
    /// The last of them.
    pub last_fault: Option<Fault>,
    /// Events that found no room in shared memory.
    pub dropped_memory: u64,
    /// Events that found no room in the ring to user space.
    pub dropped_ring: u64,
    /// Events that were given up because the handler was busy: another CPU held its lock for too long, or the event
    /// came in the midst of the same handler on the same CPU.
    pub contended: u64,
    /// Run time in nanoseconds, while [`Kernel::measure`] is on; else 0.
    pub run_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_shares_among_its_threads_may_be_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<Kernel>();
        shared::<Installed>();
        shared::<UpMemory>();
        shared::<DownMemory>();
        shared::<EventRing>();
        shared::<SocketModule>();
        shared::<Aim>();
    }
}
