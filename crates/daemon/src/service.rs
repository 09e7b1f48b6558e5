//! The service put together: control thread, API thread, and how both end.
//!
//! ```text
//! prepared ──> control ready ──> sockets bound ──> serving ──(signal, or dropped)──> stopping ──> put back
//!                                                     └──(a thread fails)──> stopping ──> put back ──> error
//! ```
//! How an end begins, and what happens where it does not come in time, says [`crate::ending`].

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qfabric_linux::journal::own::OwnFolder;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::api::{self, Sockets};
use crate::books::BooksThread;
use crate::channels::{Channels, MonitorThread, PolicyThread, SocketThread};
use crate::config::Config;
use crate::control::{self, Control};
use crate::ecalls::{Dispatcher, Ecalls};
use crate::ending::{Ending, Reason};
use crate::net::Net;
use crate::reload::Reload;
use crate::startup::{self, DaemonError, Keep, Place};

/// Requests that are under way when the service ends may take this long. What hangs in the kernel is left behind.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// Everything made ready, nothing served yet.
pub(crate) struct Service {
    /// First: whatever fails, threads are put back before anything else goes.
    control: Control,
    sockets: Sockets,
    ecalls: Arc<Ecalls>,
    net: Arc<Net>,
    channels: Arc<Channels>,
    places: usize,
    timeout: Duration,
    ending: Ending,
    /// Held to the end: the next service on this folder starts after everything was put back.
    _lock: File,
    /// Removed after that, too.
    _own: Option<OwnFolder>,
}

/// What the API thread does beside serving.
pub(crate) struct Beside<Ready, Again> {
    /// Called when callers are served.
    pub ready: Ready,
    /// Made within the runtime, where signals can be waited for.
    pub reload: Again,
}

impl Service {
    /// Makes everything ready. After this the sockets exist, and callers wait until [`Service::serve`].
    pub fn prepare(config: &Config, keep: Keep, ending: &Ending) -> Result<Service, DaemonError> {
        let Place { directory, lock, journal, own } = startup::prepare(config, keep)?;
        ending.journal_in(own.as_ref().map_or(&*directory, OwnFolder::path).to_owned());
        let failed = |error: std::io::Error| DaemonError::Engine(format!("cannot start ECalls: {error}"));
        let ecalls = Ecalls::new(config.ecalls.clone(), &directory, ending).map_err(failed)?;
        let net = Net::new(&directory, &ecalls, ending).map_err(failed)?;
        let mut control = control::start(config, journal, ecalls.misses(), ending)?;
        ecalls.favour_through(control.requests.clone(), control.ready.raised.take());
        let ready = &control.ready;
        let (mechanism, observer, policy) = (ready.mechanism, ready.observer, &ready.policy);
        tracing::info!(capacity = %ready.capacity, mechanism, observer, policy, "control thread is ready");
        let timeout = Duration::from_nanos(config.api.timeout.get());
        let channels = Arc::new(Channels::start(&config.channels, control.requests.clone(), ending)?);
        let sockets = api::bind(config, &directory)?;
        Ok(Service {
            control,
            sockets,
            ecalls,
            net,
            channels,
            places: config.api.max_connections,
            timeout,
            ending: ending.clone(),
            _lock: lock,
            _own: own,
        })
    }

    /// Where callers find it.
    pub fn socket(&self) -> PathBuf {
        self.sockets.http_path.clone()
    }

