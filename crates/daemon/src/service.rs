//! Assembles the service: starts the control thread and the API thread, and ends both.
//!
//! ```text
//! prepared ──> control ready ──> sockets bound ──> serving ──(signal, or dropped)──> stopping ──> restored
//!                                                     └──(a thread fails)──> stopping ──> restored ──> error
//! ```
//! [`crate::ending`] describes how an end begins and what happens if a thread does not end in time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use qfabric_linux::journal::own::OwnFolder;
use qfabric_types::Nanos;
use qfabric_types::api::Problem;
use qfabric_types::channel::Name;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::answer;
use crate::api::{self, Sockets};
use crate::books;
use crate::channels::{Channels, SocketThread, start_monitor, start_path, start_policies, start_renewal};
use crate::config::Config;
use crate::configured::{self, Configured, ContractConfig};
use crate::contracts::{self, Contracts, JointConfig};
use crate::control::{self, Control};
use crate::ecalls::{Ecalls, start_dispatcher, start_far};
use crate::ending::{self, Ending, Reason, Running};
use crate::energy::{self, EnergyAccount};
use crate::memory::{self, Memory};
use crate::net::Net;
use crate::reload::{self, Reload};
use crate::startup::{self, DaemonError, Keep, Place};
use crate::timeline::Recorder;
use crate::web::{Web, serve_web};

/// Time that requests in progress have to finish when the service ends. A request that hangs in the kernel is
/// abandoned.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// A service with all parts ready that does not answer callers yet.
pub(crate) struct Service {
    /// Declared first, so that whatever fails, the threads are restored before anything else is dropped.
    control: Control,
    sockets: Sockets,
    ecalls: Arc<Ecalls>,
    net: Arc<Net>,
    memory: Arc<Memory>,
    timeline: Arc<Recorder>,
    /// The address for metrics, if there is one; taken when it is served.
    metrics: Option<api::MetricsSocket>,
    web: Arc<Web>,
    /// Gets the listening socket of the web page when a user asks for the page; taken when it is served.
    opened: Option<tokio::sync::mpsc::Receiver<std::net::TcpListener>>,
    channels: Arc<Channels>,
    energy: Arc<EnergyAccount>,
    /// Time between two looks of the account of energy.
    energy_period: Nanos,
    /// Present if the daemon answers measurements of delays.
    _answer: Option<Running>,
    /// The name of this host in joint contracts.
    host: Name,
    joint: JointConfig,
    /// The tables `[[contract]]`; taken when their thread starts.
    contract: Vec<ContractConfig>,
    /// Real-time priority of the threads that carry events and contracts.
    priority: u32,
    places: usize,
    timeout: Duration,
    ending: Ending,
    /// Held to the end: the next service on this folder starts only after everything is restored.
    _lock: File,
    /// Removed after the lock is released.
    _own: Option<OwnFolder>,
}

/// The threads of a service. They end in this order when they are dropped; the end of the dispatcher removes all our
/// programs from the kernel.
struct Threads {
    _configured: Running,
    _joint: Running,
    _energy: Running,
    _books: Running,
    _policies: Option<Running>,
    _monitor: Option<Running>,
    _path: Option<Running>,
    _renewal: Option<Running>,
    _far: Option<Running>,
    _events: Option<SocketThread>,
    _dispatcher: Running,
}

/// Functions that the API thread calls besides serving.
pub(crate) struct ServeHooks<Ready, Again> {
    /// Called once, when the sockets answer.
    pub ready: Ready,
    /// Called inside the runtime, because only there signals can be waited for.
    pub reload: Again,
}

