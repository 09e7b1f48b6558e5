//! Prepares the service: folder, lock, restore after a crash, capabilities, locked memory. All before the first
//! promise.

use std::fmt::Display;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use qfabric_linux::books;
use qfabric_linux::journal::own::OwnFolder;
use qfabric_linux::journal::{self, Journal, JournalError, Restored};
use qfabric_linux::{capability, memory};
use qfabric_types::api::Problem;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::config::{Config, InvalidConfig};
use crate::control::StartError;
use crate::folder;

/// The service cannot start, or ended with an error. No promise was made and no change is left.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum DaemonError {
    /// A value of the configuration is not valid.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// Reservations need a capability that this process lacks. The service does not start, because it could not
    /// keep its promises.
    NoCapability {
        /// The executable to which `setcap` applies.
        program: PathBuf,
    },
    /// Another service runs on the same folder.
    Running { directory: PathBuf },
    /// The folder, or a socket in it, cannot be created or used.
    Path { path: PathBuf, source: io::Error },
    /// The group of the sockets does not exist.
    NoGroup { group: String },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The configured mechanism is not available here.
    Mechanism(Problem),
    /// The record of interfaces cannot be used.
    #[error(transparent)]
    Net(#[from] qfabric_linux::net::NetError),
    /// This host cannot have a part of the service as configured: its channels, a port, or the token of the metrics.
    Part(Problem),
    /// The control thread or the API's runtime cannot start, or ended unexpectedly.
    Engine(String),
}

impl DaemonError {
    /// Channels cannot start.
    pub(crate) fn channels(why: impl Display) -> DaemonError {
        let next_step = "check the section [channels] of the configuration";
        DaemonError::Part(Problem::new("channels", format!("channels: {why}"), next_step))
    }

    /// A part of the service was refused, of which `key` of the configuration is the reason.
    pub(crate) fn refused(key: &str, problem: Problem) -> DaemonError {
        DaemonError::Part(problem.at(key))
    }

    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        match self {
            DaemonError::Config(error) => error.problem(),
            DaemonError::Journal(error) => error.problem(),
            DaemonError::Net(error) => error.problem(),
            DaemonError::Mechanism(problem) | DaemonError::Part(problem) => problem.clone(),
            DaemonError::NoCapability { program } => no_capability(program),
            DaemonError::Running { directory } => Problem::new(
                "already_running",
                format!("another service already runs in {}", directory.display()),
                "use it, stop it, or set api.directory",
            ),
            DaemonError::Path { path, source } => Problem::new(
                "path",
                format!("{}: {source}", path.display()),
                "check its owner and permissions, or set api.directory",
            ),
            DaemonError::NoGroup { group } => Problem::new(
                "no_group",
                format!("api.group: group {group:?} does not exist"),
                format!("create it (groupadd --system {group}) or remove the key"),
            ),
            DaemonError::Engine(why) => {
                Problem::new("engine", why, "see the log of the service for the cause, then start it again")
            }
        }
    }
}

fn no_capability(program: &Path) -> Problem {
    let (granted, program) = (capability::setcap_argument(), program.display());
    let next_step = format!(
        "start the service as root or with its systemd unit, or grant the capabilities of the unit once: setcap \
         {granted} {program}"
    );
    Problem::new("no_capability", "CAP_SYS_NICE is missing, so no reservation is possible", next_step)
}

impl From<StartError> for DaemonError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Mechanism(problem) => DaemonError::Mechanism(problem),
            StartError::Config(error) => DaemonError::Config(error),
            other => DaemonError::Part(other.problem()),
        }
    }
}

/// A folder that only this service uses, in which everything that an earlier service changed is restored.
pub(crate) struct Place {
    /// Folder of the sockets.
    pub directory: PathBuf,
    /// Held while the service runs. The kernel releases it however the process ends.
    pub lock: File,
    pub journal: Journal,
    /// Folder of the journal, if it is not the folder of the sockets.
    pub own: Option<OwnFolder>,
}

/// Where the journal is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// In the folder of the sockets, which is the same at the next start.
    WithSockets,
    /// In a fixed place. The folder of the sockets is new for every service, so the next start would not find a
    /// journal there.
    Apart,
}

/// Prepares the folder and the process.
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
        tracing::warn!(%error, "cannot lock memory, so decisions may wait for a disk; raise LimitMEMLOCK or set \
                                control.lock_memory = false");
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

/// Every user may enter the folder: the modes of the sockets decide who may send requests, and the mode of the
/// journal keeps it private. No other user may write to the folder: such a user could answer requests in the name
/// of this service, or prepare files for its next start.
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

