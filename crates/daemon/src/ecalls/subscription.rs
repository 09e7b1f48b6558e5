//! A working subscription: the steps of its chain in the daemon, its counters, and its removal after faults.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use qfabric_ecode::Fault;
use qfabric_linux::ecalls::{Aim, FileWatch, Installed, KernelObject, signal_queue};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::{clock, watch};
use qfabric_sync::{Lock, assert_may_block, lock, rank};
use qfabric_types::api::ecalls::{
    Author, LeaseId, MemoryUp, OnFault, ServiceId, State, Step, SubscriptionCounters, SubscriptionId, SubscriptionInfo,
    UserBudget,
};
use qfabric_types::channel::Name;
use qfabric_types::event_json::scalar;
use qfabric_types::format::{Format, Scalar};
use qfabric_types::memory::Stamp;
use qfabric_types::{Instant, Nanos, Owner, Share, ThreadId};

use super::drop_aside;
use super::handler::{Handler, Made};
use super::hub::Hub;
use super::memory::{Down, Up};
use super::plan::{Plan, is_handler};
use super::pool::{Backlog, Pool};
use super::raise::Queued;
use super::registry::{GroupKey, Registry};
use crate::channels::Outlet;
use crate::ending::contain;

/// Priority of a receiver with a reservation: that of threads under SCHED_DEADLINE.
const RESERVED: i32 = -101;
/// Priority of a receiver that has ended, or of none: after all threads.
const LAST: i32 = 41;

/// The scheduling priority of a process, that of its main thread ([`SchedAttr::order`]); smaller is first.
pub(super) fn priority_of(pid: i32) -> i32 {
    let attributes = if pid > 0 { SchedAttr::of(ThreadId(pid)).ok() } else { None };
    attributes.map_or(LAST, |attributes| attributes.order())
}

/// The place of an integer in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: usize,
    pub ty: Scalar,
}

impl Place {
    /// The integer at this place of an event.
    pub(super) fn of(self, data: &[u8]) -> i64 {
        scalar(self.ty, data.get(self.offset..).unwrap_or(&[]))
    }
}

/// A handler; locked while it runs.
type HandlerLock = Lock<Handler, { rank::HANDLER }>;

/// One step in the daemon.
pub(crate) enum Stage {
    Handler(HandlerLock),
    /// It and the steps after it run in a handler thread, as does every handler.
    Thread,
    /// Holds the event until the moment at this place.
    Hold(Place, Weak<Hub<Registry, Queued>>),
    /// Writes into `memory_up`; if slots have a meaning, with the place of the slot's number.
    Memory(Option<Place>),
    Signal {
        number: i32,
        value: Option<Place>,
    },
    /// Submits to the channel. It runs in a handler thread, so that its cost counts as the user's.
    Channel,
}

/// The result of an event in the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Blocked,
    /// The event continues in a handler thread, or later.
    HandedOver,
}

pub(crate) struct Subscription {
    pub id: SubscriptionId,
    pub terms: Terms,
    pub chain: Chain,
    pub watched: Watched,
    /// The part of the chain in the kernel.
    pub installed: Lock<Option<Installed>, { rank::INSTALLED }>,
    pub state: Lock<State, { rank::SUBSCRIPTION_STATE }>,
    /// Its events that wait for the dispatcher.
    pub waiting: AtomicUsize,
    /// The scheduling priority of the receiving process when it was last read.
    pub priority: AtomicI32,
    pub backlog: Lock<Backlog, { rank::BACKLOG }>,
    pub tally: Tally,
    pub faults: Lock<FaultWindow, { rank::FAULTS }>,
}

