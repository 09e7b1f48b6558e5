//! Errors between an application and its daemon.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use qfabric_types::InvalidContract;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::JointRefusal;

/// Error of a call. A failed call changed nothing, unless the variant's documentation says otherwise.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum ClientError {
    /// No daemon listens at any of the known sockets.
    NoDaemon {
        /// The sockets tried, each with its error.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The daemon refused the request. The problem names the values and the limits.
    Refused(Problem),
    /// A host refused its part of a joint contract. Nothing is held on any host.
    JointRefused(Box<JointRefusal>),
    /// The contract is invalid. The client sent no request.
    #[error(transparent)]
    Contract(#[from] InvalidContract),
    /// The daemon and this library have different minor versions.
    Version {
        /// Version of the daemon.
        daemon: String,
        /// Version of this library.
        client: &'static str,
    },
    /// The daemon did not answer within the client's timeout. The daemon may have carried out the request.
    Timeout {
        /// HTTP method and path of the call.
        call: String,
        /// Timeout in seconds.
        seconds: f64,
    },
    /// The answer is not valid. The daemon may have carried out the request.
    Answer {
        /// HTTP method and path of the call.
        call: String,
        /// The defect of the answer.
        why: String,
    },
    /// The connection failed during the call. The daemon may have carried out the request.
    Broken {
        /// HTTP method and path of the call.
        call: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The daemon admitted the application, but its job ring cannot be used; the contract was ended again.
    Ring {
        /// Number of the application.
        id: u64,
        /// Socket from which the daemon hands out rings.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for ECalls failed; everything requested through it has ended.
    Lease {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for channels failed; everything opened with it has ended.
    Channels {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The connection for memory failed; everything allocated through it is free.
    Mem {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The channel did not accept an event; later events may be accepted.
    NotSubmitted {
        /// The cause and the next step.
        why: String,
        /// Latest time until which a slow sink blocks the channel; None for other causes.
        blocked_until: Option<qfabric_types::Instant>,
    },
    /// A sink has ended by itself: its channel was closed, or the access list changed. All its events have been taken.
    SinkEnded {
        /// The sink's number.
        sink: u32,
        /// The cause.
        why: String,
    },
    /// The daemon's queue of events from this process is full; the event was dropped.
    Crowded {
        /// Name of the service.
        service: String,
    },
    /// Shared memory cannot be used; the subscription or module that it belonged to was ended.
    Memory {
        /// Name of the memory.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// The handle belongs to the parent of this forked process, and stays in use there. The child made no change.
    Forked {
        /// Name of the handle.
        what: &'static str,
    },
    /// An argument is invalid. The client sent no request.
    Value(Box<Problem>),
}

impl ClientError {
    /// [`qfabric_shm::Process::current`] failed.
    pub(crate) fn unnumbered(error: io::Error) -> ClientError {
        ClientError::Memory {
            what: "the page that distinguishes a process from its forked children",
            why: error.to_string(),
        }
    }

    /// An argument is invalid.
    pub(crate) fn invalid(message: impl Into<String>, next_step: impl Into<String>) -> ClientError {
        ClientError::value(Problem::new("invalid_argument", message, next_step))
    }

    /// An argument is invalid, for a reason that has a code of its own.
    pub(crate) fn value(problem: Problem) -> ClientError {
        ClientError::Value(Box::new(problem))
    }

    /// The error with a stable code and its next step.
    pub fn problem(&self) -> Problem {
        match self {
            ClientError::Refused(problem) => problem.clone(),
            ClientError::Value(problem) => Problem::clone(problem),
            ClientError::JointRefused(refusal) => refusal.problem.clone(),
            ClientError::Contract(error) => error.problem(),
            other => {
                let (code, next_step) = other.advice();
                Problem::new(code, other.message(), next_step)
            }
        }
    }

    /// The code and the next step of an error without a problem of its own. The next step is empty if the message has
    /// it already.
    fn advice(&self) -> (&'static str, &'static str) {
        const CONNECT: &str = "connect again (`qfabric status` shows whether the daemon runs)";
        match self {
            ClientError::NoDaemon { .. } => {
                ("no_daemon", "start one with `qfabric daemon`, or run the program under `qfabric run`")
            }
            ClientError::Version { .. } => {
                ("other_version", "install the same minor version of both, and start the daemon again")
            }
            ClientError::Timeout { .. } => {
                ("timeout", "check with `qfabric status` whether the daemon is stopped or overloaded")
            }
            ClientError::Answer { .. } => ("bad_answer", "check that the program at this socket is a qfabric daemon"),
            ClientError::Broken { .. } => ("broken", "try again; the daemon may have stopped during the call"),
            ClientError::Ring { .. } => ("ring", "check that the daemon runs, and has the version of this library"),
            ClientError::Lease { why, .. } | ClientError::Channels { why, .. } | ClientError::Mem { why, .. }
                if before_install(why).is_some() =>
            {
                ("connection_lost", INSTALL)
            }
            ClientError::Lease { .. } | ClientError::Channels { .. } => ("connection_lost", CONNECT),
            ClientError::Mem { .. } => {
                ("connection_lost", "check that the daemon runs, and is not older than this library")
            }
            ClientError::NotSubmitted { .. } => ("not_submitted", ""),
            ClientError::SinkEnded { .. } => {
                ("sink_ended", "open the channel again, if it still exists: `qfabric channel ls`")
            }
            ClientError::Crowded { .. } => ("crowded", "raise fewer events, or try again later"),
            ClientError::Memory { .. } => {
                ("shared_memory", "raise the limits of this process (ulimit -n, ulimit -v), then try again")
            }
            ClientError::Forked { .. } => ("forked", "make a new one here"),
            ClientError::Refused(_)
            | ClientError::JointRefused(_)
            | ClientError::Contract(_)
            | ClientError::Value(_) => ("", ""),
        }
    }

    fn message(&self) -> String {
        match self {
            ClientError::NoDaemon { tried } => format!("no daemon answers{}", listed(tried)),
            ClientError::Version { daemon, client } => format!("the daemon is version {daemon}, this library {client}"),
            ClientError::Timeout { call, seconds } => format!("{call}: no answer within {seconds} s"),
            ClientError::Answer { call, why } => format!("{call}: {why}"),
            ClientError::Broken { call, source } => format!("{call}: {source}"),
            ClientError::Ring { id, path, why } => {
                format!("cannot use the job ring of application {id} at {}: {why}", path.display())
            }
            ClientError::Lease { path, why } => lost("ECalls", path, why),
            ClientError::Channels { path, why } => lost("channels", path, why),
            ClientError::Mem { path, why } => lost("memory", path, why),
            ClientError::NotSubmitted { why, .. } => why.clone(),
            ClientError::SinkEnded { why, .. } => format!("the sink has ended: {why}"),
            ClientError::Crowded { service } => {
                format!("an event of {service} was dropped: the daemon's queue is full")
            }
            ClientError::Memory { what, why } => format!("{what}: {why}"),
            ClientError::Forked { what } => format!("{what} belongs to the parent of this forked process"),
            ClientError::Refused(_)
            | ClientError::JointRefused(_)
            | ClientError::Contract(_)
            | ClientError::Value(_) => String::new(),
        }
    }
}

/// The next step at the end of a refusal of another protocol version.
const INSTALL: &str = "install the same version of both";

/// The cause in front of [`INSTALL`]; `None` if the reason does not end with it.
fn before_install(why: &str) -> Option<&str> {
    why.strip_suffix(INSTALL)?.strip_suffix("; ")
}

fn lost(what: &str, path: &Path, why: &str) -> String {
    format!("the connection for {what} at {} failed: {}", path.display(), before_install(why).unwrap_or(why))
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

    #[test]
    fn a_refused_protocol_version_has_the_next_step_of_the_daemon() {
        let why = "this daemon speaks version 1 of ecalls.sock, the client 2; install the same version of both";
        let error = ClientError::Lease { path: "/run/qfabric/ecalls.sock".into(), why: why.to_owned() };
        let Problem { message, next_step, .. } = error.problem();
        assert!(message.ends_with("the client 2"), "{message}");
        assert_eq!(next_step, "install the same version of both");
        assert!(error.to_string().ends_with(why), "{error}");
    }

    #[test]
    fn every_error_has_a_code_and_keeps_its_next_step_apart() {
        let (path, why) = (PathBuf::from("/run/qfabric/x.sock"), "closed".to_owned());
        let call = || "GET /v1/status".to_owned();
        let errors = [
            (ClientError::NoDaemon { tried: Vec::new() }, "no_daemon"),
            (ClientError::Version { daemon: "0.2.0".into(), client: "0.1.0" }, "other_version"),
            (ClientError::Timeout { call: call(), seconds: 5.0 }, "timeout"),
            (ClientError::Answer { call: call(), why: why.clone() }, "bad_answer"),
            (ClientError::Broken { call: call(), source: io::ErrorKind::BrokenPipe.into() }, "broken"),
            (ClientError::Ring { id: 7, path: path.clone(), why: why.clone() }, "ring"),
            (ClientError::Lease { path: path.clone(), why: why.clone() }, "connection_lost"),
            (ClientError::Channels { path: path.clone(), why: why.clone() }, "connection_lost"),
            (ClientError::Mem { path, why: why.clone() }, "connection_lost"),
            (ClientError::SinkEnded { sink: 3, why: why.clone() }, "sink_ended"),
            (ClientError::Crowded { service: "app.x".into() }, "crowded"),
            (ClientError::Memory { what: "memory_up", why }, "shared_memory"),
            (ClientError::Forked { what: "the session" }, "forked"),
            (ClientError::invalid("the code point is 64", "use 0 to 63"), "invalid_argument"),
            (InvalidContract::Memory { memory: qfabric_types::Bytes::new(12) }.into(), "invalid_contract"),
        ];
        for (error, expected) in errors {
            let Problem { code, message, next_step, .. } = error.problem();
            assert_eq!(code, expected);
            assert!(!next_step.is_empty() && !message.contains(&next_step), "{message}");
            assert_eq!(error.to_string(), format!("{message}; {next_step}"));
        }
    }
}
