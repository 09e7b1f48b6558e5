//! The loop of the control thread: collect all events, let the host decide, apply its settings, promise the next
//! look, sleep.
//!
//! ```text
//! sleep ──> requests (≤ 16) ──> ends of processes and leases ──> observer ──> rings (≤ batch each) ──> tick
//!   ^                                                                                                  │
//!   └── until the earliest of: host, rings, observer, births, graces <── promises, grants, settings <──┘
//! ```
//! Each step is bounded, so each turn is bounded; no step blocks. Every turn drains all rings, so that many
//! applications with events at nearly the same time cost one wake-up.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use qfabric_host::Input;
use qfabric_linux::clock;
use qfabric_linux::observe::Observer;
use qfabric_types::api::HostLimits;
use qfabric_types::ring::JobEvent;
use qfabric_types::{AppId, Instant, Nanos};

use super::apps::{App, Apps};
use super::command::Command;
use super::core::Core;
use super::joint::Joints;
use super::loans::Loans;
use super::notes::Note;
use super::pending_leaves::PendingLeave;
use super::rings::{Ring, Round};
use super::sources::{Source, Sources};
use crate::config::{Config, Reclaim};
use crate::ending::Ending;
use crate::memory::Memory;

/// Requests handled per turn; if more wait, the next turn follows without sleep.
const REQUESTS_PER_TURN: usize = 16;
/// Looks at one ring per turn: for the record that woke the thread, and for records that arrive meanwhile.
const ROUNDS: usize = 3;

/// Interval between checks of reserved threads; the second check finds a throttled thread that the kernel has
/// forgotten.
const TEND_EVERY: Nanos = Nanos::from_millis(1_000);

/// The part of the configuration that the loop needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub jobs_per_look: usize,
    pub lease_grace: Nanos,
    pub reclaim: Reclaim,
}

impl Bounds {
    pub(crate) fn of(config: &Config) -> Self {
        Bounds {
            jobs_per_look: config.control.jobs_per_look,
            lease_grace: config.control.lease_grace,
            reclaim: config.contracts.reclaim,
        }
    }
}

/// Everything the control thread owns.
pub(crate) struct Engine {
    pub(super) core: Core,
    pub(super) apps: Apps,
    pub(super) loans: Loans,
    pub(super) joints: Joints,
    pub(super) sources: Sources,
    pub(super) observer: Box<dyn Observer>,
    /// When the observer is polled next; `NEVER` while nothing is observed.
    pub(super) observe_at: Instant,
    /// When reserved threads are checked next, if there are any.
    tend_at: Instant,
    pub(super) bounds: Bounds,
    /// The limits in force.
    pub(super) limits: HostLimits,
    pub(super) memory: Arc<Memory>,
    pub(super) requests_made: u64,
    /// Answered requests to end an application wait here until its threads have left.
    pub(super) pending_leaves: Vec<PendingLeave>,
    commands: Receiver<Command>,
    batch: Vec<JobEvent>,
    /// A step stopped at its bound: do not sleep.
    pub(super) more: bool,
    ending: Ending,
}

