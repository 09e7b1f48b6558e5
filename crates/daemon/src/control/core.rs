//! The host and the mechanism that carries out what it says: nothing else talks to either.
//!
//! Every input is followed by draining the outputs, and every setting is answered before the next is taken:
//! so the order in which the host shrinks and grows is the order in which the kernel sees it.

use qfabric_host::{Host, HostEvent, Input, Outcome, Output};
use qfabric_linux::{ApplyError, Mechanism};
use qfabric_types::api::Problem;
use qfabric_types::{AppId, Instant, Setting, ThreadId};

use super::counters::Counters;
use super::misses::MissWatch;
use super::notes::{Note, Notes};
use crate::ecalls::Misses;

/// Outputs taken after one input. A host that says more than this is broken; what is left is taken after the
/// next input.
const MOST_OUTPUTS: usize = 16_384;
/// Applications and failures remembered within one look; more than there can be of either.
const REMEMBERED: usize = 1_024;

/// The answer to a request.
pub(crate) type Answer = Result<AppId, Problem>;

/// The host over its mechanism.
pub(crate) struct Core {
    pub host: Host,
    mechanism: Box<dyn Mechanism + Send>,
    pub notes: Notes,
    pub counters: Counters,
    pub misses: MissWatch,
    /// Applications that have no thread left.
    pub empty: Vec<AppId>,
    /// Applications a setting was carried out for since this was last emptied.
    pub changed: Vec<AppId>,
    /// What the mechanism refused for good since this was last cleared.
    pub failures: Vec<ApplyError>,
    answer: Option<Answer>,
}

impl Core {
    pub fn new(host: Host, mechanism: Box<dyn Mechanism + Send>, notes: Notes, misses: Misses) -> Self {
        Core {
            host,
            mechanism,
            notes,
            counters: Counters::default(),
            misses: MissWatch::new(misses),
            empty: Vec::with_capacity(REMEMBERED),
            changed: Vec::with_capacity(REMEMBERED),
            failures: Vec::new(),
            answer: None,
        }
    }

    /// Tells the host, and does what it says.
    pub fn handle(&mut self, input: Input, now: Instant) {
        if let Input::ThreadGone { thread, .. } = input {
            self.mechanism.forget(thread);
        }
        self.host.handle(input, now);
        self.carry_out(now);
    }

    /// The thread is another application's from now on; what it was before the first one is not forgotten.
    pub fn hand_over(&mut self, app: AppId, thread: ThreadId, now: Instant) {
        self.host.handle(Input::ThreadGone { app, thread }, now);
        self.carry_out(now);
    }

    /// A covered thread made another, which inherits what its parent was before it was reserved.
    pub fn born(&mut self, child: ThreadId, parent: ThreadId) {
        self.mechanism.born(child, parent);
    }

    /// Looks after reserved threads; see [`Mechanism::tend`].
    pub fn tend(&mut self) {
        for thread in self.mechanism.tend() {
            self.notes.tell(Note::Rescued { thread });
        }
    }

    /// Looks whether the last job of an application was late, for those who subscribed to that.
    pub fn look_for_miss(&mut self, app: AppId, pid: i32, now: Instant) {
        if self.misses.is_on() {
            self.misses.look(&self.host, app, pid, now);
        }
    }

    /// As [`Core::handle`], for an input that is answered.
    pub fn ask(&mut self, input: Input, now: Instant) -> Answer {
        self.failures.clear();
        self.answer = None;
        self.handle(input, now);
        let unanswered = || Err(crate::problem::internal("the request was not answered".to_owned()));
        self.answer.take().unwrap_or_else(unanswered)
    }

    /// Puts every thread back that is under a reservation, whatever the host thinks.
    pub fn restore_all(&mut self) {
        for error in self.mechanism.restore_all() {
            self.notes.tell(Note::NotApplied(error));
        }
    }

    fn carry_out(&mut self, now: Instant) {
        for _ in 0..MOST_OUTPUTS {
            let Some(output) = self.host.poll() else { return };
            match output {
                Output::Set(setting) => self.apply(setting, now),
                Output::Admitted { app, .. } | Output::Changed { app, .. } => self.answer = Some(Ok(app)),
                Output::Refused { problem, .. } => self.answer = Some(Err(problem)),
                Output::Event(event) => self.note(event),
            }
        }
        self.counters.outputs_left += 1;
    }

    fn apply(&mut self, setting: Setting, now: Instant) {
        let thread = setting.thread;
        let outcome = match self.mechanism.apply(&setting) {
            Ok(()) => Outcome::Done,
            Err(error) => self.failed(error),
        };
        self.counters.count(outcome);
        if let Some(app) = self.host.covering(thread)
            && self.changed.len() < REMEMBERED
        {
            self.changed.push(app);
        }
        self.host.handle(Input::Applied { thread, outcome }, now);
    }

    fn failed(&mut self, error: ApplyError) -> Outcome {
        let outcome = match error {
            ApplyError::Busy { .. } => return Outcome::Busy,
            ApplyError::Gone { .. } => Outcome::Gone,
            _ => Outcome::Denied(error.errno()),
        };
        if self.failures.len() < REMEMBERED {
            self.failures.push(error.clone());
        }
        if outcome != Outcome::Gone {
            self.notes.tell(Note::NotApplied(error));
        }
        outcome
    }

    fn note(&mut self, event: HostEvent) {
        if let HostEvent::Empty { app } = event
            && self.empty.len() < REMEMBERED
        {
            self.empty.push(app);
        }
        self.counters.hear(event);
        self.notes.tell(Note::Host(event));
    }
}

/// However the control thread ends, threads are put back.
impl Drop for Core {
    fn drop(&mut self) {
        self.restore_all();
    }
}
