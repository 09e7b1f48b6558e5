//! What can go wrong between an application and its daemon.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use qfabric_types::InvalidContract;
use qfabric_types::api::Problem;

/// Why a call did not succeed. Nothing was changed, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers on any of the sockets where a daemon would listen.
    #[error(
        "no daemon answers{}; start one with `qfabric daemon`, or run the program under `qfabric run`",
        listed(.tried)
    )]
    NoDaemon {
        /// The sockets tried, and why each failed.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The daemon said no; it names the values and the limits.
    #[error("{0}")]
    Refused(Problem),
    /// The contract cannot be meant; the daemon was not asked.
    #[error(transparent)]
    Contract(#[from] InvalidContract),
    /// Daemon and library do not understand each other.
    #[error("the daemon is version {daemon}, this library {client}; install the same minor version of both")]
    Version {
        /// The daemon's version.
        daemon: String,
        /// This library's version.
        client: &'static str,
    },
    /// The daemon took longer than the client's patience. What was asked for may have happened.
    #[error("{call}: no answer within {seconds} s; see whether the daemon is stopped or overloaded (`qfabric status`)")]
    Timeout {
        /// The call.
        call: String,
        /// The patience, in seconds.
        seconds: f64,
    },
    /// What came back is no answer of a daemon. What was asked for may have happened.
    #[error("{call}: {why}; is something else than a qfabric daemon listening there?")]
    Answer {
        /// The call.
        call: String,
        /// What was wrong with it.
        why: String,
    },
    /// The connection failed half-way. What was asked for may have happened.
    #[error("{call}: {source}; the daemon may have just been stopped, try again")]
    Broken {
        /// The call.
        call: String,
        /// What the system said.
        source: io::Error,
    },
    /// The shared ring of an admitted application could not be had; the application was given back.
    #[error("the job ring of application {id} at {}: {why}", path.display())]
    Ring {
        /// The application.
        id: u64,
        /// The socket that hands rings out.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// The connection for ECalls cannot be had, or broke; what was asked for under it has ended.
    #[error("ECalls at {}: {why}", path.display())]
    Lease {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// The connection for channels cannot be had, or broke; what was opened with it has ended.
    #[error("channels at {}: {why}", path.display())]
    Channels {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// An event was not taken; others may be.
    #[error("{why}")]
    NotSubmitted {
        /// Why, and what to do.
        why: String,
        /// A slow sink holds the channel up until then at the latest; none: another reason.
        blocked_until: Option<qfabric_types::Instant>,
    },
    /// The daemon does not keep up with this process's events; this one was dropped.
    #[error("an event of {service} was dropped: more are waiting than the daemon takes; raise fewer, or retry")]
    Crowded {
        /// The service.
        service: String,
    },
    /// Shared memory of ECalls cannot be used; what it belonged to was given back.
    #[error("{what}: {why}")]
    Memory {
        /// Which.
        what: &'static str,
        /// What went wrong.
        why: String,
    },
    /// This process was forked from the one that made what is used here; it belongs to that one, and goes on there.
    #[error("{what} belongs to the process that this one was forked from; make another one here")]
    Forked {
        /// What was used.
        what: &'static str,
    },
    /// An argument cannot be meant; the daemon was not asked.
    #[error("{0}")]
    Value(String),
}

impl ClientError {
    /// [`qfabric_shm::Process::current`] failed.
    pub(crate) fn unnumbered(error: io::Error) -> ClientError {
        ClientError::Memory { what: "the page that tells a process from its children", why: error.to_string() }
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