impl Service {
    /// Makes everything ready. Afterwards the sockets exist, and callers wait until [`Service::serve`].
    pub(crate) fn prepare(config: &Config, keep: Keep, ending: &Ending) -> Result<Service, DaemonError> {
        let Place { directory, lock, journal, own } = startup::prepare(config, keep)?;
        ending.journal_in(own.as_ref().map_or(&*directory, OwnFolder::path).to_owned());
        let failed = |error: std::io::Error| DaemonError::Engine(format!("cannot start ECalls: {error}"));
        let ecalls = Ecalls::new(config.ecalls.clone(), &directory, ending).map_err(failed)?;
        let kept_in = own.as_ref().map_or(&*directory, OwnFolder::path);
        let net = Net::new(kept_in, config.net.requests(), &ecalls, ending).map_err(failed)?;
        let failed = |error: std::io::Error| DaemonError::Engine(format!("cannot start the thread of memory: {error}"));
        let memory = Memory::start(&config.memory, kept_in, ending).map_err(failed)?;
        let timeline = Arc::new(Recorder::new(qfabric_linux::clock::now()));
        ecalls.record_in(timeline.clone());
        let recorder = timeline.clone();
        let mut control = control::start(config, journal, ecalls.misses(), memory.clone(), recorder, ending)?;
        ecalls.favour_through(control.requests.clone(), control.ready.raised.take());
        let ready = &control.ready;
        let (mechanism, observer, policy) = (ready.mechanism, ready.observer, &ready.policy);
        tracing::info!(capacity = %ready.capacity, mechanism, observer, policy, "control thread is ready");
        let timeout = Duration::from_nanos(config.api.timeout.get());
        let channels = Arc::new(Channels::start(
            &config.channels,
            control.requests.clone(),
            net.board(),
            timeline.clone(),
            ending,
        )?);
        ecalls.redirect_through(channels.clone());
        let answer = config.net.answer.map(|port| answer::start_thread(port.get(), ending)).transpose();
        let answer = answer.map_err(|error| {
            let next_step = "choose another UDP port, or remove the key";
            DaemonError::Part(Problem::new("net_answer", format!("net.answer: {error}"), next_step))
        })?;
        let energy = EnergyAccount::new(&config.energy, own.as_ref().map_or(&*directory, OwnFolder::path))?;
        control.ready.clock.take().iter().for_each(|memory| energy.ask_scheduler(memory));
        let sockets = api::bind(config, &directory)?;
        let (web, opened) = Web::start(&config.web).map_err(DaemonError::Part)?;
        Ok(Service {
            control,
            sockets,
            ecalls,
            net,
            memory,
            timeline,
            metrics: config.metrics.open()?,
            web,
            opened: Some(opened),
            channels,
            energy,
            energy_period: config.energy.period,
            _answer: answer,
            host: config.channels.name().unwrap_or_else(|| "localhost".parse().expect("is a name")),
            joint: config.joint.clone(),
            contract: config.contract.clone(),
            priority: config.channels.priority,
            places: config.api.max_connections,
            timeout,
            ending: ending.clone(),
            _lock: lock,
            _own: own,
        })
    }

