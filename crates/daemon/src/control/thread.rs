//! Starts the control thread: its reservation, the remaining capacity, the journal, the host.
//!
//! The order matters. The thread's own reservation comes first, so that the probed capacity is available to
//! applications. The journal is restored before that (see [`crate::startup`]), so that the reservations of a killed
//! daemon do not reduce the capacity. If the service is killed, threads keep their last reservation: the kernel
//! continues to replenish their budgets, and no thread is throttled below the last decision. The next start
//! restores the threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use qfabric_host::{Host, HostConfig};
use qfabric_linux::journal::Journal;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_linux::{ApplyError, alternatives, memory, observe};
use qfabric_types::api::Problem;
use qfabric_types::{Reservation, Share, ThreadId};
use tokio::sync::{mpsc, oneshot};

use super::command::{Command, Requests, requests};
use super::core::Core;
use super::engine::{Bounds, Engine};
use super::mechanism::{self, Kind, Opened};
use super::notes::{Note, Notes};
use super::own::Own;
use crate::config::{Config, InvalidConfig, supervisor_limits};
use crate::ecalls::Misses;
use crate::ending::Ending;
use crate::memory::Memory;
use crate::timeline::Recorder;

/// The calling thread, in the kernel's interface.
const SELF: ThreadId = ThreadId(0);

/// A running control thread; dropping this value ends it.
pub(crate) struct Control {
    pub requests: Requests,
    /// Taken by the task that logs them.
    pub notes: Option<mpsc::Receiver<Note>>,
    /// Completes when the thread ends, for whatever reason.
    pub ended: oneshot::Receiver<()>,
    pub ready: Ready,
    thread: Option<JoinHandle<()>>,
    ending: Ending,
}

