//! The host and the mechanism that applies its settings. No other code uses either.
//!
//! After every input, all outputs are drained, and every setting is answered before the next one is taken. So the
//! kernel sees decreases and increases in the order in which the host decided them.

use std::sync::Arc;

use qfabric_host::{Host, HostEvent, Input, Outcome, Output};
use qfabric_linux::journal::Journal;
use qfabric_linux::{ApplyError, Mechanism, RaiseTarget, capacity};
use qfabric_types::api::timeline::{TimelineApplication, TimelineEvent};
use qfabric_types::api::{Application, HostLimits, HostStatus, Problem};
use qfabric_types::ring::JobEvent;
use qfabric_types::{AppId, Instant, MechanismFeatures, Nanos, Reservation, ServerCounts, Setting, Share, ThreadId};

use super::aims::Aims;
use super::counters::Counters;
use super::misses::MissWatch;
use super::notes::{Note, Notes};
use super::own::Own;
use super::room::Room;
use super::{mechanism, thread};
use crate::config::{Fallback, supervisor_limits};
use crate::ecalls::Misses;
use crate::timeline::Recorder;

/// Outputs taken after one input. Only a faulty host has more; the rest is taken after the next input.
const MAX_OUTPUTS: usize = 16_384;
/// Applications and failures remembered within one look; more than there can be of either.
const MAX_REMEMBERED: usize = 1_024;

/// The answer to a request.
pub(crate) type Answer = Result<AppId, Problem>;

/// The host together with its mechanism.
pub(crate) struct Core {
    pub host: Host,
    mechanism: Box<dyn Mechanism + Send>,
    pub notes: Notes,
    pub counters: Counters,
    pub misses: MissWatch,
    pub aims: Aims,
    pub timeline: Arc<Recorder>,
    /// Applications without a thread.
    pub empty: Vec<AppId>,
    /// Applications with a setting applied, or a contract changed, since this list was last emptied.
    pub changed: Vec<AppId>,
    /// Permanent refusals of the mechanism since this list was last cleared.
    pub failures: Vec<ApplyError>,
    /// Why the kernel ejected the mechanism that was opened first, if it did.
    pub ejected: Option<String>,
    /// A setting found the mechanism ejected: check at once, not at the next regular check.
    pub gone: bool,
    /// Whether a larger budget helps the running job.
    pub rescues: bool,
    /// Length of a slot, if threads run in slots.
    pub slot: Option<Nanos>,
    /// The CPUs to which the mechanism binds servers, at the last look.
    cpus: Vec<u32>,
    own: Own,
    /// The capacity that may be promised; `None` without a mechanism.
    room: Option<Room>,
    instead: Replacement,
    answer: Option<Answer>,
}

/// What the mechanism that takes over after an ejection needs.
#[derive(Default)]
struct Replacement {
    fallback: Fallback,
    journal: Option<Journal>,
    /// The reservation of the control thread.
    reservation: Option<Reservation>,
}

impl Core {
    pub(super) fn new(host: Host, mechanism: Box<dyn Mechanism + Send>, notes: Notes, misses: Misses) -> Self {
        let MechanismFeatures { rescues, cpus, slots, .. } = mechanism.features();
        Core {
            host,
            mechanism,
            notes,
            counters: Counters::default(),
            misses: MissWatch::new(misses),
            aims: Aims::default(),
            timeline: Arc::default(),
            empty: Vec::with_capacity(MAX_REMEMBERED),
            changed: Vec::with_capacity(MAX_REMEMBERED),
            failures: Vec::new(),
            ejected: None,
            gone: false,
            rescues,
            slot: slots.map(|rules| rules.slot),
            cpus,
            own: Own::default(),
            room: None,
            instead: Replacement::default(),
            answer: None,
        }
    }

    /// Gives the service's own threads a server of the mechanism.
    pub(super) fn with_own(mut self, own: Own) -> Self {
        self.own = own;
        self.cover_own();
        self
    }

    /// Records what happens in `timeline`.
    pub(super) fn with_timeline(mut self, timeline: Arc<Recorder>) -> Self {
        self.timeline = timeline;
        self
    }

    /// Sets the capacity that may be promised.
    pub(super) fn with_room(mut self, room: Option<Room>) -> Self {
        self.room = room;
        self
    }

