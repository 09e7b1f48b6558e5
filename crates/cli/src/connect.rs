//! Finds the daemon, or starts one inside this process, so that `run` also works on a host without a daemon.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use qfabric_client::{Client, ClientError};
use qfabric_daemon::{Config, Embedded};
use qfabric_types::MechanismName;

use crate::exit::{Advice, Failure};

/// A connection to a daemon. An embedded daemon restores all threads and settings when it is dropped.
pub(crate) struct Service {
    pub client: Client,
    embedded: Option<Embedded>,
}

impl Service {
    /// Connects to the daemon at `socket`. Without `socket`, connects to the daemon of this host, or starts a daemon
    /// inside this process. The embedded daemon uses `mechanism` instead of the configured one unless it is `Auto`.
    ///
    /// # Errors
    /// No daemon answers at `socket`; or, without `socket`, no daemon answers and none can be started here. A daemon
    /// that is there but cannot be used (another version, no answer in time) is an error too: a second one would
    /// promise the same CPUs again. A daemon whose socket this user may not open counts as none.
    pub(crate) fn find(socket: Option<&Path>, mechanism: MechanismName) -> Result<Service, Failure> {
        match (connect(socket), socket) {
            (Ok(client), _) => Ok(Service { client, embedded: None }),
            (Err(ClientError::NoDaemon { .. }), None) => Service::embed(mechanism),
            (Err(error), _) => Err(failure(error)),
        }
    }

    /// Connects to the daemon at `socket` or of this host. Starts none.
    pub(crate) fn running(socket: Option<&Path>) -> Result<Service, Failure> {
        Ok(Service { client: daemon(socket)?, embedded: None })
    }

    fn embed(mechanism: MechanismName) -> Result<Service, Failure> {
        let mut config = Config::load(None).map_err(|error| Failure::usage(Advice(&error.problem())))?;
        if mechanism != MechanismName::Auto {
            config.mechanism.name = mechanism;
        }
        let embedded = Embedded::start(config).map_err(|error| {
            let none = "no daemon answers, and this process cannot do without one (see qfabric doctor)";
            Failure::unavailable(Advice(&error.problem())).context(none)
        })?;
        let client = Client::connect_to(embedded.socket()).map_err(failure)?;
        Ok(Service { client, embedded: Some(embedded) })
    }

    /// Names the daemon in messages.
    pub(crate) fn place(&self) -> String {
        match &self.embedded {
            Some(_) => "this process (no daemon found)".to_owned(),
            None => format!("the daemon at {}", self.client.socket().display()),
        }
    }
}

/// The option `--socket` of commands that need a running daemon. They start no daemon of their own, because a channel
/// or interface that is opened through an embedded daemon would close when the command ends.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Daemon {
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        daemon(self.socket.as_deref())
    }

    /// For commands that also work without a daemon.
    #[cfg(feature = "metp")]
    pub(crate) fn client_if_any(&self) -> Result<Client, ClientError> {
        connect(self.socket.as_deref())
    }
}

/// Connects to a running daemon, at `socket` or in the usual places.
pub(crate) fn daemon(socket: Option<&Path>) -> Result<Client, Failure> {
    connect(socket).map_err(failure)
}

/// Device, number and time of the socket's file. A daemon that starts makes a new file. A reload sets the file's mode
/// and group again, which changes the time of its inode (ctime), but not that of its content.
pub(crate) type DaemonMark = (u64, u64, i64, i64);

/// Tells the daemon at this socket from earlier and later ones; none if there is no socket.
pub(crate) fn daemon_mark(socket: &Path) -> Option<DaemonMark> {
    let file = std::fs::symlink_metadata(socket).ok()?;
    Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
}

fn connect(socket: Option<&Path>) -> Result<Client, ClientError> {
    socket.map_or_else(Client::connect, Client::connect_to)
}

/// Codes of refusals of which this host, or its daemon, is the reason, and not the request: exit code 4.
const UNAVAILABLE: [&str; 4] = ["mechanism", "unavailable", "channels_off", "no_contracts"];

/// Gives an error of the client library its exit code and next step.
pub(crate) fn failure(error: ClientError) -> Failure {
    let problem = error.problem();
    let advice = Advice(&problem);
    match error {
        ClientError::NoDaemon { .. } => Failure::unavailable(advice),
        ClientError::Refused(_) if UNAVAILABLE.contains(&problem.code.as_str()) => Failure::unavailable(advice),
        ClientError::Contract(_) | ClientError::Value(_) => Failure::usage(advice),
        ClientError::Refused(_)
        | ClientError::JointRefused(_)
        | ClientError::NotSubmitted { .. }
        | ClientError::SinkEnded { .. } => Failure::refused(advice),
        _ => Failure::fault(advice),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, remove_file, set_permissions, symlink_metadata};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_is_told_from_the_next_one_and_stays_the_same_after_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qfabric.sock");
        assert_eq!(daemon_mark(&path), None);
        let first = UnixListener::bind(&path).unwrap();
        let mark = daemon_mark(&path);
        let changed = || symlink_metadata(&path).map(|file| (file.ctime(), file.ctime_nsec())).unwrap();
        let before = changed();
        while changed() == before {
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(daemon_mark(&path), mark);
        drop(first);
        remove_file(&path).unwrap();
        let _next = UnixListener::bind(&path).unwrap();
        assert_ne!(daemon_mark(&path), mark);
    }
}
