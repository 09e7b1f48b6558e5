//! Starting the control thread: its reservation, the room that is left, the journal, the host.
//!
//! Order matters. Its own reservation comes first, so that the probed capacity is what is left for others; the
//! journal was put back before that (see [`crate::startup`]), so that what a killed daemon left is not in the
//! way. If the service is killed, threads keep their last reservation: budgets go on being replenished, and with
//! nobody shrinking them nobody is throttled below what was last decided. The next start puts them back.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use qfabric_host::{Host, HostConfig};
use qfabric_linux::journal::Journal;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_linux::{ApplyError, memory, observe};
use qfabric_types::{Reservation, Share, ThreadId};
use tokio::sync::{mpsc, oneshot};

use super::command::{Command, Requests, requests};
use super::core::Core;
use super::engine::{Bounds, Engine};
use super::mechanism::{self, Opened, Which};
use super::notes::{Note, Notes};
use super::own::Own;
use crate::config::{Config, InvalidConfig, supervisor_limits};
use crate::ecalls::Misses;
use crate::ending::Ending;

/// The calling thread, as the kernel's interface says it.
const SELF: ThreadId = ThreadId(0);

/// A running control thread; it ends when this is dropped.
pub(crate) struct Control {
    pub requests: Requests,
    /// Taken by who logs them.
    pub notes: Option<mpsc::Receiver<Note>>,
    /// Ends when the thread does, for whatever reason.
    pub ended: oneshot::Receiver<()>,
    pub ready: Ready,
    thread: Option<JoinHandle<()>>,
    ending: Ending,
}

impl Drop for Control {
    /// The service ends with its control thread, and not before everything is put back.
    fn drop(&mut self) {
        self.ending.ask();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// What the control thread found out at its start.
#[derive(Debug)]
pub(crate) struct Ready {
    /// What may be promised.
    pub capacity: Share,
    /// What kernel and observer are used.
    pub mechanism: &'static str,
    pub observer: &'static str,
    /// The thread's own policy; where it is not the reservation that was configured, why.
    pub policy: String,
    /// Where handlers in the kernel raise events for servers, where there is such a place.
    pub raised: Option<OwnedFd>,
}

/// The control thread cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot start the control thread: {0}")]
    Thread(#[from] io::Error),
    #[error("cannot find out how much may be reserved: {0}")]
    Probe(#[from] ApplyError),
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    #[error("{0}")]
    Mechanism(String),
    #[error("the control thread ended while it started")]
    Ended,
}

/// Starts the thread and waits until it is ready.
pub(crate) fn start(config: &Config, journal: Journal, misses: Misses, ending: &Ending) -> Result<Control, StartError> {
    let (requests, commands) = requests(ending.control_wake().clone());
    let (notes, receiver) = Notes::new();
    let (tell_end, ended) = oneshot::channel();
    let (tell_ready, ready) = sync_channel(1);
    let (config, own) = (config.clone(), ending.clone());
    let thread = ending.spawn("qf-control", move || {
        let parts = Parts { config, journal, notes, commands, misses, ending: own.clone() };
        live(parts, &tell_ready);
        own.all_is_back();
        // Nobody waits for the end of a service that is being dropped.
        let _ = tell_end.send(());
    })?;
    let ready = ready.recv().map_err(|_| StartError::Ended)??;
    Ok(Control { requests, notes: Some(receiver), ended, ready, thread: Some(thread), ending: ending.clone() })
}

struct Parts {
    config: Config,
    journal: Journal,
    notes: Notes,
    commands: Receiver<Command>,
    misses: Misses,
    ending: Ending,
}

fn live(parts: Parts, tell: &SyncSender<Result<Ready, StartError>>) {
    // The starter waits for this; where it is gone, there is nobody to run for.
    match prepare(parts) {
        Ok((engine, ready)) => {
            if tell.send(Ok(ready)).is_ok() {
                engine.run();
            }
        }
        Err(error) => drop(tell.send(Err(error))),
    }
}

fn prepare(parts: Parts) -> Result<(Engine, Ready), StartError> {
    let Parts { config, journal, notes, commands, misses, ending } = parts;
    let reservation = config.control_reservation()?;
    let which = mechanism::choose(&config);
    // Before the room is probed: what is left then is for others.
    let own_policy = (which == Which::Deadline).then(|| reserve_for_ourselves(reservation));
    memory::prefault_stack();
    let opened = mechanism::open(which, &config, journal)?;
    let own = if which == Which::Ext { reservation } else { None };
    let host = Host::new(host_config(&config, &opened, own));
    let (name, raised) = (opened.mechanism.name(), opened.mechanism.raised_memory());
    let capacity = host.status().capacity;
    let policy = own_policy.unwrap_or_else(|| own_server(own, host.own_cpu()));
    let own = Own::new(own, host.own_cpu());
    let core = Core::new(host, opened.mechanism, notes, misses)
        .with_own(own)
        .with_room(Some(opened.room))
        .with_fallback(config.mechanism.fallback, opened.journal, reservation);
    let observer = observe::open();
    let ready = Ready { capacity, mechanism: name, observer: observer.name(), policy, raised };
    Ok((Engine::new(core, observer, Bounds::of(&config), config.limits, commands, ending)?, ready))
}

fn host_config(config: &Config, opened: &Opened, own: Option<Reservation>) -> HostConfig {
    HostConfig {
        limits: supervisor_limits(&config.limits, opened.room.capacity()),
        max_applications: config.limits.max_applications,
        max_threads: config.limits.max_threads,
        mechanism: opened.mechanism.name().to_owned(),
        abilities: opened.mechanism.abilities(),
        cpu_capacity: opened.cpu_capacity(),
        own,
        best_effort: opened.best_effort,
        ..HostConfig::default()
    }
}

/// How the service's own threads are scheduled, in words.
fn own_server(own: Option<Reservation>, cpu: Option<u32>) -> String {
    match (own, cpu) {
        (Some(own), Some(cpu)) => format!("a server on CPU {cpu}, {} in {}", own.budget(), own.period()),
        _ => "best effort, as configured".to_owned(),
    }
}

/// A reservation that may use what others leave over: under a burst it is not throttled while a CPU idles.
/// Without it, SCHED_FIFO keeps the thread before everything that is not reserved; without that, it runs like
/// anybody else.
pub(super) fn reserve_for_ourselves(reservation: Option<Reservation>) -> String {
    let Some(reservation) = reservation else { return "SCHED_OTHER, as configured".to_owned() };
    let (budget, period) = (reservation.budget(), reservation.period());
    let refused = match SchedAttr::deadline(reservation, true).give(SELF) {
        Ok(()) => return format!("SCHED_DEADLINE, {budget} in {period}"),
        Err(error) => error,
    };
    let fifo = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(1) };
    match fifo.give(SELF) {
        Ok(()) => format!("SCHED_FIFO 1, since {budget} in {period} was refused: {refused}"),
        Err(error) => {
            format!("SCHED_OTHER, since {budget} in {period} was refused: {refused}, and SCHED_FIFO: {error}")
        }
    }
}