    /// Records `units` of 2⁻²⁰ CPU that the kernel has booked for no thread: the capacity decreases by this amount.
    /// Negative: the kernel subtracted this amount twice.
    pub(super) fn lose(&mut self, units: i64, now: Instant) {
        let Some(room) = &mut self.room else { return };
        let before = std::mem::replace(&mut self.counters.booked_for_nobody, units);
        if units < 0 && units != before {
            self.notes.push(Note::SubtractedTwice { units: units.unsigned_abs() });
        }
        let lost = capacity::share_of(units.max(0) as u64);
        if room.lose(lost) || (before < 0 && units >= 0) {
            let capacity = room.capacity();
            self.notes.push(Note::BookedForNobody { lost, capacity });
            self.handle(Input::Capacity(capacity), now);
        }
    }

    /// The counters, including the one that the mechanism keeps.
    pub(super) fn counters_now(&self) -> Counters {
        Counters { given_to_the_gone: self.mechanism.given_to_the_gone(), ..self.counters }
    }

    /// Applies changed limits.
    pub(super) fn configure(&mut self, limits: &HostLimits, now: Instant) {
        let room = self.room.as_mut().map(|room| {
            room.configure(limits.capacity);
            room.capacity()
        });
        let allowed = supervisor_limits(limits, room.unwrap_or_default());
        let HostLimits { max_applications, max_threads, .. } = *limits;
        self.handle(Input::Limits { limits: allowed, max_applications, max_threads }, now);
    }

    /// Sets the mechanism that takes over after an ejection.
    pub(super) fn with_fallback(
        mut self,
        fallback: Fallback,
        journal: Option<Journal>,
        reservation: Option<Reservation>,
    ) -> Self {
        self.instead = Replacement { fallback, journal, reservation };
        self
    }

    /// Gives the input to the host and carries out the host's outputs.
    pub(super) fn handle(&mut self, input: Input, now: Instant) {
        if let Input::ThreadGone { thread, .. } = input {
            self.mechanism.forget(thread);
            self.aims.servers_changed();
        }
        self.report_deadline(&input, now);
        self.host.handle(input, now);
        self.carry_out(now);
    }

    /// Tells the mechanism that a job has ended, and reports the deadline of the server when a job ends, or when a thread
    /// sleeps that may have ended one. This deadline is the job's virtual finishing time.
    fn report_deadline(&mut self, input: &Input, now: Instant) {
        let (app, thread) = match *input {
            Input::Job { app, event: JobEvent::End(job) } => {
                let lead = self.host.lead(app);
                lead.into_iter().for_each(|thread| self.mechanism.yielded(thread, job.release));
                (app, lead)
            }
            Input::Ran { app, sample } if sample.slept => {
                (app, self.host.lead(app).filter(|&lead| lead == sample.thread))
            }
            _ => return,
        };
        let Some(thread) = thread else { return };
        if let Some(deadline) = self.mechanism.server_deadline(thread) {
            self.host.handle(Input::Served { app, thread, deadline }, now);
        }
    }
    /// A covered thread created another one, which returns later to the scheduling policy that its parent had
    /// before.
    pub(super) fn born(&mut self, child: ThreadId, parent: ThreadId) {
        self.mechanism.born(child, parent);
    }
    /// Checks reserved threads; see [`Mechanism::tend`].
    pub(super) fn tend(&mut self, now: Instant) {
        for thread in self.mechanism.tend() {
            self.notes.push(Note::Rescued { thread });
        }
        self.look_for_ejection(now);
        self.look_for_cpus(now);
        self.cover_own();
    }
    /// Continues with threads that are leaving; see [`Mechanism::advance`].
    pub(super) fn advance(&mut self, now: Instant) {
        for error in self.mechanism.advance(now) {
            if !matches!(error, ApplyError::Gone { .. }) {
                self.notes.push(Note::NotApplied { app: None, error });
            }
        }
    }
    /// Whether the thread is still leaving.
    pub(super) fn is_leaving(&self, thread: ThreadId) -> bool {
        self.mechanism.is_leaving(thread)
    }