impl Drop for Control {
    /// Ends the service and waits until the control thread has restored everything.
    fn drop(&mut self) {
        self.ending.ask();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was logged by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Facts that the control thread finds at its start.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The capacity that may be promised.
    pub capacity: Share,
    /// Names of the mechanism and the observer in use.
    pub mechanism: &'static str,
    pub observer: &'static str,
    /// The thread's own scheduling policy; if it is not the configured reservation, with the reason.
    pub policy: String,
    /// Memory through which handlers in the kernel raise events for servers, if the mechanism has it.
    pub raised: Option<OwnedFd>,
    /// Memory through which the mechanism is told the clock that it asks for, if it does so.
    pub clock: Option<OwnedFd>,
}

/// The control thread cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub(crate) enum StartError {
    Thread(#[from] io::Error),
    Probe(#[from] ApplyError),
    Config(#[from] InvalidConfig),
    Mechanism(Problem),
    Ended,
}

impl StartError {
    /// The error with its next step.
    pub(crate) fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            StartError::Mechanism(problem) => return problem.clone(),
            StartError::Config(error) => return error.problem(),
            StartError::Thread(error) => (
                format!("cannot start the control thread: {error}"),
                "raise the limits of the service (LimitNPROC, memory)",
            ),
            StartError::Probe(error) => {
                let why = error.problem().message;
                (format!("cannot probe how much bandwidth the kernel admits: {why}"), "run `qfabric doctor`")
            }
            StartError::Ended => ("the control thread ended during its start".to_owned(), "see the log for the cause"),
        };
        Problem::new("not_started", message, next_step)
    }
}

/// Starts the thread and waits until it is ready.
pub(crate) fn start(
    config: &Config,
    journal: Journal,
    misses: Misses,
    memory: Arc<Memory>,
    timeline: Arc<Recorder>,
    ending: &Ending,
) -> Result<Control, StartError> {
    let (requests, commands) = requests(ending.control_wake().clone());
    let (notes, receiver) = Notes::new();
    let (tell_end, ended) = oneshot::channel();
    let (tell_ready, ready) = sync_channel(1);
    let (config, own) = (config.clone(), ending.clone());
    let thread = ending.spawn("qf-control", move || {
        let parts = Parts { config, journal, notes, commands, misses, memory, timeline, ending: own.clone() };
        run(parts, &tell_ready);
        own.all_is_back();
        // Fails if the service is being dropped; then no task waits for the end.
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
    memory: Arc<Memory>,
    timeline: Arc<Recorder>,
    ending: Ending,
}

fn run(parts: Parts, report: &SyncSender<Result<Ready, StartError>>) {
    // If the starter is gone, the engine is not needed.
    match prepare(parts) {
        Ok((engine, ready)) => {
            if report.send(Ok(ready)).is_ok() {
                engine.run();
            }
        }
        Err(error) => drop(report.send(Err(error))),
    }
}

fn prepare(parts: Parts) -> Result<(Engine, Ready), StartError> {
    let Parts { config, journal, notes, commands, misses, memory, timeline, ending } = parts;
    let reservation = config.control_reservation()?;
    let which = mechanism::choose(&config);
    // Before the capacity is probed, so that the probe finds what is available to applications.
    let own_policy = (which != Kind::Ext).then(|| reserve_for_ourselves(reservation));
    memory::prefault_stack();
    let opened = mechanism::open(which, &config, journal)?;
    let own = if which == Kind::Ext { reservation } else { None };
    let host = Host::new(host_config(&config, &opened, own));
    let (name, raised) = (opened.mechanism.name(), opened.mechanism.raised_memory());
    let clock = opened.mechanism.clock_memory();
    let capacity = host.status().capacity;
    let policy = own_policy.unwrap_or_else(|| own_server(own, host.own_cpu()));
    let own = Own::new(own, host.own_cpu());
    let core = Core::new(host, opened.mechanism, notes, misses)
        .with_own(own)
        .with_timeline(timeline)
        .with_room(Some(opened.room))
        .with_fallback(config.mechanism.fallback, opened.journal, reservation);
    let observer = observe::open();
    let ready = Ready { capacity, mechanism: name, observer: observer.name(), policy, raised, clock };
    Ok((Engine::new(core, observer, Bounds::of(&config), config.host_limits(), memory, commands, ending)?, ready))
}

fn host_config(config: &Config, opened: &Opened, own: Option<Reservation>) -> HostConfig {
    HostConfig {
        limits: supervisor_limits(&config.limits, opened.room.capacity()),
        max_applications: config.limits.max_applications,
        max_threads: config.limits.max_threads,
        mechanism: opened.mechanism.name().to_owned(),
        features: opened.mechanism.features(),
        alternatives: alternatives(opened.mechanism.name(), config.mechanism.rules()),
        cpu_capacity: opened.cpu_capacity(),
        own,
        best_effort: opened.best_effort,
        ..HostConfig::default()
    }
}

/// Describes how the service's own threads are scheduled.
fn own_server(own: Option<Reservation>, cpu: Option<u32>) -> String {
    match (own, cpu) {
        (Some(own), Some(cpu)) => format!("a server on CPU {cpu}, {} in {}", own.budget(), own.period()),
        _ => "best effort, as configured".to_owned(),
    }
}

/// Gives the calling thread its reservation, with GRUB reclaiming: in a burst it is not throttled while a CPU
/// idles. If the kernel refuses, SCHED_FIFO runs the thread before everything that is not reserved; if that is
/// refused, too, the thread stays under the normal scheduler. Returns a description of the result.
pub(super) fn reserve_for_ourselves(reservation: Option<Reservation>) -> String {
    let Some(reservation) = reservation else { return "SCHED_OTHER, as configured".to_owned() };
    let (budget, period) = (reservation.budget(), reservation.period());
    let refused = match SchedAttr::deadline(reservation, true).give(SELF) {
        Ok(()) => return format!("SCHED_DEADLINE, {budget} in {period}"),
        Err(error) => error,
    };
    let fifo = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(1) };
    match fifo.give(SELF) {
        Ok(()) => format!("SCHED_FIFO 1, because {budget} in {period} was refused: {refused}"),
        Err(error) => {
            format!("SCHED_OTHER, because {budget} in {period} was refused: {refused}, and SCHED_FIFO: {error}")
        }
    }
}
