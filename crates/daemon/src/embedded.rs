//! The same service inside a program, on a private socket: for `qfabric run` where no daemon runs, and for tests.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::config::Config;
use crate::ending::Ending;
use crate::folder;
use crate::service::{Beside, Service};
use crate::startup::{DaemonError, Keep};

/// A service that takes longer to end hangs. Others may have to be served on a loaded machine meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running service in this process. Dropping it puts everything back.
#[derive(Debug)]
pub struct Embedded {
    socket: PathBuf,
    ending: Ending,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Disconnected when the service is over. Never locked: only so that the service can be shared.
    over: Mutex<Receiver<()>>,
    /// Removed last, where it was made for this service alone.
    _directory: Option<tempfile::TempDir>,
}

impl Embedded {
    /// Starts the service and returns once it answers. Without `api.directory` the folder of its sockets is a fresh
    /// private one, and its journal lies where `qfabric restore` and the next start look for it; its memory is locked only where the configuration says so.
    pub fn start(config: Config) -> Result<Embedded, DaemonError> {
        let (config, directory) = with_directory(config)?;
        let keep = if directory.is_some() { Keep::Apart } else { Keep::WithSockets };
        let failed = |error| DaemonError::Engine(format!("cannot start the API: {error}"));
        let ending = Ending::new().map_err(failed)?;
        let service = Service::prepare(&config, keep, &ending)?;
        let socket = service.socket();
        let (tell, told) = sync_channel(1);
        let (lives, over) = sync_channel::<()>(1);
        let serve = move || {
            let _lives = lives;
            // Where the starter has given up, nobody is told.
            service.serve(Beside { ready: || tell.send(()).unwrap_or(()), reload: || None })
        };
        let spawned = std::thread::Builder::new().name("qf-api".to_owned()).spawn(serve);
        let thread = Some(spawned.map_err(failed)?);
        let mut embedded = Embedded { socket, ending, thread, over: over.into(), _directory: directory };
        match told.recv() {
            Ok(()) => Ok(embedded),
            Err(_) => Err(embedded.end().err().unwrap_or(DaemonError::Engine("the API ended by itself".to_owned()))),
        }
    }

    /// Where it is to be found.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it now and says how that went.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DaemonError> {
        self.ending.ask();
        let over = self.over.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.thread.is_some() && over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            self.thread = None;
            let outcome = self.ending.put_back_instead();
            return Err(DaemonError::Engine(format!("a thread of the service hangs and is left behind; {outcome}")));
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(DaemonError::Engine("the API failed; everything was put back".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the embedded service");
        }
    }
}

fn with_directory(config: Config) -> Result<(Config, Option<tempfile::TempDir>), DaemonError> {
    if config.api.directory.is_some() {
        return Ok((config, None));
    }
    // Where root has the environment of another user, that folder is the user's.
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
    fn a_thread_that_fails_ends_the_service_which_says_so_and_puts_everything_back() {
        if !qfabric_linux::testing::may_reserve() {
            return;
        }
        let _alone = qfabric_linux::testing::live_lock();
        let mut service = Embedded::start(Config::default()).unwrap();
        let failing = service.ending.spawn("qf-test", || panic!("on purpose")).unwrap();
        failing.join().expect("contained");
        let over = service.over.get_mut().unwrap();
        assert_eq!(over.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "nobody asked it to end");
        assert!(service.ending.is_all_back());
        let error = service.stop().unwrap_err().to_string();
        assert!(error.contains("qf-test") && error.contains("on purpose"), "{error}");
    }
}