    /// When [`Core::advance`] is due.
    pub(super) fn next_step(&self) -> Option<Instant> {
        self.mechanism.next_step()
    }
    /// Whether regular checks are needed even without applications, because the kernel may eject the scheduler.
    pub(super) fn tends_itself(&self) -> bool {
        self.host.own_cpu().is_some() || self.instead.journal.is_some()
    }
    /// If servers are bound to CPUs: moves the servers of an offline CPU to the others.
    fn look_for_cpus(&mut self, now: Instant) {
        let cpus = self.mechanism.features().cpus;
        if cpus != self.cpus {
            self.notes.push(Note::Cpus { online: cpus.len(), before: self.cpus.len() });
            self.cpus.clone_from(&cpus);
            self.handle(Input::Cpus(cpus), now);
            self.own.move_to(self.host.own_cpu());
        }
    }

    fn cover_own(&mut self) {
        let left_out = self.own.cover(&mut *self.mechanism);
        self.counters.own_threads_left_out += left_out as u64;
    }
    /// If the kernel has ejected the mechanism, every thread is under the normal scheduler. Another mechanism takes
    /// over and gives what it can.
    pub(super) fn look_for_ejection(&mut self, now: Instant) {
        self.gone = false;
        let Some(reason) = self.mechanism.ejected() else { return };
        let Replacement { fallback, journal, reservation } = std::mem::take(&mut self.instead);
        let (mechanism, capacity) = mechanism::replacement(fallback, journal);
        let before = std::mem::replace(&mut self.mechanism, mechanism).name();
        self.own = Own::default();
        let configured = self.room.and_then(|room| room.configured());
        self.room = capacity.map(Room::probed);
        let capacity = self.room.as_mut().map_or(Share::ZERO, |room| {
            room.configure(configured);
            room.capacity()
        });
        if self.room.is_some() {
            thread::reserve_for_ourselves(reservation);
        }
        self.counters.ejections += 1;
        let name = self.mechanism.name();
        self.notes.push(Note::Ejected { mechanism: before, instead: name, reason: reason.clone() });
        self.ejected = Some(format!("{before} was ended by the kernel: {reason}"));
        self.aims.servers_changed();
        let features = self.mechanism.features();
        (self.rescues, self.cpus) = (features.rescues, features.cpus.clone());
        self.slot = features.slots.map(|rules| rules.slot);
        self.handle(Input::Mechanism { name: name.to_owned(), features, capacity }, now);
    }

    /// Favours the server of the application's sink. Returns false if there is none or the mechanism cannot.
    pub(super) fn favour(&mut self, app: AppId, deadline: Option<Instant>) -> bool {
        self.host.sink(app).is_some_and(|thread| self.mechanism.raise(thread, deadline))
    }

    /// The target for events of the application, if the mechanism has such targets.
    pub(super) fn raised_for(&self, app: AppId) -> Option<RaiseTarget> {
        self.mechanism.raised_for(self.host.sink(app)?)
    }

    /// The status of the host, with the counters of its servers.
    pub(super) fn status(&self) -> HostStatus {
        let mut status = self.host.status();
        status.fallback.clone_from(&self.ejected);
        status.tables = self.mechanism.dispatch_tables();
        status.applications.iter_mut().for_each(|app| app.server = self.counts(app));
        status
    }

    /// One application, with the counters of its servers.
    pub(super) fn application(&self, id: AppId) -> Option<Application> {
        let mut app = self.host.application(id)?;
        app.server = self.counts(&app);
        Some(app)
    }

    /// The sum over all its servers; a server that several threads share counts once.
    fn counts(&self, app: &Application) -> Option<ServerCounts> {
        let mut counts = app.threads.iter().filter_map(|thread| self.mechanism.counts(thread.tid));
        let mut sum = counts.next()?;
        if app.contract.static_server().is_none() {
            counts.for_each(|more| sum += more);
        }
        Some(sum)
    }

    /// Reports a miss if the last job of the application was late and there is a subscription to misses.
    pub(super) fn look_for_miss(&mut self, app: AppId, pid: i32, now: Instant) {
        if self.misses.is_on() {
            self.misses.look(&self.host, app, pid, now);
        }
    }

