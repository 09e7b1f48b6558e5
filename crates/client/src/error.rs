//! Errors between an application and its daemon.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use qfabric_types::InvalidContract;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::JointRefusal;

/// Error of a call. A failed call changed nothing, unless the variant's documentation says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens at any of the known sockets.
    #[error(
        "no daemon answers{}; start one with `qfabric daemon`, or run the program under `qfabric run`",
        listed(.tried)
    )]
    NoDaemon {
        /// The sockets tried, each with its error.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The daemon refused the request. The problem names the values and the limits.
    #[error("{0}")]
    Refused(Problem),
    /// A host refused its part of a joint contract. Nothing is held on any host.
    #[error("{}", .0.problem)]
    JointRefused(Box<JointRefusal>),
    /// The contract is invalid. The client sent no request.
    #[error(transparent)]
    Contract(#[from] InvalidContract),
    /// The daemon and this library have different minor versions.
    #[error(
        "the daemon is version {daemon}, this library {client}; install the same minor version of both, and start \
         the daemon again"
    )]
    Version {
        /// Version of the daemon.
        daemon: String,
        /// Version of this library.
        client: &'static str,
    },
    /// The daemon did not answer within the client's timeout. The daemon may have carried out the request.
    #[error(
        "{call}: no answer within {seconds} s; check with `qfabric status` whether the daemon is stopped or overloaded"
    )]
    Timeout {
        /// HTTP method and path of the call.
        call: String,
        /// Timeout in seconds.
        seconds: f64,
    },
    /// The answer is not valid. The daemon may have carried out the request.
    #[error("{call}: {why}; check that the program at this socket is a qfabric daemon")]
    Answer {
        /// HTTP method and path of the call.
        call: String,
        /// The defect of the answer.
        why: String,
    },
    /// The connection failed during the call. The daemon may have carried out the request.
    #[error("{call}: {source}; the daemon may have stopped during the call, try again")]
    Broken {
        /// HTTP method and path of the call.
        call: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The daemon admitted the application, but its job ring cannot be used; the contract was ended again.
    #[error("cannot use the job ring of application {id} at {}: {why}", path.display())]
    Ring {
        /// Number of the application.
        id: u64,
        /// Socket from which the daemon hands out rings.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for ECalls failed; everything requested through it has ended.
    #[error("the connection for ECalls at {} failed: {why}", path.display())]
    Lease {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for channels failed; everything opened with it has ended.
    #[error("the connection for channels at {} failed: {why}", path.display())]
    Channels {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for memory failed; everything allocated through it is free.
    #[error("the connection for memory at {} failed: {why}; is the daemon running, and not older than this library?", path.display())]
    Mem {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The channel did not accept an event; later events may be accepted.
    #[error("{why}")]
    NotSubmitted {
        /// The cause and the next step.
        why: String,
        /// Latest time until which a slow sink blocks the channel; None for other causes.
        blocked_until: Option<qfabric_types::Instant>,
    },
    /// A sink has ended by itself: its channel was closed, or the access list changed. All its events have been taken.
    #[error("the sink has ended: {why}; open the channel again, if it still exists: `qfabric channel ls`")]
    SinkEnded {
        /// The sink's number.
        sink: u32,
        /// The cause.
        why: String,
    },
    /// The daemon's queue of events from this process is full; the event was dropped.
    #[error("an event of {service} was dropped: the daemon's queue is full; raise fewer events, or try again later")]
    Crowded {
        /// Name of the service.
        service: String,
    },
    /// Shared memory cannot be used; the subscription or module that it belonged to was ended.
    #[error("{what}: {why}")]
    Memory {
        /// Name of the memory.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// The handle belongs to the parent of this forked process, and stays in use there. The child made no change.
    #[error("{what} belongs to the parent of this forked process; make a new one here")]
    Forked {
        /// Name of the handle.
        what: &'static str,
    },
    /// An argument is invalid. The client sent no request.
    #[error("{0}")]
    Value(String),
}

impl ClientError {
    /// [`qfabric_shm::Process::current`] failed.
    pub(crate) fn unnumbered(error: io::Error) -> ClientError {
        ClientError::Memory {
            what: "the page that distinguishes a process from its forked children",
            why: error.to_string(),
        }
    }
}

fn listed(tried: &[(PathBuf, io::Error)]) -> String {
    let mut text = String::new();
    for (i, (path, why)) in tried.iter().enumerate() {
        let lead = if i == 0 { " at " } else { ", " };
        write!(text, "{lead}{} ({why})", path.display()).expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_the_sockets_tried_and_the_commands_are_named() {
        let tried = vec![
            ("/run/user/1/qfabric/qfabric.sock".into(), io::ErrorKind::NotFound.into()),
            ("/run/qfabric/qfabric.sock".into(), io::ErrorKind::PermissionDenied.into()),
        ];
        let text = ClientError::NoDaemon { tried }.to_string();
        for named in ["/run/user/1/", "/run/qfabric/", "not found", "denied", "`qfabric daemon`", "`qfabric run`"] {
            assert!(text.contains(named), "{text} does not name {named}");
        }
    }

    #[test]
    fn a_refusal_says_what_happened_and_what_to_do() {
        let problem = Problem {
            code: "over_committed".into(),
            message: "asked for 0.5 CPU, 0.2 CPU is free".into(),
            next_step: "ask for less".into(),
            ..Problem::default()
        };
        let text = ClientError::Refused(problem).to_string();
        assert_eq!(text, "asked for 0.5 CPU, 0.2 CPU is free; ask for less");
        let bare = Problem { code: "gone".into(), ..Problem::default() };
        assert_eq!(ClientError::Refused(bare).to_string(), "refused: gone");
    }
}
