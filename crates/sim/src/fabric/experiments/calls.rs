//! Figure 36: a controller brings a stream to 10 ± 1 frames per second. It is called once per second, ten times
//! per second, or when a report arrives.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use qfabric_control::adapt::rate::Terms;
use qfabric_host::manager::policies::HoldRate;
use qfabric_host::manager::{Change, Controller, Decisions, Interest, View};
use qfabric_types::{Instant, Nanos};

use super::super::{Fabric, Settings};
use super::film::{Role, Seen, Sink, Source};
use super::{Curve, data, quality};

/// Target rate and tolerance, in frames per second.
const TARGET: (f64, f64) = (10.0, 1.0);
/// Initial rate.
const BEGIN: f64 = 25.0;
/// Interval between reports.
const REPORT: Nanos = Nanos::from_millis(250);

/// The times at which the controller is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At this interval, with the newest report if there is one.
    Every(Nanos),
    /// When a report arrives.
    OnEvent,
}

/// The result of one mode.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Course {
    /// `1/s`, `10/s` or `on event`.
    pub mode: String,
    /// Time from the first report until the rate stays within its range, in seconds.
    pub reached_after: Option<f64>,
    /// Calls of the controller per second.
    pub calls_per_second: f64,
    /// Fraction of the calls without a new report.
    pub empty: f64,
    /// Received frames per second.
    pub curve: Curve,
}

/// A controller that is polled: keeps the newest change until the next call.
struct Polled<C> {
    inner: C,
    mode: Mode,
    pending: Option<Change>,
    next: Instant,
    counts: Arc<Mutex<(u64, u64)>>,
}

impl<C: Controller> Polled<C> {
    fn call(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let mut counts = self.counts.lock().expect("no other thread holds the lock");
        counts.0 += 1;
        match self.pending.take() {
            Some(change) => self.inner.changed(&change, view, decisions),
            None => counts.1 += 1,
        }
    }
}

impl<C: Controller> Controller for Polled<C> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn interests(&self) -> Vec<Interest> {
        self.inner.interests()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        self.pending = Some(change.clone());
        if self.mode == Mode::OnEvent {
            self.call(view, decisions);
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        if let Mode::Every(period) = self.mode {
            self.next = view.now + period;
            self.call(view, decisions);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        matches!(self.mode, Mode::Every(_)).then_some(self.next)
    }
}

/// Runs all three modes.
pub fn run(seconds: u64, seed: u64) -> Vec<Course> {
    let every = |ms| Mode::Every(Nanos::from_millis(ms));
    let modes = [("1/s", every(1_000)), ("10/s", every(100)), ("on event", Mode::OnEvent)];
    modes.into_iter().map(|(name, mode)| one(name, mode, seconds, seed)).collect()
}

fn one(mode_name: &str, mode: Mode, seconds: u64, seed: u64) -> Course {
    let mut fabric = Fabric::new(Settings { seed, ..Settings::default() });
    let film = data("film");
    let counts = Arc::new(Mutex::new((0, 0)));
    // At most a twelfth per call: from 25 to 11 in ten calls.
    let terms = Terms { tolerance: TARGET.1 / 2.0, most: 0.08, gain: 1.0, ..Terms::new(TARGET.0) };
    let inner = HoldRate::new(&quality(&film), BEGIN, terms);
    let polled = Polled { inner, mode, pending: None, next: Instant::ZERO, counts: counts.clone() };
    fabric.add("source", Box::new(Source::new(&film, 1_000, BEGIN, vec![Box::new(polled)])));
    let seen = Rc::new(RefCell::new(Seen::default()));
    let role = Role { min: 9, max: 11, importance: 0 };
    fabric.add("sink", Box::new(Sink::new(&film, role, REPORT, REPORT, seen.clone())));
    fabric.run_for(Nanos::from_millis(1_000 * seconds));
    let points = seen.borrow().rates.clone();
    let (calls, empty) = *counts.lock().expect("no other thread holds the lock");
    let outside = points.iter().rposition(|(_, rate)| (rate - TARGET.0).abs() > TARGET.1 * 1.5);
    let begun = points.first().map_or(0.0, |(at, _)| *at);
    let reached = outside.map_or(points.first(), |last| points.get(last + 1)).map(|(at, _)| at - begun);
    Course {
        mode: mode_name.to_owned(),
        reached_after: reached,
        calls_per_second: calls as f64 / seconds as f64,
        empty: empty as f64 / (calls.max(1)) as f64,
        curve: Curve { name: format!("called {mode_name}"), points },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calling_on_events_is_as_quick_as_frequent_polling_with_fewer_calls() {
        let [seldom, often, events] = &run(40, 1)[..] else { panic!("three modes") };
        let reached = |course: &Course| course.reached_after.unwrap_or(f64::MAX);
        assert!(reached(seldom) > 2.5 * reached(often), "{seldom:?} {often:?}");
        assert!(reached(events) <= reached(often) && events.calls_per_second < 0.5 * often.calls_per_second);
    }
}
