//! Putting threads back: at once where their state allows it, else step by step, and the monitor that washes.

use std::time::Duration;

use qfabric_types::{Instant, Nanos, ThreadId};

use super::{Deadline, LONGEST_END, MAX_THREADS};
use crate::leaving::{self, Departure, Reading, Step, Watch};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{clock, journal, threads};

/// A departure, and when its next step is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    departure: Departure,
    at: Instant,
}

impl Deadline {
    /// Puts back, or begins to: then [`Mechanism::advance`] goes on with it.
    pub(super) fn release(&mut self, thread: ThreadId) -> Result<(), ApplyError> {
        let Some(held) = self.threads.get(&thread) else { return Ok(()) };
        if held.leaving.is_some() {
            return Ok(());
        }
        if held.given.is_none() {
            self.forget(thread);
            return Ok(());
        }
        let Some(departure) = self.departure_of(thread)? else {
            self.forget(thread);
            return Ok(());
        };
        self.step(thread, departure)
    }

    /// `None`: there is nothing to take it out of.
    fn departure_of(&mut self, thread: ThreadId) -> Result<Option<Departure>, ApplyError> {
        let held = &self.threads[&thread];
        if threads::start_time(thread) != Some(held.before.start) {
            self.forget(thread);
            return Err(ApplyError::Gone { thread });
        }
        let now = SchedAttr::of(thread).map_err(|e| self.read_failed(thread, &e))?;
        let held = &self.threads[&thread];
        let ours = now.policy == Policy::DEADLINE && now != held.before.was;
        Ok(ours.then(|| Departure::begin(thread, now, held.before.was, held.entered)))
    }

    fn step(&mut self, thread: ThreadId, mut departure: Departure) -> Result<(), ApplyError> {
        let stepped = departure.step();
        if threads::start_time(thread) != self.threads.get(&thread).map(|h| h.before.start) {
            self.forget(thread);
            return Err(ApplyError::Gone { thread });
        }
        match stepped.map_err(|e| self.read_failed(thread, &e))? {
            Step::Left { rest } => self.has_left(thread, rest),
            Step::Wait(time) => {
                let at = clock::now() + time;
                self.threads.get_mut(&thread).expect("looked up above").leaving = Some(Leaving { departure, at });
                self.next_step_at(at);
            }
        }
        Ok(())
    }

    fn has_left(&mut self, thread: ThreadId, rest: Nanos) {
        if let Some(held) = self.threads.get(&thread) {
            journal::put_slack_back(&held.before);
            let start = held.before.start;
            self.rest(thread, start, rest);
        }
        self.forget(thread);
    }

    /// The thread is asked for again before it has left: it goes on with what it has.
    pub(super) fn stay(&mut self, thread: ThreadId, now: SchedAttr) {
        if let Some(held) = self.threads.get_mut(&thread)
            && held.leaving.take().is_some()
            && now.policy == Policy::DEADLINE
        {
            held.given = Some(now);
        }
    }

    /// Takes the due steps of departures, and the due looks at suspicious threads.
    pub(super) fn advance_all(&mut self, now: Instant) -> Vec<ApplyError> {
        if self.next_step.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.next_step = None;
        let mut failed = Vec::new();
        for thread in self.threads.keys().copied().collect::<Vec<_>>() {
            match self.threads.get_mut(&thread).and_then(|held| held.leaving.take()) {
                Some(leaving) if leaving.at > now => self.put_off(thread, leaving),
                Some(leaving) => failed.extend(self.step(thread, leaving.departure).err()),
                None => self.look_at_suspicious(thread, now),
            }
        }
        failed
    }

    fn put_off(&mut self, thread: ThreadId, leaving: Leaving) {
        self.next_step_at(leaving.at);
        if let Some(held) = self.threads.get_mut(&thread) {
            held.leaving = Some(leaving);
        }
    }

    fn next_step_at(&mut self, at: Instant) {
        self.next_step = Some(self.next_step.map_or(at, |next| next.min(at)));
    }

    fn look_at_suspicious(&mut self, thread: ThreadId, now: Instant) {
        let due = self.threads.get(&thread).and_then(|h| h.watch.map(|w| w.due(period_of(h.given))));
        match due {
            Some(at) if at > now => self.next_step_at(at),
            Some(_) => {
                self.wash_if_stuck(thread);
                self.look_again(thread);
            }
            None => {}
        }
    }

    /// A suspicious thread is looked at again two periods later.
    pub(super) fn look_again(&mut self, thread: ThreadId) {
        let due = self.threads.get(&thread).and_then(|h| h.watch.map(|w| w.due(period_of(h.given))));
        due.into_iter().for_each(|at| self.next_step_at(at));
    }

    /// Waits until every thread that is to be put back is back, at most about 2 s or two of its periods, and until no
    /// thread is suspicious. Answers those that could not be put back.
    pub fn settle(&mut self) -> Vec<ApplyError> {
        let mut failed = Vec::new();
        while let Some(at) = self.next_step {
            std::thread::sleep(Duration::from_nanos(at.since(clock::now()).get()));
            failed.extend(self.advance_all(clock::now()));
        }
        failed
    }

    /// It is not reserved again until then.
    fn rest(&mut self, thread: ThreadId, start: u64, time: Nanos) {
        let now = clock::now();
        self.resting.retain(|_, (_, until)| now < *until);
        if self.resting.len() >= MAX_THREADS {
            self.resting.retain(|thread, (start, _)| threads::start_time(*thread) == Some(*start));
        }
        if time > Nanos::ZERO && self.resting.len() < MAX_THREADS {
            self.resting.insert(thread, (start, now + time));
        }
    }

    /// A thread that stands still, runnable and without budget, is marked as throttled with nothing to wake it,
    /// whoever left it so. Its 0-lag time is long past, so leaving and coming back washes it. Where that is far away, it leaves
    /// for good.
    pub(super) fn wash_if_stuck(&mut self, thread: ThreadId) -> bool {
        let Some(held) = self.threads.get_mut(&thread).filter(|h| h.leaving.is_none()) else { return false };
        let Some(given) = held.given else { return false };
        if !Watch::is_stuck(&mut held.watch, thread, Nanos::new(given.period_ns))
            || SchedAttr::of(thread).ok() != Some(given)
        {
            return false;
        }
        if Reading::of(thread).known().is_some_and(|account| account.is_far()) {
            let _ = SchedAttr::weightless().give(thread); // with any weight it would hold that until then
        }
        if held.before.was.give(thread).is_err() {
            return false;
        }
        (held.given, held.entered, held.watch) = (None, None, None);
        // Refused: it runs as it did before, and the next setting reserves it again.
        if let Ok((account, watch)) = leaving::enter(thread, given, held.before.was) {
            (held.given, held.entered, held.watch) = (Some(given), account, watch);
        }
        true
    }

    /// For how long the end of a service waits for threads that rest.
    pub(super) fn rest_at_the_end(&self) -> Nanos {
        let alive = |(thread, (start, _)): &(&ThreadId, &(u64, Instant))| threads::start_time(**thread) == Some(*start);
        let until = self.resting.iter().filter(alive).map(|(_, (_, until))| *until).max();
        until.map_or(Nanos::ZERO, |until| until.since(clock::now())).min(LONGEST_END)
    }
}

fn period_of(given: Option<SchedAttr>) -> Nanos {
    Nanos::new(given.map_or(0, |given| given.period_ns))
}