/// Properties that do not change after the installation.
pub(crate) struct Terms {
    pub service: ServiceId,
    pub service_name: String,
    /// Who installed it from another host.
    pub author: Option<Author>,
    pub owner: Owner,
    pub lease: Option<LeaseId>,
    pub process_id: i32,
    pub only_pid: Option<i32>,
    pub group: Option<GroupKey>,
    pub plan: Plan,
    pub deadline: Option<Nanos>,
    /// Whether its events favour the server of the receiving process.
    pub favour: bool,
    pub on_fault: OnFault,
    /// Largest share of a CPU of all handlers of the owner.
    pub max_cpu: Share,
    pub format: Format,
    pub memory: Option<MemoryUp>,
    pub channel: Option<Name>,
    pub memory_bytes: u64,
    pub attributes: Vec<String>,
    /// Instructions for one event, at worst.
    pub instructions: u64,
    /// Interrupts per second of its timer in the kernel.
    pub interrupts: u64,
    pub installed_in_us: u64,
}

/// The steps and memory that its events pass through.
pub(crate) struct Chain {
    pub stages: Vec<Stage>,
    pub down: Arc<Down>,
    pub up: Option<Up>,
    /// The source through which events are submitted to a channel.
    pub outlet: Option<Outlet>,
    /// The servers that its handler in the kernel favours.
    pub aim: Option<Arc<Aim>>,
}

/// The processes whose end ends the subscription.
pub(crate) struct Watched {
    /// The process that receives signals.
    pub target: Option<watch::Process>,
    /// The process whose events it receives, if it is limited to one: another process may get the same number later.
    pub filtered: Option<watch::Process>,
}

