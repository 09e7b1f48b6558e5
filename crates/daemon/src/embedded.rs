//! Runs the service inside another program, on a private socket: for `qfabric run` without a daemon, and for tests.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::config::Config;
use crate::ending::Ending;
use crate::folder;
use crate::service::{ServeHooks, Service};
use crate::startup::{DaemonError, Keep};

/// A service that takes longer to end counts as hanging. On a loaded machine other processes may run first.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running service in this process. Dropping it restores everything.
#[derive(Debug)]
pub struct Embedded {
    socket: PathBuf,
    ending: Ending,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Disconnected when the service is over. The mutex is never locked; it only makes the receiver `Sync`.
    over: Mutex<Receiver<()>>,
    /// The folder that was created for this service alone, if there is one. Removed last.
    _directory: Option<tempfile::TempDir>,
}

impl Embedded {
    /// Starts the service and returns once it answers. Without `api.directory` the sockets are in a new private
    /// folder, and the journal is where `qfabric restore` and the next start look for it. The service locks the
    /// program's memory only if the configuration says so.
    pub fn start(config: Config) -> Result<Embedded, DaemonError> {
        let (config, directory) = with_directory(config)?;
        let keep = if directory.is_some() { Keep::Apart } else { Keep::WithSockets };
        let failed = |error| DaemonError::Engine(format!("cannot start the API: {error}"));
        let ending = Ending::new().map_err(failed)?;
        let service = Service::prepare(&config, keep, &ending)?;
        let socket = service.socket();
        let (report_ready, is_ready) = sync_channel(1);
        let (lives, over) = sync_channel::<()>(1);
        let serve = move || {
            let _lives = lives;
            // The send fails if the starter has given up.
            service.serve(ServeHooks { ready: || report_ready.send(()).unwrap_or(()), reload: || None })
        };
        let spawned = std::thread::Builder::new().name("qf-api".to_owned()).spawn(serve);
        let thread = Some(spawned.map_err(failed)?);
        let mut embedded = Embedded { socket, ending, thread, over: over.into(), _directory: directory };
        match is_ready.recv() {
            Ok(()) => Ok(embedded),
            Err(_) => {
                Err(embedded.end().err().unwrap_or(DaemonError::Engine("the API ended before it answered".to_owned())))
            }
        }
    }

    /// Path of the HTTP socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends the service now and returns its result.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DaemonError> {
        self.ending.ask();
        let over = self.over.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.thread.is_some() && over.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            self.thread = None;
            let outcome = self.ending.put_back_instead();
            return Err(DaemonError::Engine(format!("a thread of the service hangs and is abandoned; {outcome}")));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(DaemonError::Engine("the API thread panicked; every thread is restored".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the embedded service ended with an error");
        }
    }
}

fn with_directory(config: Config) -> Result<(Config, Option<tempfile::TempDir>), DaemonError> {
    if config.api.directory.is_some() {
        return Ok((config, None));
    }
    // If root runs with the environment of another user, that folder belongs to the other user and is not safe.
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|own| folder::check(own).is_ok());
    let parent = own.unwrap_or_else(std::env::temp_dir);
    let made = tempfile::Builder::new().prefix("qfabric-").tempdir_in(&parent);
    let directory = made.map_err(|source| DaemonError::Path { path: parent, source })?;
    Ok((config.in_directory(directory.path()), Some(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panicking_thread_ends_the_service_with_an_error_that_names_it_and_everything_is_restored() {
        if !qfabric_linux::testing::may_reserve() {
            return;
        }
        let _alone = qfabric_linux::testing::live_lock();
        let mut service = Embedded::start(Config::default()).unwrap();
        let failing = service.ending.spawn("qf-test", || panic!("on purpose")).unwrap();
        failing.join().expect("contained");
        let over = service.over.get_mut().unwrap();
        assert_eq!(
            over.recv_timeout(TIMEOUT),
            Err(RecvTimeoutError::Disconnected),
            "the service must end without a request"
        );
        assert!(service.ending.is_all_back());
        let error = service.stop().unwrap_err().to_string();
        assert!(error.contains("qf-test") && error.contains("on purpose"), "{error}");
    }
}
