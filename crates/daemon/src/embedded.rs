//! The same service inside a program, on a private socket: for `qfabric run` where no daemon runs, and for tests.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::config::Config;
use crate::folder;
use crate::service::Service;
use crate::startup::{DaemonError, Keep};

/// A running service in this process. Dropping it puts everything back.
#[derive(Debug)]
pub struct Embedded {
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Removed last, where it was made for this service alone.
    _directory: Option<tempfile::TempDir>,
}

impl Embedded {
    /// Starts the service and returns once it answers. Without `api.directory` the folder of its sockets is a fresh
    /// private one, and its journal lies where `qfabric restore` and the next start look for it; its memory is locked only where the configuration says so.
    pub fn start(config: Config) -> Result<Embedded, DaemonError> {
        let (config, directory) = with_directory(config)?;
        let keep = if directory.is_some() { Keep::Apart } else { Keep::WithSockets };
        let service = Service::prepare(&config, keep)?;
        let socket = service.socket();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let serve = move || {
            // A dropped sender says the same as a message; where the starter has given up, nobody is told.
            let stop = async { stopped.await.unwrap_or(()) };
            service.serve(stop, || tell.send(()).unwrap_or(()), || None)
        };
        let spawned = std::thread::Builder::new().name("qf-api".to_owned()).spawn(serve);
        let thread = spawned.map_err(|error| DaemonError::Engine(format!("cannot start the API: {error}")))?;
        let mut embedded = Embedded { socket, stop: Some(stop), thread: Some(thread), _directory: directory };
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
        // Nobody listens where the service ended by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
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