/// Counters of the subscription in the daemon; see [`SubscriptionCounters`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// CPU time of its handlers in ns: of those in the daemon, and of those in the kernel after their removal.
    pub run_ns: AtomicU64,
    /// The part of the run time that its owner's account was charged with.
    charged: AtomicU64,
    /// Calls of its handlers, counted as `run_ns`.
    pub calls: AtomicU64,
    /// Share of a CPU that all handlers of its owner took in the last second, in millionths.
    pub used_by_owner: AtomicU32,
    pub events: AtomicU64,
    pub passed: AtomicU64,
    pub blocked: AtomicU64,
    pub faults: AtomicU64,
    pub memory: AtomicU64,
    pub signals: AtomicU64,
    pub channel: AtomicU64,
    pub dropped_memory: AtomicU64,
    pub dropped_queue: AtomicU64,
    pub dropped_signals: AtomicU64,
    pub dropped_channel: AtomicU64,
    pub late: AtomicU64,
    /// Counters of the kernel's part after its removal.
    dropped_ring: AtomicU64,
    contended: AtomicU64,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Subscription {
    /// Carries an event through the chain, from stage `at` on. `pool`: in the dispatcher, which runs no handler; `None`
    /// in a handler thread.
    fn deliver(self: &Arc<Self>, at: usize, data: &[u8], stamp: Stamp, pool: Option<&Pool>) -> Verdict {
        let Some(stage) = self.chain.stages.get(at) else { return Verdict::Passed };
        if let (Stage::Thread | Stage::Handler(_) | Stage::Channel, Some(pool)) = (stage, pool) {
            pool.submit(self, at, data, stamp);
            return Verdict::HandedOver;
        }
        match stage {
            Stage::Thread => {}
            Stage::Handler(handler) => return self.run(handler, at, data, stamp),
            Stage::Hold(place, hub) => return self.hold(hub, place.of(data), at + 1, data, stamp),
            Stage::Memory(place) => self.write(*place, data, stamp),
            Stage::Signal { number, value } => self.signal(*number, value.map_or(0, |place| place.of(data)) as u64),
            Stage::Channel => self.redirect(at, data, stamp),
        }
        self.deliver(at + 1, data, stamp, pool)
    }

    /// As [`Subscription::deliver`], and counts the result.
    pub(super) fn carry(self: &Arc<Self>, at: usize, data: &[u8], stamp: Stamp, pool: Option<&Pool>) {
        if !self.is_active() {
            return;
        }
        match self.deliver(at, data, stamp, pool) {
            Verdict::Passed => count(&self.tally.passed),
            Verdict::Blocked => count(&self.tally.blocked),
            Verdict::HandedOver => {}
        }
    }

    fn run(self: &Arc<Self>, handler: &HandlerLock, at: usize, data: &[u8], stamp: Stamp) -> Verdict {
        // The guard is released before the chain continues: a later step may need the same handler in another
        // thread.
        count(&self.tally.calls);
        let began = thread_time();
        let made = contain(|| lock(handler).call(data));
        self.tally.run_ns.fetch_add(thread_time().saturating_sub(began), Ordering::Relaxed);
        match made {
            Ok(made) => self.continue_chain(&made, at, data, stamp),
            Err(message) => self.failed(&message),
        }
    }

    /// `data`: the event that the handler was called with. Emitted events are delivered also if a fault follows them.
    fn continue_chain(self: &Arc<Self>, made: &Made, at: usize, data: &[u8], stamp: Stamp) -> Verdict {
        for event in &made.emitted {
            self.deliver(at + 1, event, stamp, None);
        }
        match &made.passed {
            Ok(Some(event)) => self.deliver(at + 1, event, stamp, None),
            Ok(None) => Verdict::Blocked,
            Err(fault) => self.faulted(*fault, at, data, stamp),
        }
    }

    /// A panic while a handler ran is a defect of the service that one handler triggers; only this handler is
    /// removed.
    fn failed(&self, message: &str) -> Verdict {
        count(&self.tally.faults);
        let why = format!("the service panicked while the handler ran: {message}");
        tracing::error!(subscription = self.id, why, "handler removed; please report this with the handler's code");
        drop_aside(self.take_out(&why));
        Verdict::Blocked
    }

    fn faulted(self: &Arc<Self>, fault: Fault, at: usize, data: &[u8], stamp: Stamp) -> Verdict {
        count(&self.tally.faults);
        lock(&self.faults).add(1, Some(fault));
        match self.terms.on_fault {
            OnFault::Pass => self.deliver(at + 1, data, stamp, None),
            OnFault::Block => Verdict::Blocked,
        }
    }

    /// Holds the event until `moment`, which is its time from then on. Its next stage is `stage`.
    fn hold(
        self: &Arc<Self>,
        hub: &Weak<Hub<Registry, Queued>>,
        moment: i64,
        stage: usize,
        data: &[u8],
        stamp: Stamp,
    ) -> Verdict {
        let time_ns = u64::try_from(moment).unwrap_or_default();
        let event = Queued { to: self.clone(), stage, data: data.into(), stamp: Stamp { time_ns, ..stamp } };
        // Without a hub the service ends.
        let held = hub.upgrade().map(|hub| hub.hold(clock::now(), Instant::new(time_ns), event));
        if held.is_none_or(|held| held.is_err()) {
            count(&self.tally.dropped_queue);
        }
        Verdict::HandedOver
    }

    fn write(&self, place: Option<Place>, data: &[u8], stamp: Stamp) {
        let Some(up) = &self.chain.up else { return };
        match up.write(data, stamp, place.map(|place| place.of(data) as u64)) {
            true => count(&self.tally.memory),
            false => count(&self.tally.dropped_memory),
        }
    }

    fn redirect(&self, stage: usize, data: &[u8], stamp: Stamp) {
        let Some(outlet) = &self.chain.outlet else { return };
        let began = thread_time();
        let deadline = Some(self.deadline(stage, stamp)).filter(|deadline| *deadline != Instant::NEVER);
        match outlet.submit(data, deadline) {
            true => count(&self.tally.channel),
            false => count(&self.tally.dropped_channel),
        }
        self.tally.run_ns.fetch_add(thread_time().saturating_sub(began), Ordering::Relaxed);
    }

    fn signal(&self, number: i32, value: u64) {
        let sent = self.watched.target.as_ref().map(|target| signal_queue(target.as_fd(), number, value));
        match sent {
            Some(Ok(())) => count(&self.tally.signals),
            _ => count(&self.tally.dropped_signals),
        }
    }

    /// The time until which an event with this `stamp` is useful for the subscription, before `stage` of its chain. The
    /// subscription's own deadline counts only after its events were held.
    pub(super) fn deadline(&self, stage: usize, stamp: Stamp) -> Instant {
        let is_to_hold = self.chain.stages.iter().skip(stage).any(|stage| matches!(stage, Stage::Hold(..)));
        let own = self.terms.deadline.filter(|_| !is_to_hold);
        let own = own.map_or(Instant::NEVER, |deadline| Instant::new(stamp.time_ns) + deadline);
        let events = if stamp.deadline_ns == 0 { Instant::NEVER } else { Instant::new(stamp.deadline_ns) };
        own.min(events)
    }

    /// The processes whose end ends the subscription.
    pub(super) fn processes(&self) -> impl Iterator<Item = &watch::Process> {
        self.watched.target.iter().chain(&self.watched.filtered)
    }

    /// Whether its events favour its servers when they are raised; held events do so at their moments.
    pub(super) fn favours_on_arrival(&self) -> bool {
        self.terms.favour && !self.terms.plan.in_daemon.contains(&Step::Hold)
    }

    /// Whether its hook has favoured its servers already.
    pub(super) fn favours_by_itself(&self) -> bool {
        self.chain.aim.as_ref().is_some_and(|aim| aim.is_aimed())
    }

    /// The scheduling priority of the receiving process, which orders events with equal deadlines; smaller is first.
    pub(super) fn priority(&self) -> i32 {
        match self.favours_by_itself() {
            true => RESERVED,
            false => self.priority.load(Ordering::Relaxed),
        }
    }

    /// Reads the scheduling priority again.
    pub(super) fn read_priority(&self) {
        self.priority.store(priority_of(self.terms.process_id), Ordering::Relaxed);
    }

    pub(super) fn is_active(&self) -> bool {
        *lock(&self.state) == State::Active
    }

    /// Counts new faults of the kernel's part. Returns the reason for the removal if there were more than `limit`
    /// faults within a second.
    pub(super) fn judge(&self, now: Instant, limit: u32) -> Option<String> {
        let found = self.count_faults(now)?;
        if found.count <= limit || !self.is_active() {
            return None;
        }
        let why =
            format!("{} faults within a second, {limit} are allowed; the last one: {}", found.count, shown(found.last));
        Some(why)
    }

    fn count_faults(&self, now: Instant) -> Option<Found> {
        let kernel = lock(&self.installed).as_ref().map(|installed| installed.counters());
        let mut window = lock(&self.faults);
        if let Some(counters) = kernel {
            window.kernel(counters.faults, counters.last_fault);
        }
        window.judge(now)
    }

    /// Stops deliveries; the counters stay. The caller drops the returned kernel part.
    #[must_use]
    pub(super) fn take_out(&self, why: &str) -> Option<Installed> {
        *lock(&self.state) = State::TakenOut { why: why.to_owned() };
        let installed = lock(&self.installed).take();
        if let Some(installed) = &installed {
            self.tally.absorb(installed, self.runs_in_kernel(), self.chain.stages.is_empty());
        }
        installed
    }

    /// The program in the kernel that the receiving process calls; `None`: its service takes no fast calls, or it was
    /// removed.
    pub(super) fn call_fd(&self) -> Option<OwnedFd> {
        lock(&self.installed).as_ref().and_then(Installed::call_fd).and_then(|fd| fd.try_clone_to_owned().ok())
    }

    /// The memory and the program whose descriptors its process receives.
    pub(super) fn objects(&self, files: &FileWatch) -> io::Result<Vec<KernelObject>> {
        let program = lock(&self.installed).as_ref().and_then(Installed::call_object);
        let memory = self.chain.up.as_ref().map_or(Ok(Vec::new()), |up| up.objects(files))?;
        Ok(memory.into_iter().chain(program).collect())
    }

    /// Whether a part of the chain runs in the kernel now.
    pub(super) fn has_kernel_part(&self) -> bool {
        lock(&self.installed).is_some()
    }

    /// Whether it has a handler in the kernel.
    fn runs_in_kernel(&self) -> bool {
        self.terms.plan.in_kernel.iter().any(|step| is_handler(*step))
    }

    /// The CPU time of its owner's handlers; `None`: the owner has no limit.
    fn budget(&self) -> Option<UserBudget> {
        let used = Share::from_ppm(self.tally.used_by_owner.load(Ordering::Relaxed));
        (self.terms.owner.uid != 0).then_some(UserBudget { limit: self.terms.max_cpu, used })
    }

    pub(super) fn counters(&self) -> SubscriptionCounters {
        assert_may_block("reading counters in the kernel");
        let mut counters = self.tally.read();
        if let Some(installed) = lock(&self.installed).as_ref() {
            let kernel = installed.counters();
            counters.events = kernel.events;
            counters.blocked += kernel.blocked;
            // Events that left the kernel are counted where their chain ended; others ended with a signal of the
            // kernel.
            counters.passed += if self.chain.stages.is_empty() { kernel.passed } else { kernel.signals };
            counters.signals += kernel.signals;
            counters.faults += kernel.faults;
            counters.dropped_memory += kernel.dropped_memory;
            counters.dropped_ring = kernel.dropped_ring;
            counters.contended = kernel.contended;
            counters.run_ns += kernel.run_ns;
            counters.calls += if self.runs_in_kernel() { kernel.passed + kernel.blocked } else { 0 };
        }
        if let Some(map) = self.chain.up.as_ref().and_then(Up::map) {
            counters.memory += u64::from(map.reader().flag());
        }
        counters
    }

    /// The number of calls of `printf` of its handlers, and the last lines of each.
    fn printed(&self) -> (u64, Vec<String>) {
        let (mut calls, mut lines) = lock(&self.installed).as_ref().map(Installed::printed).unwrap_or_default();
        for stage in &self.chain.stages {
            if let Stage::Handler(handler) = stage {
                let (more, last) = lock(handler).printed();
                calls += more;
                lines.extend(last);
            }
        }
        (calls, lines)
    }

    pub(super) fn info(&self) -> SubscriptionInfo {
        let value = |(number, name): (usize, &String)| (name.clone(), self.chain.down.words().attribute(number));
        // In a separate `let`: a guard inside the structure expression would live until all of it is built.
        let state = lock(&self.state).clone();
        let (prints, printed) = self.printed();
        SubscriptionInfo {
            printed,
            prints,
            id: self.id,
            service: self.terms.service_name.clone(),
            owner: self.terms.owner,
            host: None,
            author: self.terms.author.clone(),
            process_id: self.terms.process_id,
            only_pid: self.terms.only_pid,
            lease: self.terms.lease,
            in_kernel: self.terms.plan.in_kernel.clone(),
            in_daemon: self.terms.plan.in_daemon.clone(),
            group: self.terms.group.as_ref().map(|group| group.name.clone()),
            format: self.terms.format.clone(),
            memory_up: self.terms.memory.clone(),
            channel: self.terms.channel.clone(),
            attributes: self.terms.attributes.iter().enumerate().map(value).collect(),
            instructions: self.terms.instructions,
            suspended: state != State::Active,
            state,
            budget: self.budget(),
            counters: self.counters(),
            installed_in_us: self.terms.installed_in_us,
        }
    }
}