impl Engine {
    /// The records of one look still fit without an allocation.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.batch.reserve(bounds.jobs_per_look);
        self.bounds = bounds;
    }

    pub(super) fn new(
        core: Core,
        observer: Box<dyn Observer>,
        bounds: Bounds,
        limits: HostLimits,
        memory: Arc<Memory>,
        commands: Receiver<Command>,
        ending: Ending,
    ) -> io::Result<Self> {
        let sources = Sources::new()?;
        sources.add(&**ending.control_wake(), Source::Request)?;
        for records in observer.descriptors() {
            sources.add(records, Source::Records)?;
        }
        Ok(Engine {
            core,
            apps: Apps::default(),
            loans: Loans::default(),
            joints: Joints::default(),
            sources,
            observer,
            observe_at: Instant::NEVER,
            tend_at: Instant::ZERO,
            bounds,
            limits,
            memory,
            requests_made: 0,
            pending_leaves: Vec::new(),
            commands,
            batch: Vec::with_capacity(bounds.jobs_per_look),
            more: false,
            ending,
        })
    }

    /// Runs until the service ends, then restores everything. Waiting requests are not answered; their callers
    /// receive the problem `stopping`.
    pub(super) fn run(mut self) {
        while !self.ending.has_begun() {
            let now = clock::now();
            self.turn(now);
            let after = clock::now();
            self.core.counters.wakeups += 1;
            self.core.counters.handling.count(after.since(now));
            self.sleep(after);
        }
        self.put_back(clock::now());
    }

    fn turn(&mut self, now: Instant) {
        self.more = false;
        self.count_causes(now);
        self.take_commands(now);
        self.handle_events(now);
        self.end_graces(now);
        self.end_loans(now);
        if now >= self.observe_at {
            self.observe(now);
        }
        self.serve_rings(now);
        // After the rings: otherwise a job that has ended but whose record is unread would count as late.
        if self.core.host.next_wakeup().is_some_and(|due| due <= now) {
            self.core.handle(Input::Tick, now);
            self.serve_rings(now);
        }
        self.look_for_misses(now);
        self.leave_empty(now);
        if self.core.next_step().is_some_and(|due| due <= now) {
            self.core.advance(now);
        }
        self.answer_pending_leaves(now);
        if now >= self.tend_at || self.core.gone {
            self.core.tend(now);
            self.tend_at = now + TEND_EVERY;
        }
        self.aim_handlers();
        self.publish();
    }

    /// Publishes the numbers of this turn to monitors.
    fn publish(&mut self) {
        let Engine { core, apps, .. } = self;
        for (id, app) in &mut apps.by_id {
            if let Some(publisher) = &mut app.publisher {
                publisher.publish(&core.host, *id);
            }
        }
    }

    /// Updates the targets of handlers in the kernel to the servers that exist after this turn.
    fn aim_handlers(&mut self) {
        if self.core.aims.take_stale() {
            let Engine { core, apps, .. } = self;
            core.aims.aim(|pid| apps.of_process(pid).filter_map(|app| core.raised_for(app)).collect());
        }
    }

    /// Checks for deadline misses of jobs that did not come through a ring.
    fn look_for_misses(&mut self, now: Instant) {
        if self.core.misses.is_on() {
            self.apps.by_id.iter().for_each(|(id, app)| self.core.look_for_miss(*id, app.pid, now));
        }
    }

    fn count_causes(&mut self, now: Instant) {
        let is_due = |moment: Option<Instant>| moment.is_some_and(|due| due <= now);
        let promised = |app: &App| is_due(app.ring.as_ref().and_then(Ring::next_look));
        self.core.counters.ticks += u64::from(is_due(self.core.host.next_wakeup()));
        self.core.counters.looks_due += u64::from(self.apps.by_id.values().any(promised));
    }

    fn sleep(&mut self, now: Instant) {
        match self.more {
            true => self.sources.poll(),
            false => self.sources.wait(self.next_turn(), now),
        }
    }

    /// The earliest time at which the loop must run without an event.
    fn next_turn(&self) -> Option<Instant> {
        let of_app = |app: &App| {
            let ring = app.ring.as_ref().and_then(Ring::next_look);
            [ring, app.leaves_at, app.births.next_turn()].into_iter().flatten().min()
        };
        let apps = self.apps.by_id.values().filter_map(of_app).min();
        let observer = (self.observe_at != Instant::NEVER).then_some(self.observe_at);
        let tend = (!self.apps.by_id.is_empty() || self.core.tends_itself()).then_some(self.tend_at);
        let step = self.core.next_step();
        let own = [observer, tend, self.loans.next(), self.next_answer()];
        [self.core.host.next_wakeup(), step, apps].into_iter().chain(own).flatten().min()
    }

    fn take_commands(&mut self, now: Instant) {
        for _ in 0..REQUESTS_PER_TURN {
            let Ok(command) = self.commands.try_recv() else { return };
            self.core.counters.requests += 1;
            self.execute(command, now);
        }
        self.more = true;
    }

    fn handle_events(&mut self, now: Instant) {
        let mut i = 0;
        while let Some(source) = self.sources.event(i) {
            i += 1;
            match source {
                Source::Request => {}
                Source::Records => self.observe_at = now,
                Source::Ring(app) => self.woken_by(app),
                Source::Exit(app) => self.process_ended(app, now),
                Source::Lease(app) => self.lease_ended(app, now),
            }
        }
    }

    fn woken_by(&mut self, id: AppId) {
        let Some(ring) = self.apps.by_id.get_mut(&id).and_then(|app| app.ring.as_mut()) else { return };
        if ring.woken() {
            // This cannot fail for a registered descriptor. If it did, the wake-ups would continue, bounded by the
            // control thread's own reservation.
            let _ = self.sources.silence(&ring.wake, Source::Ring(id), true);
            self.core.notes.push(Note::Silenced { app: id });
        }
    }

    fn process_ended(&mut self, id: AppId, now: Instant) {
        let Some(app) = self.apps.by_id.get(&id) else { return };
        self.core.notes.push(Note::ProcessEnded { app: id, pid: app.pid });
        self.leave(id, now);
    }

    /// The application stays for the grace time, so that a client that lost its connection can connect again.
    fn lease_ended(&mut self, id: AppId, now: Instant) {
        let Some(app) = self.apps.by_id.get_mut(&id) else { return };
        let Some(ring) = app.ring.take() else { return };
        self.sources.remove(&ring.wake);
        self.sources.remove(&ring.lease);
        app.leaves_at = Some(now + self.bounds.lease_grace);
        self.core.notes.push(Note::RingClosed { app: id });
    }

    fn end_graces(&mut self, now: Instant) {
        let over = |(id, app): (&AppId, &App)| app.leaves_at.filter(|at| *at <= now).map(|_| *id);
        while let Some(id) = self.apps.by_id.iter().find_map(over) {
            self.leave(id, now);
        }
    }

    /// An application that covers a single thread leaves when the thread ends. A program stays until its process
    /// ends, because it may have no thread for a moment (exec).
    fn leave_empty(&mut self, now: Instant) {
        while let Some(id) = self.core.empty.pop() {
            if self.apps.by_id.get(&id).is_some_and(|app| !app.is_program()) {
                self.leave(id, now);
            }
        }
    }

    /// Feeds the records of all rings to the host, until the rings are empty and every promise is written. An empty
    /// ring costs one read of its head. A promise or grant is written only if it changed.
    fn serve_rings(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            self.mark_changed();
            if !self.serve_once(now) {
                return;
            }
        }
        self.core.counters.looks_cut_short += 1;
        self.more = true;
    }

    fn mark_changed(&mut self) {
        while let Some(id) = self.core.changed.pop() {
            if let Some(ring) = self.apps.by_id.get_mut(&id).and_then(|app| app.ring.as_mut()) {
                ring.changed = true;
            }
        }
    }

    /// One round over all rings. Returns whether another round is needed.
    fn serve_once(&mut self, now: Instant) -> bool {
        let Engine { apps, core, batch, bounds, sources, .. } = self;
        let mut again = false;
        for (id, app) in &mut apps.by_id {
            let Some(ring) = &mut app.ring else { continue };
            if ring.turn(now) {
                // Cannot fail, as in `woken_by`.
                let _ = sources.silence(&ring.wake, Source::Ring(*id), false);
            }
            let taken = ring.take(batch, bounds.jobs_per_look);
            // Read after the records, so that no job ends in the future from the host's view. The turn may have
            // begun a while ago, if the control thread was throttled in it.
            let now = if taken > 0 { clock::now() } else { now };
            for event in batch.drain(..) {
                if let JobEvent::Checkpoint(checkpoint) = event {
                    // A write to a clock may wait for the driver, so another thread does it.
                    if app.checkpoints.as_ref().is_none_or(|to| !to.tell(*id, checkpoint)) {
                        continue;
                    }
                }
                core.handle(Input::Job { app: *id, event }, now);
                core.look_for_miss(*id, app.pid, now);
            }
            if taken > 0 || ring.needs_promise(now) {
                again |= show(*id, ring, core, taken, now) == Round::Again;
            }
        }
        again || !core.changed.is_empty()
    }
}

/// Publishes the grant in force to the application and promises the next look.
fn show(id: AppId, ring: &mut Ring, core: &Core, taken: usize, now: Instant) -> Round {
    if let Some(grant) = core.host.grant(id) {
        ring.publish(grant);
    }
    ring.promise(core.host.look_at(id), taken, now)
}
