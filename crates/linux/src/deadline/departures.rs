//! Puts threads back, at once or step by step, and clears stale throttled marks.

use std::time::Duration;

use qfabric_types::{Instant, Nanos, ThreadId};

use super::{Deadline, LONGEST_END, MAX_THREADS};
use crate::leaving::{self, Departure, Reading, Step, Watch};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{clock, journal, threads};

#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    departure: Departure,
    at: Instant,
}

impl Deadline {
    /// Puts `thread` back at once, or begins its departure; [`Mechanism::advance`] then continues the departure.
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

    /// `None`: the thread is not under a reservation of this mechanism.
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

    /// A new setting arrives before the thread has left: ends the departure, and the thread keeps its reservation.
    pub(super) fn cancel_departure(&mut self, thread: ThreadId, now: SchedAttr) {
        if let Some(held) = self.threads.get_mut(&thread)
            && held.leaving.take().is_some()
            && now.policy == Policy::DEADLINE
        {
            held.given = Some(now);
        }
    }

    /// Takes all due steps of departures, and makes all due checks of suspicious threads.
    pub(super) fn advance_all(&mut self, now: Instant) -> Vec<ApplyError> {
        if self.next_step.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.next_step = None;
        let mut failed = Vec::new();
        for thread in self.threads.keys().copied().collect::<Vec<_>>() {
            match self.threads.get_mut(&thread).and_then(|held| held.leaving.take()) {
                Some(leaving) if leaving.at > now => self.postpone(thread, leaving),
                Some(leaving) => failed.extend(self.step(thread, leaving.departure).err()),
                None => self.check_suspicious(thread, now),
            }
        }
        failed
    }

    fn postpone(&mut self, thread: ThreadId, leaving: Leaving) {
        self.next_step_at(leaving.at);
        if let Some(held) = self.threads.get_mut(&thread) {
            held.leaving = Some(leaving);
        }
    }

    fn next_step_at(&mut self, at: Instant) {
        self.next_step = Some(self.next_step.map_or(at, |next| next.min(at)));
    }

    fn check_suspicious(&mut self, thread: ThreadId, now: Instant) {
        let due = self.threads.get(&thread).and_then(|h| h.watch.map(|w| w.due(period_of(h.given))));
        match due {
            Some(at) if at > now => self.next_step_at(at),
            Some(_) => {
                self.clear_mark_if_stuck(thread);
                self.schedule_check(thread);
            }
            None => {}
        }
    }

    /// Schedules the next check of a suspicious thread, two periods after the last one.
    pub(super) fn schedule_check(&mut self, thread: ThreadId) {
        let due = self.threads.get(&thread).and_then(|h| h.watch.map(|w| w.due(period_of(h.given))));
        due.into_iter().for_each(|at| self.next_step_at(at));
    }

    /// Waits until every leaving thread is put back (for at most about 2 s, or two of its periods) and no thread is
    /// suspicious. Returns the errors of the threads that could not be put back.
    pub fn settle(&mut self) -> Vec<ApplyError> {
        let mut failed = Vec::new();
        while let Some(at) = self.next_step {
            std::thread::sleep(Duration::from_nanos(at.since(clock::now()).get()));
            failed.extend(self.advance_all(clock::now()));
        }
        failed
    }

    /// Refuses new reservations of the thread for `time`.
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

    /// A runnable thread that does not run for two periods has a stale throttled mark, and no timer will wake it. Its
    /// 0-lag time has long passed, so leaving and entering again clears the mark. If its deadline is far away, the
    /// thread leaves for good. Returns `true` if the thread left.
    pub(super) fn clear_mark_if_stuck(&mut self, thread: ThreadId) -> bool {
        let Some(held) = self.threads.get_mut(&thread).filter(|h| h.leaving.is_none()) else { return false };
        let Some(given) = held.given else { return false };
        if !Watch::is_stuck(&mut held.watch, thread, Nanos::new(given.period_ns))
            || SchedAttr::of(thread).ok() != Some(given)
        {
            return false;
        }
        let account = Reading::of(thread).known();
        if account.is_some_and(|a| a.is_far(Nanos::new(given.period_ns)) || a.runtime_ns >= 0) {
            // A larger bandwidth would stay booked until the far deadline; or for ever, if the thread has budget and
            // runs at this moment and falls asleep.
            let _ = SchedAttr::weightless().give(thread);
        }
        if held.before.was.give(thread).is_err() {
            return false;
        }
        (held.given, held.entered, held.watch) = (None, None, None);
        // If refused, the thread runs as before its reservation, and the next setting reserves it again.
        if let Ok((account, watch)) = leaving::enter(thread, given, held.before.was) {
            (held.given, held.entered, held.watch) = (Some(given), account, watch);
        }
        true
    }

    /// Time that the end of a service waits for resting threads.
    pub(super) fn rest_at_the_end(&self) -> Nanos {
        let alive = |(thread, (start, _)): &(&ThreadId, &(u64, Instant))| threads::start_time(**thread) == Some(*start);
        let until = self.resting.iter().filter(alive).map(|(_, (_, until))| *until).max();
        until.map_or(Nanos::ZERO, |until| until.since(clock::now())).min(LONGEST_END)
    }
}

fn period_of(given: Option<SchedAttr>) -> Nanos {
    Nanos::new(given.map_or(0, |given| given.period_ns))
}