/// CPU time of the calling thread, in ns.
pub(super) fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn shown(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "unknown".to_owned(), |fault| fault.to_string())
}

impl Tally {
    /// The part of `run_ns`, a reading of the run time, that was not returned by an earlier call.
    pub(super) fn not_charged(&self, run_ns: u64) -> Nanos {
        Nanos::new(run_ns.saturating_sub(self.charged.fetch_max(run_ns, Ordering::Relaxed)))
    }

    fn read(&self) -> SubscriptionCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SubscriptionCounters {
            events: of(&self.events),
            passed: of(&self.passed),
            blocked: of(&self.blocked),
            faults: of(&self.faults),
            memory: of(&self.memory),
            signals: of(&self.signals),
            channel: of(&self.channel),
            dropped_channel: of(&self.dropped_channel),
            dropped_memory: of(&self.dropped_memory),
            dropped_queue: of(&self.dropped_queue),
            dropped_signals: of(&self.dropped_signals),
            late: of(&self.late),
            dropped_ring: of(&self.dropped_ring),
            contended: of(&self.contended),
            run_ns: of(&self.run_ns),
            calls: of(&self.calls),
        }
    }

    /// Adds the kernel's counters before its part is removed. `ends_there`: the chain has no step in the daemon.
    fn absorb(&self, installed: &Installed, has_handlers: bool, ends_there: bool) {
        let kernel = installed.counters();
        for (counter, value) in [
            (&self.events, kernel.events),
            (&self.blocked, kernel.blocked),
            (&self.faults, kernel.faults),
            (&self.dropped_memory, kernel.dropped_memory),
            (&self.passed, if ends_there { kernel.passed } else { kernel.signals }),
            (&self.signals, kernel.signals),
            (&self.dropped_ring, kernel.dropped_ring),
            (&self.contended, kernel.contended),
            (&self.run_ns, kernel.run_ns),
            (&self.calls, if has_handlers { kernel.passed + kernel.blocked } else { 0 }),
        ] {
            counter.fetch_add(value, Ordering::Relaxed);
        }
    }
}