    /// Serves until its end begins; then puts everything back. An error says that the service ended by itself.
    pub fn serve(mut self, beside: Beside<impl FnOnce(), impl FnOnce() -> Option<Reload>>) -> Result<(), DaemonError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DaemonError::Engine(format!("cannot start the API: {error}")))?;
        let outcome = self.serve_in(&runtime, beside);
        runtime.shutdown_timeout(UNDER_WAY);
        let Service { control, sockets, net, _lock, .. } = self;
        drop(control);
        net.put_back();
        // Only now: the next service finds everything as it was, and its own sockets stay.
        drop((sockets, _lock));
        outcome
    }

    fn serve_in(
        &mut self,
        runtime: &Runtime,
        beside: Beside<impl FnOnce(), impl FnOnce() -> Option<Reload>>,
    ) -> Result<(), DaemonError> {
        let Service { control, sockets, ecalls, net, channels, places, timeout, ending, .. } = self;
        let (requests, places, timeout) = (control.requests.clone(), *places, *timeout);
        let packets = sockets.ecalls.take().expect("bound in prepare, taken once");
        // Dropped on every way out: then nothing of ours is in the kernel any more.
        let dispatcher = Dispatcher::start(ecalls.clone(), packets);
        let _dispatcher = dispatcher.map_err(|error| DaemonError::Engine(format!("cannot start ECalls: {error}")))?;
        let failed = |error| DaemonError::Channels(format!("cannot start the thread of channels.sock: {error}"));
        let events = sockets.channels.take().map(|listener| SocketThread::start(channels, listener, ending));
        let _events = events.transpose().map_err(failed)?;
        let monitor = channels.on().ok().map(|fabric| MonitorThread::start(fabric, ending)).transpose();
        let _monitor = monitor.map_err(|error| DaemonError::Channels(format!("cannot start the monitor: {error}")))?;
        let policies = channels.on().ok().map(|fabric| PolicyThread::start(fabric, ending)).transpose();
        let _policies =
            policies.map_err(|error| DaemonError::Channels(format!("cannot start the policies' thread: {error}")))?;
        let booked = BooksThread::start(requests.clone(), ending);
        let _booked = booked.map_err(|error| DaemonError::Engine(format!("cannot start looking: {error}")))?;
        let router = api::router(requests.clone(), ecalls.clone(), net.clone(), channels.clone(), timeout);
        let http = sockets.http.take().expect("bound in prepare, taken once");
        let rings = sockets.rings.take().expect("bound in prepare, taken once");
        let notes = control.notes.take().expect("there is one control thread, served once");
        let outcome = runtime.block_on(async {
            let serving = [
                tokio::spawn(api::serve_http(http, router, places, timeout)),
                tokio::spawn(api::serve_rings(rings, requests.clone(), places, timeout)),
            ];
            tokio::spawn(log_notes(notes));
            if let Some(reload) = (beside.reload)() {
                tokio::spawn(reload.run(requests, channels.clone()));
            }
            (beside.ready)();
            wait(ending, &mut control.ended, serving).await
        });
        // Nobody new comes in while everything is put back.
        sockets.remove();
        ending.ask();
        outcome
    }
}

type Serving = tokio::task::JoinHandle<std::io::Result<()>>;

async fn wait(
    ending: &Ending,
    control: &mut oneshot::Receiver<()>,
    [http, rings]: [Serving; 2],
) -> Result<(), DaemonError> {
    let failed = |what: &str| Err(DaemonError::Engine(format!("{what} ended by itself")));
    let (http, rings) = (Aborted(http), Aborted(rings));
    let outcome = tokio::select! {
        biased;
        reason = ending.begun() => outcome(reason),
        // It may have seen an end before this thread was told of it.
        _ = control => ending.reason().map_or_else(|| failed("the control thread"), outcome),
        () = http.ended() => failed("the API's socket"),
        () = rings.ended() => failed("the rings' socket"),
    };
    tracing::info!("stopping: every thread is put back");
    outcome
}

fn outcome(reason: &Reason) -> Result<(), DaemonError> {
    match reason {
        Reason::Asked => Ok(()),
        Reason::Panicked { thread, message } => Err(DaemonError::Engine(format!(
            "the thread {thread} failed ({message}), so the service ended; everything is put back, start it again"
        ))),
    }
}

/// A task that does not outlive its owner.
struct Aborted(Serving);

impl Aborted {
    async fn ended(&self) {
        while !self.0.is_finished() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn log_notes(mut notes: tokio::sync::mpsc::Receiver<control::Note>) {
    let mut logbook = control::Logbook::default();
    while let Some(note) = notes.recv().await {
        logbook.log(note, qfabric_linux::clock::now());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::sync_channel;

    use qfabric_linux::testing::{live_lock, may_reserve};

    use super::*;

    /// Ends a test that hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn ask(socket: &PathBuf, path: &str) -> UnixStream {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n").unwrap();
        stream
    }

    fn is_answered(mut stream: UnixStream) -> bool {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    #[test]
    fn a_scrape_that_waits_for_the_kernel_holds_up_no_other_request() {
        if !may_reserve() {
            return;
        }
        let (_alone, folder, ending) = (live_lock(), tempfile::tempdir().unwrap(), Ending::new().unwrap());
        let config = Config::default().in_directory(folder.path());
        let service = Service::prepare(&config, Keep::WithSockets, &ending).unwrap();
        let (net, socket, (tell, told)) = (service.net.clone(), service.socket(), sync_channel(1));
        let ready = move || tell.send(()).unwrap();
        let serving = std::thread::spawn(move || service.serve(Beside { ready, reload: || None }));
        told.recv().unwrap();
        let held = net.hold_up();
        let scrape = ask(&socket, "/metrics");
        // Some of them come when the scrape waits already.
        assert!((0..200).all(|_| is_answered(ask(&socket, "/v1/status"))));
        drop(held);
        assert!(is_answered(scrape));
        ending.ask();
        serving.join().unwrap().unwrap();
    }
}
