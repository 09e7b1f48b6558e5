//! The service put together: control thread, API thread, and how both end.
//!
//! ```text
//! prepared ──> control ready ──> sockets bound ──> serving ──(signal, or dropped)──> stopping ──> put back
//!                                                     └──(control thread ends by itself)──> error
//! ```

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qfabric_linux::journal::own::OwnFolder;
use tokio::sync::oneshot;

use crate::api::{self, Sockets};
use crate::books::BooksThread;
use crate::channels::{Channels, MonitorThread, SocketThread};
use crate::config::Config;
use crate::control::{self, Command, Control};
use crate::ecalls::{Dispatcher, Ecalls};
use crate::net::Net;
use crate::reload::Reload;
use crate::startup::{self, DaemonError, Keep, Place};

/// Everything made ready, nothing served yet.
pub(crate) struct Service {
    control: Control,
    sockets: Sockets,
    ecalls: Arc<Ecalls>,
    net: Arc<Net>,
    channels: Arc<Channels>,
    places: usize,
    timeout: Duration,
    /// Held to the end: the next service on this folder starts after everything was put back.
    _lock: File,
    /// Removed after that, too.
    _own: Option<OwnFolder>,
}

impl Service {
    /// Makes everything ready. After this the sockets exist, and callers wait until [`Service::serve`].
    pub fn prepare(config: &Config, keep: Keep) -> Result<Service, DaemonError> {
        let Place { directory, lock, journal, own } = startup::prepare(config, keep)?;
        let failed = |error: std::io::Error| DaemonError::Engine(format!("cannot start ECalls: {error}"));
        let ecalls = Ecalls::new(config.ecalls.clone(), &directory).map_err(failed)?;
        let net = Net::new(&directory, &ecalls).map_err(failed)?;
        let mut control = control::start(config, journal, ecalls.misses())?;
        ecalls.favour_through(control.requests.clone(), control.ready.raised.take());
        let ready = &control.ready;
        let (mechanism, observer, policy) = (ready.mechanism, ready.observer, &ready.policy);
        tracing::info!(capacity = %ready.capacity, mechanism, observer, policy, "control thread is ready");
        let timeout = Duration::from_nanos(config.api.timeout.get());
        let channels = Arc::new(Channels::start(&config.channels, control.requests.clone())?);
        let sockets = api::bind(config, &directory)?;
        Ok(Service {
            control,
            sockets,
            ecalls,
            net,
            channels,
            places: config.api.max_connections,
            timeout,
            _lock: lock,
            _own: own,
        })
    }

    /// Where callers find it.
    pub fn socket(&self) -> PathBuf {
        self.sockets.http_path.clone()
    }

    /// Serves until `stop` resolves; then puts everything back. An error says that the service ended by itself.
    /// `reload` is made within the runtime, where signals can be waited for.
    pub fn serve(
        self,
        stop: impl Future<Output = ()>,
        ready: impl FnOnce(),
        reload: impl FnOnce() -> Option<Reload>,
    ) -> Result<(), DaemonError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DaemonError::Engine(format!("cannot start the API: {error}")))?;
        let Service { control, mut sockets, ecalls, net, channels, places, timeout, _lock, _own } = self;
        let Control { requests, notes, ended, thread, .. } = control;
        let packets = sockets.ecalls.take().expect("bound in prepare, taken once");
        // Dropped on every way out: then nothing of ours is in the kernel any more.
        let dispatcher = Dispatcher::start(ecalls.clone(), packets);
        let _dispatcher = dispatcher.map_err(|error| DaemonError::Engine(format!("cannot start ECalls: {error}")))?;
        let failed = |error| DaemonError::Channels(format!("cannot start the thread of channels.sock: {error}"));
        let events = sockets.channels.take().map(|listener| SocketThread::start(&channels, listener)).transpose();
        let _events = events.map_err(failed)?;
        let monitor = channels.on().ok().map(MonitorThread::start).transpose();
        let _monitor = monitor.map_err(|error| DaemonError::Channels(format!("cannot start the monitor: {error}")))?;
        let booked = BooksThread::start(requests.clone());
        let _booked = booked.map_err(|error| DaemonError::Engine(format!("cannot start looking: {error}")))?;
        let router = api::router(requests.clone(), ecalls, net, channels.clone(), timeout);
        let http = sockets.http.take().expect("bound in prepare, taken once");
        let rings = sockets.rings.take().expect("bound in prepare, taken once");
        let outcome = runtime.block_on(async {
            let serving = [
                tokio::spawn(api::serve_http(http, router, places, timeout)),
                tokio::spawn(api::serve_rings(rings, requests.clone(), places, timeout)),
            ];
            tokio::spawn(log_notes(notes));
            if let Some(reload) = reload() {
                tokio::spawn(reload.run(requests.clone(), channels));
            }
            ready();
            let outcome = wait(stop, ended, serving).await;
            // Nobody new comes in while everything is put back.
            drop(sockets);
            // An error says that the control thread is gone, and has put everything back itself.
            let _ = tokio::time::timeout(timeout, requests.ask(|reply| Command::Stop { reply })).await;
            outcome
        });
        if thread.join().is_err() {
            return Err(DaemonError::Engine("the control thread failed; everything was put back".to_owned()));
        }
        outcome
    }
}

type Serving = tokio::task::JoinHandle<std::io::Result<()>>;

async fn wait(
    stop: impl Future<Output = ()>,
    ended: oneshot::Receiver<()>,
    [http, rings]: [Serving; 2],
) -> Result<(), DaemonError> {
    let failed = |what: &str| Err(DaemonError::Engine(format!("{what} ended by itself")));
    let (http, rings) = (Aborted(http), Aborted(rings));
    let outcome = tokio::select! {
        () = stop => Ok(()),
        _ = ended => failed("the control thread"),
        () = http.ended() => failed("the API's socket"),
        () = rings.ended() => failed("the rings' socket"),
    };
    tracing::info!("stopping: every thread is put back");
    outcome
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
