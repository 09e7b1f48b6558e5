//! ECalls: the kernel runs an application's handlers when an event happens, and delivers the event to the application.
//!
//! | task | module |
//! |---|---|
//! | list the services and the fields of their events | [`services`], one short file each |
//! | install a chain of steps at a service | [`Kernel::install`] |
//! | share memory between kernel and application | [`UpMemory`], [`DownMemory`] |
//! | deliver events to steps in user space | [`EventRing`] |
//! | drop, hand over or answer what clients send to a server | service `sock.stream` |
//! | favour servers of the CPU scheduler by events | [`Step::Favour`], [`Aim`] |
//! | find ready sockets without a system call | [`SocketModule`] |
//! | run E-code in the kernel on demand | [`KernelEngine`] |
//! | find out what processes still hold of what they were given | [`Kernel::held`], [`FileWatch`] |
//! | send a real-time signal with data | [`signal_queue`]; from the kernel: [`Step::Signal`] |
//!
//! Everything in the kernel lives as long as its descriptors. Nothing is pinned, so the kernel removes all of it when
//! its owner drops it or dies.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use qfabric_ecode::{Fault, Limits, Program};
use qfabric_types::Nanos;
use qfabric_types::api::Problem;

mod answers;
mod assemble;
mod by_kernel;
mod deferred;
mod delivery;
mod engine;
mod favour;
mod follow;
mod handler;
mod holders;
mod kernel;
mod memory;
mod options;
mod reads;
mod ring;
pub mod services;
mod shared;
mod signal;
mod socket;
mod source;
mod state;
mod streams;
mod wake;

pub use by_kernel::SignalTo;
pub use engine::KernelEngine;
pub use favour::Aim;
pub use follow::{FollowReport, Followed};
pub use handler::Installed;
pub use holders::{FileWatch, KernelObject};
pub use kernel::Kernel;
pub use memory::{DownMemory, UpMemory};
pub use ring::{EventRing, Record};
pub use services::{HookCost, OptionSpec, Service};
pub use signal::signal_queue;
pub use socket::{SocketModule, bind_socket, bind_socket_as};

/// An ability that this kernel or this process lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Unsupported {
    /// The missing ability.
    pub what: String,
    /// Next step.
    pub remedy: String,
}

/// A step of a chain, executed in the kernel; [`Step::Tail`] continues in user space.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Runs a program on the event. If the program has an output, the output is the event of the following steps.
    /// Verdict 0 ends the chain. Attributes are words of the installation's [`DownMemory`], by their numbers in the
    /// program.
    Handler(&'a Program),
    /// Writes the event into shared memory. With [`qfabric_types::memory::Layout::Bits`], `position` is the event's
    /// field that contains the slot; `None`: the next free slot.
    Memory {
        memory: &'a UpMemory,
        /// The field that contains the slot.
        position: Option<&'a str>,
    },
    /// Favours servers of the CPU scheduler, and interrupts their CPUs ([`Installed::kicks`]).
    Favour {
        /// The scheduler's memory for raised events ([`crate::mechanism::Mechanism::raised_memory`]).
        raised: BorrowedFd<'a>,
        aim: &'a Aim,
    },
    /// The kernel sends this signal for each event, if it can; then the event ends here. The next step must be
    /// [`Step::Tail`]: it gets the events whose signal the kernel does not send.
    Signal(SignalTo),
    /// Sends the event to user space, as a record with this id in the ring. Must be the last step.
    Tail {
        ring: &'a EventRing,
        /// Number of the subscription.
        id: u64,
        /// The user whose waiting records are bounded; `None`: without a bound.
        user: Option<u32>,
    },
}