/// Counts faults within the current second.
#[derive(Debug, Default)]
pub(crate) struct FaultWindow {
    began: Option<Instant>,
    count: u32,
    last: Option<Fault>,
    kernel_seen: u64,
}

/// The faults in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub count: u32,
    pub last: Option<Fault>,
}

impl FaultWindow {
    const LENGTH: Nanos = Nanos::from_millis(1_000);

    pub(super) fn add(&mut self, faults: u32, last: Option<Fault>) {
        self.count = self.count.saturating_add(faults);
        self.last = last.or(self.last);
    }

    /// Records the total number of faults of the kernel's part.
    fn kernel(&mut self, faults: u64, last: Option<Fault>) {
        let fresh = faults.saturating_sub(self.kernel_seen);
        self.kernel_seen = faults;
        if fresh > 0 {
            self.add(u32::try_from(fresh).unwrap_or(u32::MAX), last);
        }
    }

    /// The faults since the window began. Begins a new window if it is over.
    fn judge(&mut self, now: Instant) -> Option<Found> {
        let found = Found { count: self.count, last: self.last };
        let began = *self.began.get_or_insert(now);
        if now.since(began) >= Self::LENGTH {
            (self.began, self.count) = (Some(now), 0);
        }
        (found.count > 0).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_ecode::FaultKind;

    #[test]
    fn faults_are_judged_within_a_second() {
        let mut window = FaultWindow::default();
        let at = |ms: u64| Instant::new(ms * 1_000_000);
        let fault = Some(Fault { kind: FaultKind::Index, line: 3 });
        assert_eq!(window.judge(at(0)), None);
        window.add(2, fault);
        assert_eq!(window.judge(at(500)), Some(Found { count: 2, last: fault }));
        window.kernel(5, None);
        window.kernel(6, None);
        assert_eq!(window.judge(at(1_000)).unwrap().count, 8);
        assert_eq!(window.judge(at(1_100)), None, "a new second");
    }

    #[test]
    fn an_integer_is_read_with_its_sign_and_is_zero_beyond_the_end() {
        let place = Place { offset: 2, ty: Scalar::I16 };
        assert_eq!((place.of(&[0, 0, 0xff, 0xff]), place.of(&[0; 3])), (-1, 0));
    }
}