    /// As [`Core::handle`], for an input that has an answer.
    pub(super) fn ask(&mut self, input: Input, now: Instant) -> Answer {
        self.failures.clear();
        self.answer = None;
        self.handle(input, now);
        let unanswered =
            || Err(crate::problem::internal("the control thread gave no answer to the request".to_owned()));
        self.answer.take().unwrap_or_else(unanswered)
    }

    /// Restores every thread that has a reservation, whatever the host has recorded.
    pub(super) fn restore_all(&mut self) {
        for error in self.mechanism.restore_all() {
            self.notes.push(Note::NotApplied { app: None, error });
        }
    }

    fn carry_out(&mut self, now: Instant) {
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.host.poll() else { return };
            match output {
                Output::Set(setting) => self.apply(setting, now),
                Output::GiveBack(setting) => self.give_back(setting, now),
                Output::Admitted { app, .. } => {
                    self.record_join(app, now);
                    self.answer = Some(Ok(app));
                }
                Output::Changed { app, .. } => {
                    // Its next look may be another one, even if no setting follows.
                    self.remember_change(app);
                    self.answer = Some(Ok(app));
                }
                Output::Job { app, job } => self.timeline.add(now, TimelineEvent::Job { app, job }),
                Output::Refused { problem, .. } => self.answer = Some(Err(problem)),
                Output::Event(event) => self.note(event, now),
            }
        }
        self.counters.outputs_left += 1;
    }

    fn apply(&mut self, setting: Setting, now: Instant) {
        let (thread, reservation) = (setting.thread, setting.reservation);
        let outcome = match self.mechanism.apply(&setting) {
            Ok(()) => Outcome::Done,
            Err(error) => self.failed(error),
        };
        self.counters.count(outcome);
        self.aims.servers_changed();
        if let Some(app) = self.host.covering(thread) {
            self.remember_change(app);
        }
        self.host.handle(Input::Applied { thread, outcome }, now);
        if outcome == Outcome::Done {
            self.record_budget(thread, reservation, now);
        }
    }

    /// The ring of the application must show its grant and its next look again.
    fn remember_change(&mut self, app: AppId) {
        if self.changed.len() < MAX_REMEMBERED {
            self.changed.push(app);
        }
    }

    /// Before the settings of the application are applied. A loan has no process, and so no application here.
    fn record_join(&self, app: AppId, now: Instant) {
        if let Some(Application { id, pid, owner, contract, .. }) = self.host.application(app) {
            self.timeline.joined(TimelineApplication { id, name: contract.name, pid, owner }, now);
        }
    }

    fn record_budget(&self, thread: ThreadId, reservation: Option<Reservation>, now: Instant) {
        if let Some(app) = self.host.covering(thread) {
            let reserved = self.host.reserved(app);
            self.timeline.add(now, TimelineEvent::Budget { app, thread, reservation, reserved });
        }
    }

    /// Applies a decrease only while the thread sleeps: its end-of-job message may arrive before it sleeps.
    fn give_back(&mut self, setting: Setting, now: Instant) {
        if self.mechanism.is_at_rest(setting.thread) {
            self.counters.given_back += 1;
            return self.apply(setting, now);
        }
        self.counters.count(Outcome::Awake);
        self.host.handle(Input::Applied { thread: setting.thread, outcome: Outcome::Awake }, now);
    }

    fn failed(&mut self, error: ApplyError) -> Outcome {
        let outcome = match error {
            ApplyError::Busy { .. } => return Outcome::Busy,
            ApplyError::Gone { .. } => Outcome::Gone,
            _ => Outcome::Denied(error.errno()),
        };
        self.gone |= matches!(error, ApplyError::Ejected { .. });
        if self.failures.len() < MAX_REMEMBERED {
            self.failures.push(error.clone());
        }
        if outcome != Outcome::Gone {
            let app = self.host.covering(error.thread());
            self.notes.push(Note::NotApplied { app, error });
        }
        outcome
    }

    fn note(&mut self, event: HostEvent, now: Instant) {
        if let Some(recorded) = super::history::recorded(event) {
            self.timeline.add(now, recorded);
        }
        if let HostEvent::Empty { app } = event
            && self.empty.len() < MAX_REMEMBERED
        {
            self.empty.push(app);
        }
        self.counters.count_event(event);
        self.notes.push(Note::Host(event));
    }
}