/// Restores the changes of a service that was killed in this folder.
fn restore(directory: &Path) -> Result<(), DaemonError> {
    if books::repair_after_crash() > 0 {
        tracing::warn!("a former service was killed while it rebuilt the root domain; its cpuset is removed now");
    }
    let mut restored = journal::restore(directory)?;
    restored.add(restore_energy(directory)?);
    let (threads, settings) = (restored.threads, restored.settings);
    if threads + settings > 0 {
        tracing::warn!(
            threads,
            settings,
            "a former service was killed here; the threads and settings that it had changed are restored"
        );
    }
    let groups = qfabric_linux::memory_groups::restore(directory);
    if groups.settings > 0 {
        tracing::warn!(groups.settings, "a former service was killed here; the control groups are restored");
    }
    let networks = qfabric_linux::net::restore(directory)?;
    if networks.interfaces > 0 {
        tracing::warn!(
            networks.interfaces,
            "a former service was killed here; the queues of the network interfaces are restored"
        );
    }
    for failure in restored.failed.iter().chain(&networks.failed).chain(&groups.failed) {
        tracing::error!("not restored: {failure}");
    }
    Ok(())
}

/// Puts clocks, wireless cards and clamps back. Another program than a service may hold their journal, and this service
/// must not wait for it: a calibration puts back what it finds there at its end.
fn restore_energy(directory: &Path) -> Result<Restored, JournalError> {
    match qfabric_linux::power::restore(directory) {
        Err(JournalError::Held { .. }) => {
            tracing::warn!("the clocks stay as they are until `qfabric energy calibrate --clocks` or `restore` ends");
            Ok(Restored::default())
        }
        other => other,
    }
}

/// The folder for journals of services with a temporary socket folder, below the default run folder.
fn own_folder() -> Option<OwnFolder> {
    let made = Config::default().directory().map_err(|error| error.to_string());
    match made.and_then(|run| OwnFolder::make(&run).map_err(|error| error.to_string())) {
        Ok(folder) => Some(folder),
        Err(error) => {
            tracing::warn!(
                error,
                "the journal is in a temporary folder: if this process is killed, no later start restores its changes"
            );
            None
        }
    }
}

/// Restores the changes of killed services that had a temporary socket folder. A failure does not prevent the start.
fn restore_stale(config: &Config) {
    let mut runs: Vec<PathBuf> = [Config::default().directory(), config.directory()].into_iter().flatten().collect();
    runs.dedup();
    for run in runs {
        match journal::own::restore_stale(&run) {
            Ok(found) => found.into_iter().for_each(|(path, restored)| log_stale(&path, restored)),
            Err(error) => tracing::error!(%error, "cannot read the journals of killed services; run `qfabric restore`"),
        }
    }
    if rustix::process::geteuid().is_root() {
        let found = journal::users::restore_stale_of_users(Path::new(journal::users::USERS));
        found.into_iter().for_each(|(path, restored)| log_stale(&path, restored));
    }
}

fn log_stale(path: &Path, restored: Result<Restored, JournalError>) {
    match restored {
        Ok(Restored { threads, settings, failed, .. }) => {
            let journal = path.display();
            tracing::warn!(%journal, threads, settings, "a service inside another program was killed; its changes are \
                                                         restored");
            failed.iter().for_each(|failure| tracing::error!("not restored: {failure}"));
        }
        Err(error) => tracing::error!(%error, "not restored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_service_on_the_same_folder_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let refusal = lock(dir.path()).unwrap_err().to_string();
        assert!(refusal.contains(dir.path().to_str().unwrap()) && refusal.contains("api.directory"), "{refusal}");
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn a_service_starts_while_a_calibration_sets_the_clocks() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(qfabric_linux::power::FOLDER);
        std::fs::create_dir(&folder).unwrap();
        let calibration = Journal::open(&folder).unwrap();
        assert_eq!(restore_energy(dir.path()).unwrap(), Restored::default());
        drop(calibration);
        assert_eq!(restore_energy(dir.path()).unwrap(), Restored::default());
    }

    #[test]
    fn a_service_refuses_a_folder_that_others_may_write_to() {
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
        let Problem { code, message, next_step, .. } =
            DaemonError::NoCapability { program: "/opt/qfabric".into() }.problem();
        assert!(code == "no_capability" && message.contains("CAP_SYS_NICE"), "{message}");
        for part in ["setcap", "systemd", "/opt/qfabric"] {
            assert!(next_step.contains(part) && !message.contains(part), "{next_step}");
        }
    }
}
