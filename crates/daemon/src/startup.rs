//! Before anything is promised: the folder, the only service in it, what a killed one left, capabilities, memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use qfabric_linux::books;
use qfabric_linux::journal::own::OwnFolder;
use qfabric_linux::journal::{self, Journal, JournalError, Restored};
use qfabric_linux::{capability, memory};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::config::{Config, InvalidConfig};
use crate::control::StartError;
use crate::folder;

/// The service cannot start. Nothing was promised, and nothing is left changed.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be meant.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// Reservations need a capability that this process has not. It refuses to run rather than to promise what
    /// it cannot hold.
    #[error(
        "CAP_SYS_NICE is missing, so no reservation can be given; start it as root or by its systemd unit, \
         or once: setcap cap_sys_nice,cap_perfmon,cap_ipc_lock,cap_sys_ptrace,cap_bpf,cap_net_admin,cap_kill+ep {}", program.display()
    )]
    NoCapability {
        /// This program.
        program: PathBuf,
    },
    /// Another service runs on the same folder.
    #[error("a service is running on {} already; use it, stop it, or set api.directory", directory.display())]
    Running {
        /// The folder.
        directory: PathBuf,
    },
    /// The folder or a socket in it cannot be made or used.
    #[error("{}: {source}; check its owner and permissions, or set api.directory", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The group of the sockets does not exist.
    #[error("api.group: there is no group {group:?}; create it (groupadd --system {group}) or leave it out")]
    NoGroup {
        /// What was configured.
        group: String,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The mechanism asked for cannot be had here; the text says why, and what to use instead.
    #[error("{0}")]
    Mechanism(String),
    /// The record of interfaces cannot be used.
    #[error(transparent)]
    Net(#[from] qfabric_linux::net::NetError),
    /// This host cannot have channels as configured.
    #[error("channels: {0}; see the section [channels] of the configuration")]
    Channels(String),
    /// The control thread or the API's runtime cannot start, or ended by itself.
    #[error("{0}")]
    Engine(String),
}

impl From<StartError> for DaemonError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Mechanism(why) => DaemonError::Mechanism(why),
            other => DaemonError::Engine(other.to_string()),
        }
    }
}

/// A folder that belongs to this service alone, put back as it was before any service ran.
pub(crate) struct Place {
    /// Of the sockets.
    pub directory: PathBuf,
    /// Held as long as the service runs; the kernel lets go of it, however the process ends.
    pub lock: File,
    pub journal: Journal,
    /// Of the journal, where that is not the folder of the sockets.
    pub own: Option<OwnFolder>,
}

/// Where the journal is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// In the folder of the sockets: it is the same at the next start.
    WithSockets,
    /// In a fixed place: the folder of the sockets is made for this service alone, and nobody would find it.
    Apart,
}

/// Makes the place ready, and the process fit.
pub(crate) fn prepare(config: &Config, keep: Keep) -> Result<Place, DaemonError> {
    config.check()?;
    config.check_here()?;
    check_capability()?;
    let directory = config.directory()?;
    make_directory(&directory)?;
    let lock = lock(&directory)?;
    restore(&directory)?;
    restore_stale(config);
    let own = match keep {
        Keep::WithSockets => None,
        Keep::Apart => own_folder(),
    };
    let journal = Journal::open(own.as_ref().map_or(&*directory, OwnFolder::path))?;
    if config.control.lock_memory
        && let Err(error) = memory::lock_all()
    {
        tracing::warn!(%error, "memory is not locked: decisions may wait for a disk; raise LimitMEMLOCK");
    }
    Ok(Place { directory, lock, journal, own })
}

fn check_capability() -> Result<(), DaemonError> {
    if capability::held(CapabilitySet::SYS_NICE) {
        return Ok(());
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/qfabric".into());
    Err(DaemonError::NoCapability { program })
}

/// Everybody may enter: the sockets' own modes decide who may ask. The journal's own mode keeps it private. Nobody else may
/// write there: whoever could, could answer in this service's name, or prepare what it finds at its next start.
fn make_directory(directory: &Path) -> Result<(), DaemonError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    let safe = made.and_then(|()| folder::check(directory));
    safe.map_err(|source| DaemonError::Path { path: directory.to_owned(), source })
}

fn lock(directory: &Path) -> Result<File, DaemonError> {
    let path = directory.join("daemon.lock");
    let opened = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|source| DaemonError::Path { path: path.clone(), source })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(DaemonError::Running { directory: directory.to_owned() }),
        Err(error) => Err(DaemonError::Path { path, source: error.into() }),
    }
}

/// Puts back what a service that was killed here left.
fn restore(directory: &Path) -> Result<(), DaemonError> {
    if books::repair_after_crash() > 0 {
        tracing::warn!("a rebuild of the root domain was killed: its cpuset is removed");
    }
    let restored = journal::restore(directory)?;
    let (threads, settings) = (restored.threads, restored.settings);
    if threads + settings > 0 {
        tracing::warn!(threads, settings, "a former service was killed here: what it had changed is put back");
    }
    let networks = qfabric_linux::net::restore(directory)?;
    if networks.interfaces > 0 {
        tracing::warn!(networks.interfaces, "a former service was killed here: interfaces queue as before");
    }
    for failure in restored.failed.iter().chain(&networks.failed) {
        tracing::error!("not put back: {failure}");
    }
    Ok(())
}

/// Where services without a folder of their own keep their journals: the run folder that nobody configured.
fn own_folder() -> Option<OwnFolder> {
    let made = Config::default().directory().map_err(|error| error.to_string());
    match made.and_then(|run| OwnFolder::make(&run).map_err(|error| error.to_string())) {
        Ok(folder) => Some(folder),
        Err(error) => {
            tracing::warn!(error, "the journal is in a private folder: if this process is killed, nothing is put back");
            None
        }
    }
}

/// Puts back what killed services without a folder of their own left. What cannot be is no reason not to start.
fn restore_stale(config: &Config) {
    let mut runs: Vec<PathBuf> = [Config::default().directory(), config.directory()].into_iter().flatten().collect();
    runs.dedup();
    for run in runs {
        match journal::own::restore_stale(&run) {
            Ok(found) => found.into_iter().for_each(|(path, restored)| log_stale(&path, restored)),
            Err(error) => tracing::error!(%error, "journals of killed services cannot be read"),
        }
    }
}

fn log_stale(path: &Path, restored: Result<Restored, JournalError>) {
    match restored {
        Ok(Restored { threads, settings, failed, .. }) => {
            let journal = path.display();
            tracing::warn!(%journal, threads, settings, "a service in another program was killed: put back");
            failed.iter().for_each(|failure| tracing::error!("not put back: {failure}"));
        }
        Err(error) => tracing::error!(%error, "not put back"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_service_on_the_same_folder_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let refusal = lock(dir.path()).unwrap_err().to_string();
        assert!(refusal.contains(dir.path().to_str().unwrap()) && refusal.contains("api.directory"), "{refusal}");
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_no_place_for_a_service() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let open = top.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refusal = make_directory(&open.join("qfabric")).unwrap_err().to_string();
        for part in ["open/qfabric", "everybody may write to", "api.directory"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        make_directory(&top.path().join("own/qfabric")).unwrap();
    }

    #[test]
    fn a_missing_capability_is_named_with_the_command_that_gives_it() {
        let text = DaemonError::NoCapability { program: "/opt/qfabric".into() }.to_string();
        for part in ["CAP_SYS_NICE", "setcap", "systemd", "/opt/qfabric"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