    /// Path of the HTTP socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.sockets.http_path.clone()
    }

    /// Serves until the end begins, then restores everything. An error means that the service ended without a
    /// request.
    pub(crate) fn serve(
        mut self,
        hooks: ServeHooks<impl FnOnce(), impl FnOnce() -> Option<Reload>>,
    ) -> Result<(), DaemonError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DaemonError::Engine(format!("cannot start the API: {error}")))?;
        let outcome = self.serve_in(&runtime, hooks);
        runtime.shutdown_timeout(DRAIN_TIMEOUT);
        let Service { control, sockets, net, memory, energy, _lock, .. } = self;
        drop(control);
        energy.put_back();
        net.put_back();
        memory.put_back();
        // Dropped only now: the next service finds everything restored, and this one does not remove the next one's
        // sockets.
        drop((sockets, _lock));
        outcome
    }

    /// What joint contracts use.
    fn parts(&self) -> contracts::Parts {
        contracts::Parts {
            host: self.host.clone(),
            requests: self.control.requests.clone(),
            memory: self.memory.clone(),
            net: self.net.clone(),
            channels: self.channels.clone(),
            config: self.joint.clone(),
            priority: self.priority,
        }
    }

    /// Starts the threads that do the service's work beside the control thread; also returns what contracts are asked of.
    fn start_threads(&mut self) -> Result<(Threads, Arc<Contracts>, Arc<Configured>), DaemonError> {
        let parts = self.parts();
        let Service { control, sockets, ecalls, net, channels, energy, energy_period, contract, ending, .. } = self;
        let packets = sockets.ecalls.take().expect("bound in prepare, taken once");
        let dispatcher = start_dispatcher(ecalls.clone(), packets);
        let dispatcher = dispatcher.map_err(|error| DaemonError::Engine(format!("cannot start ECalls: {error}")))?;
        let far = channels.on().ok().map(|fabric| {
            fabric.hear_ecalls(&ecalls.far_inbox());
            start_far(ecalls, ending)
        });
        let far = far.transpose();
        let far = far.map_err(|error| DaemonError::Engine(format!("cannot start ECalls with other hosts: {error}")))?;
        let failed = |error| DaemonError::channels(format!("cannot start the thread of channels.sock: {error}"));
        if let Ok(fabric) = channels.on() {
            net.report_to(fabric);
        }
        let events = sockets.channels.take().map(|listener| SocketThread::start(channels, listener, ending));
        let events = events.transpose().map_err(failed)?.flatten();
        let monitor = channels.on().ok().map(|fabric| start_monitor(fabric, ending)).transpose();
        let monitor = monitor.map_err(|error| DaemonError::channels(format!("cannot start the monitor: {error}")))?;
        let path = channels.on().ok().map(|fabric| start_path(fabric, ending)).transpose();
        let path = path.map_err(|error| DaemonError::channels(format!("cannot start the thread qf-path: {error}")))?;
        let renewal = channels.on().ok().map(|fabric| start_renewal(fabric, ending)).transpose();
        let renewal =
            renewal.map_err(|error| DaemonError::channels(format!("cannot start the thread qf-renewal: {error}")))?;
        let policies = channels.on().ok().map(|fabric| start_policies(fabric, ending)).transpose();
        let policies =
            policies.map_err(|error| DaemonError::channels(format!("cannot start the policies' thread: {error}")))?;
        let books = books::start_thread(control.requests.clone(), ending);
        let books = books.map_err(|error| DaemonError::Engine(format!("cannot start the thread qf-books: {error}")))?;
        let energy = energy::start_thread(energy.clone(), control.requests.clone(), *energy_period, ending)?;
        let joint = contracts::start_thread(parts, ending);
        let (joint, contracts) =
            joint.map_err(|error| DaemonError::Engine(format!("cannot start the thread of contracts: {error}")))?;
        let configured = configured::start_thread(std::mem::take(contract), control.requests.clone(), ending);
        let (thread, configured) = configured
            .map_err(|error| DaemonError::Engine(format!("cannot start the thread of [[contract]]: {error}")))?;
        let threads = Threads {
            _configured: thread,
            _joint: joint,
            _energy: energy,
            _books: books,
            _policies: policies,
            _monitor: monitor,
            _path: path.flatten(),
            _renewal: renewal.flatten(),
            _far: far,
            _events: events,
            _dispatcher: dispatcher,
        };
        Ok((threads, contracts, configured))
    }

    fn context(&self, contracts: &Arc<Contracts>, configured: &Arc<Configured>) -> api::Context {
        api::Context {
            requests: self.control.requests.clone(),
            ecalls: self.ecalls.clone(),
            net: self.net.clone(),
            memory: self.memory.clone(),
            timeline: self.timeline.clone(),
            channels: self.channels.clone(),
            contracts: contracts.clone(),
            configured: configured.clone(),
            energy: self.energy.clone(),
            web: self.web.clone(),
            timeout: self.timeout,
        }
    }

    fn serve_in(
        &mut self,
        runtime: &Runtime,
        hooks: ServeHooks<impl FnOnce(), impl FnOnce() -> Option<Reload>>,
    ) -> Result<(), DaemonError> {
        let (_threads, joint, configured) = self.start_threads()?;
        self.ending.own_this_thread();
        let context = self.context(&joint, &configured);
        let (router, metrics_router) = (api::router(context.clone()), api::metrics_router(context));
        let page_router = router.clone();
        let Service {
            control,
            sockets,
            net,
            ecalls,
            memory,
            metrics,
            web,
            opened,
            channels,
            places,
            timeout,
            ending,
            ..
        } = self;
        let opened = opened.take().expect("made in prepare, taken once");
        let (requests, places, timeout) = (control.requests.clone(), *places, *timeout);
        let http = sockets.http.take().expect("bound in prepare, taken once");
        let rings = sockets.rings.take().expect("bound in prepare, taken once");
        let reserves = sockets.memory.take().expect("bound in prepare, taken once");
        let notes = control.notes.take().expect("there is one control thread, served once");
        let outcome = runtime.block_on(async {
            let mut tasks = Tasks::default();
            tasks.spawn("the API's socket", api::serve_http(http, router, places, timeout));
            tasks.spawn("the rings' socket", api::serve_rings(rings, requests.clone(), places, timeout));
            tasks.spawn("the socket for memory", memory::serve(reserves, memory.clone(), places));
            tasks.spawn("the log of the control thread", log_notes(notes));
            let (metrics_to, metrics_at) = tokio::sync::mpsc::channel(1);
            let serving = api::serve_metrics(metrics.take(), metrics_at, metrics_router, timeout);
            tasks.spawn("the socket for metrics", serving);
            tasks.spawn("the web page", serve_web(web.clone(), opened, page_router, timeout));
            if let Some(reload) = (hooks.reload)() {
                let (channels, net, ecalls, web) = (channels.clone(), net.clone(), ecalls.clone(), web.clone());
                let (contracts, metrics) = (joint.clone(), metrics_to);
                let folder = sockets.http_path.parent().unwrap_or(Path::new("/")).to_owned();
                let parts =
                    reload::Parts { folder, requests, channels, net, contracts, configured, ecalls, web, metrics };
                tasks.spawn("the reload at SIGHUP", reload.run(parts));
            }
            (hooks.ready)();
            wait(ending, &mut control.ended, &mut tasks).await
        });
        // No new caller connects while everything is restored.
        sockets.remove();
        ending.ask();
        outcome
    }
}