/// A request to install a chain.
#[derive(Clone, Debug)]
pub struct Install<'a> {
    pub service: &'a str,
    /// Options of the service, as listed by [`Service::options`].
    pub options: &'a BTreeMap<String, String>,
    /// If set, only events of this process (its id in the initial PID namespace).
    pub only_pid: Option<i32>,
    /// The steps in order. A verdict 0 ends the chain.
    pub steps: &'a [Step<'a>],
    /// Limits of each call.
    pub limits: Limits,
    /// The application session's attributes; `None`: the installation gets separate memory.
    pub down: Option<&'a DownMemory>,
    /// Time for which an event is useful; `None`: without limit.
    pub deadline: Option<Nanos>,
    /// `true`: after a fault the unchanged event passes on; if the handler changes the event's format, the output passes
    /// on as the handler left it. `false`: the event is blocked.
    pub fault_passes: bool,
    /// Measures the run time of the handlers ([`Counters::run_ns`]), which costs two readings of the clock per event.
    pub measured: bool,
}

/// Why a chain was not installed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InstallError {
    UnknownService {
        asked: String,
        /// Names of all services.
        known: String,
    },
    /// This kernel does not offer the service.
    Unavailable {
        service: String,
        /// The reason and the next step.
        why: Unsupported,
    },
    /// An option is unknown, missing or has an invalid value.
    Option {
        service: String,
        option: String,
        /// The reason and the valid values.
        why: String,
    },
    /// The formats or the order of the steps do not fit together.
    Steps(String),
    TooLarge(qfabric_ecode::bpf::TooLarge),
    /// The kernel's verifier refused the code. This is a bug of Q-Fabric, because the verifier should accept everything
    /// that `check` accepts.
    Refused {
        error: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    System {
        /// The operation that failed.
        what: &'static str,
        error: io::Error,
    },
}

impl InstallError {
    pub fn problem(&self) -> Problem {
        match self {
            InstallError::UnknownService { asked, known } => Problem::new(
                "chain",
                format!("no service is named {asked:?}; the services are {known}"),
                "list the services with `qfabric services`",
            ),
            InstallError::Unavailable { service, why } => Problem::new(
                "unavailable",
                format!("service {service} is not available on this host: {}", why.what),
                &why.remedy,
            ),
            InstallError::Option { service, option, why } => Problem::new(
                "chain",
                format!("service {service}, option {option}: {why}"),
                format!("see qfabric services {service}"),
            ),
            InstallError::Steps(why) => Problem::new("chain", why, "read the guide's page on ECalls"),
            InstallError::TooLarge(error) => error.problem(),
            InstallError::Refused { error, log } => Problem::new(
                "internal",
                format!("the kernel refused the handler ({error}): {log}"),
                "report this with the text of the program",
            ),
            InstallError::System { what, error } => {
                Problem::new("internal", format!("{what}: {error}"), "read the log of the service")
            }
        }
    }
}

/// True if the kernel has a BPF program with this id ([`Installed::program_ids`]).
pub fn program_exists(id: u32) -> bool {
    crate::bpf::exists(id)
}

/// Counters of an installation. Reading does not stop the handlers, so the numbers may differ by events in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that reached the chain: passed + blocked + contended.
    pub events: u64,
    /// Events that all steps let pass.
    pub passed: u64,
    /// Events that a verdict ended.
    pub blocked: u64,
    /// Calls that ended with a fault; their events are also counted as passed or blocked.
    pub faults: u64,
    pub last_fault: Option<Fault>,
    /// Events for which shared memory had no room.
    pub dropped_memory: u64,
    /// Events for which the ring to user space had no room, or the user's part of it.
    pub dropped_ring: u64,
    /// Events that were given up because the handler was busy: another CPU held its lock too long, or the event
    /// interrupted the same handler on the same CPU.
    pub contended: u64,
    /// Signals that the kernel accepted ([`Step::Signal`]); their events are counted as passed.
    pub signals: u64,
    /// Run time in nanoseconds, of events that concern the chain; 0 if it is not measured ([`Install::measured`]).
    pub run_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_the_daemon_shares_between_threads_are_send_and_sync() {
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