/// Restores all threads, however the control thread ends.
impl Drop for Core {
    fn drop(&mut self) {
        self.restore_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use qfabric_host::HostConfig;
    use qfabric_types::api::ApplicationScope;
    use qfabric_types::{Contract, MechanismFeatures, Nanos, Owner, Share};

    use super::*;

    /// Binds servers to the CPUs that the test sets; records the CPU of each setting.
    #[derive(Clone, Default)]
    struct Bound {
        cpus: Arc<Mutex<Vec<u32>>>,
        put: Arc<Mutex<Vec<Option<u32>>>>,
    }

    impl Mechanism for Bound {
        fn name(&self) -> &'static str {
            "bound"
        }
        fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
            self.put.lock().unwrap().push(setting.terms.cpu);
            Ok(())
        }
        fn forget(&mut self, _: ThreadId) {}
        fn given_to_the_gone(&self) -> u64 {
            3
        }
        fn features(&self) -> MechanismFeatures {
            MechanismFeatures { terms: true, cpus: self.cpus.lock().unwrap().clone(), ..MechanismFeatures::default() }
        }
        fn restore_all(&mut self) -> Vec<ApplyError> {
            Vec::new()
        }
    }

    #[test]
    fn reservations_of_threads_that_were_gone_are_counted_by_the_mechanism() {
        let wake = Arc::new(super::super::wake_descriptor().unwrap());
        let host = Host::new(HostConfig::default());
        let core = Core::new(host, Box::new(Bound::default()), Notes::new().0, Misses::new(wake));
        assert_eq!(core.counters_now(), Counters { given_to_the_gone: 3, ..Counters::default() });
    }

    #[test]
    fn a_changed_contract_is_shown_to_its_application_although_no_setting_follows() {
        let wake = Arc::new(super::super::wake_descriptor().unwrap());
        let host = Host::new(HostConfig::default());
        let mut core = Core::new(host, Box::new(Bound::default()), Notes::new().0, Misses::new(wake));
        let (now, contract, covers) = (Instant::new(1), Contract::default(), ApplicationScope::Program);
        let (owner, threads) = (Owner { uid: 1_000, gid: 1_000 }, vec![ThreadId(7)]);
        let join = Input::Join { request: 1, pid: 7, owner, covers, threads, contract: contract.clone(), cpus: None };
        let app = core.ask(join, now).unwrap();
        core.changed.clear();
        core.ask(Input::Change { request: 2, app, contract }, now).unwrap();
        assert_eq!(core.changed, [app]);
    }

    #[test]
    fn servers_of_an_offline_cpu_move_to_another_at_the_next_look() {
        let mechanism = Bound::default();
        mechanism.cpus.lock().unwrap().extend([0, 1]);
        let own = Reservation::new(Nanos::from_micros(500), Nanos::from_millis(5)).ok();
        let config = HostConfig {
            features: mechanism.features(),
            cpu_capacity: Share::from_ppm(900_000),
            own,
            ..HostConfig::default()
        };
        let host = Host::new(config);
        let (cpus, put) = (mechanism.cpus.clone(), mechanism.put.clone());
        let (own, wake) = (Own::new(own, host.own_cpu()), Arc::new(super::super::wake_descriptor().unwrap()));
        let mut core = Core::new(host, Box::new(mechanism), Notes::new().0, Misses::new(wake)).with_own(own);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let run = move || begin.send(()).is_ok() && ended.recv().is_err();
        let thread = std::thread::Builder::new().name("qf-core".into()).spawn(run).unwrap();
        // It has its name now: a thread of another test may have ended before the second look.
        begun.recv().unwrap();
        let look = |core: &mut Core, now: u64| {
            core.tend(Instant::new(now));
            std::mem::take(&mut *put.lock().unwrap())
        };
        while look(&mut core, 1).is_empty() {}
        *cpus.lock().unwrap() = vec![1];
        let moved = look(&mut core, 2);
        assert!(!moved.is_empty() && moved.iter().all(|cpu| *cpu == Some(1)), "{moved:?}");
        assert_eq!((core.host.own_cpu(), core.status().cpus.len()), (Some(1), 1));
        drop(end);
        assert!(thread.join().unwrap());
    }
}