async fn wait(ending: &Ending, control: &mut oneshot::Receiver<()>, tasks: &mut Tasks) -> Result<(), DaemonError> {
    let failed = |what: &str| Err(DaemonError::Engine(format!("{what} ended unexpectedly")));
    let outcome = tokio::select! {
        biased;
        reason = ending.begun() => outcome(reason),
        // The control thread may have seen the end before this thread was notified.
        _ = control => ending.reason().map_or_else(|| failed("the control thread"), outcome),
        (task, why) = tasks.ended() => failed(&format!("{task} ({why})")),
    };
    tracing::info!("stopping: restoring every thread to its former scheduler");
    outcome
}

fn outcome(reason: &Reason) -> Result<(), DaemonError> {
    match reason {
        Reason::Asked => Ok(()),
        Reason::Panicked { thread, message } => Err(DaemonError::Engine(format!(
            "the thread {thread} failed ({message}), so the service ended; every thread is restored"
        ))),
    }
}

/// The tasks of the API's thread, each with its name. The service does not go on without one of them. They are
/// aborted when this is dropped.
#[derive(Default)]
struct Tasks {
    running: JoinSet<io::Result<()>>,
    names: HashMap<tokio::task::Id, &'static str>,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = io::Result<()>> + Send + 'static) {
        self.names.insert(self.running.spawn(task).id(), name);
    }

    /// Waits until a task fails or panics; returns its name and the cause. A task may end without an error: it has
    /// nothing more to do.
    async fn ended(&mut self) -> (&'static str, String) {
        while let Some(ended) = self.running.join_next_with_id().await {
            let name = |id| self.names.get(&id).copied().unwrap_or("a task of the API");
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((id, Err(error))) => return (name(id), error.to_string()),
                Err(error) => return (name(error.id()), ending::cause_of(error)),
            }
        }
        std::future::pending().await
    }
}

async fn log_notes(mut notes: tokio::sync::mpsc::Receiver<control::Note>) -> io::Result<()> {
    let mut logbook = control::Logbook::default();
    while let Some(note) = notes.recv().await {
        logbook.log(note, qfabric_linux::clock::now());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::sync_channel;

    use qfabric_linux::testing::{live_lock, may_reserve};

    use super::*;

    /// Bound of every wait, so that the test fails instead of hanging.
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn ask(socket: &PathBuf, path: &str) -> UnixStream {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n").unwrap();
        stream
    }

    fn is_answered(mut stream: UnixStream) -> bool {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    #[tokio::test]
    async fn a_task_that_panics_or_fails_is_named_and_one_that_is_done_is_not() {
        let mut tasks = Tasks::default();
        tasks.spawn("a page that nobody opens", async { Ok(()) });
        tasks.spawn("the socket for memory", async { panic!("the {}th request", 5) });
        assert_eq!(tasks.ended().await, ("the socket for memory", "the 5th request".to_owned()));
        tasks.spawn("the web page", async { Err(io::Error::other("no descriptor")) });
        assert_eq!(tasks.ended().await, ("the web page", "no descriptor".to_owned()));
    }

    /// A request to a worker thread that panics, in a service whose API runs in the calling thread.
    #[test]
    fn a_panic_in_a_worker_thread_or_a_connection_of_the_api_ends_the_service() {
        for is_worker in [true, false] {
            let ending = Ending::new().unwrap();
            ending.own_this_thread();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let thread = runtime.block_on(async {
                match is_worker {
                    true => drop(ending::worker("API worker", || panic!("half of a change")).await),
                    false => drop(ending::spawn("API connection", async { panic!("half of a change") }).await),
                }
                if is_worker { "API worker" } else { "API connection" }
            });
            let message = "half of a change".to_owned();
            assert_eq!(ending.reason(), Some(&Reason::Panicked { thread, message }));
        }
    }

    #[test]
    fn a_scrape_that_waits_for_the_kernel_delays_no_other_request() {
        if !may_reserve() {
            return;
        }
        let (_alone, folder, ending) = (live_lock(), tempfile::tempdir().unwrap(), Ending::new().unwrap());
        let config = Config::default().in_directory(folder.path());
        let service = Service::prepare(&config, Keep::WithSockets, &ending).unwrap();
        let (net, socket, (notify, is_ready)) = (service.net.clone(), service.socket(), sync_channel(1));
        let ready = move || notify.send(()).unwrap();
        let serving = std::thread::spawn(move || service.serve(ServeHooks { ready, reload: || None }));
        is_ready.recv().unwrap();
        let held = net.hold_up();
        let scrape = ask(&socket, "/metrics");
        // Some of these requests arrive while the scrape waits.
        assert!((0..200).all(|_| is_answered(ask(&socket, "/v1/status"))));
        drop(held);
        assert!(is_answered(scrape));
        ending.ask();
        serving.join().unwrap().unwrap();
    }
}
