//! One watched attribute, which a look reads once for all watchers.
//!
//! ```text
//!               value beyond threshold                      reading: Crossed
//!   inside ───────────────────────────────> beyond
//!     ^                                        │
//!     └────────────────────────────────────────┘
//!               value back by the hysteresis                reading: Cleared
//! ```

use std::collections::BTreeMap;

use qfabric_types::monitor::{Attribute, AttributeId, Cause, Readers, Reading, Shape, Threshold};
use qfabric_types::{AppId, Instant, Nanos};

use super::base::{Base, Steps};
use super::pace::Pace;
use super::words::{Counters, Summary, Watch, Watched};
use super::{MAX_PERIOD, MIN_PERIOD, MOST_DELAY, Plug, next_multiple};

pub(super) struct Probe {
    pub attribute: Attribute,
    /// The application that it belongs to, or the host.
    pub about: AppId,
    id: AttributeId,
    /// The next look.
    pub due: Instant,
    pub watchers: Vec<Watcher>,
    steps: Steps,
}

pub(super) struct Watcher {
    pub application: AppId,
    pub watch: Watch,
    pub pace: Option<Box<dyn Pace>>,
    /// When the next reading is due.
    due: Instant,
    /// When the threshold is checked next.
    check_due: Instant,
    /// The base of the next reading.
    since: Option<Base>,
    looks: Looks,
    beyond: bool,
}

/// The looks since a watcher's last reading.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: i64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Looks {
    fn take(&mut self, value: i64) {
        let first = self.count == 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = if first { value } else { self.max.max(value) };
        self.sum += i128::from(value);
        self.count += 1;
    }
}

impl Probe {
    pub(super) fn new(attribute: Attribute, about: AppId) -> Probe {
        let id = attribute.id();
        Probe { attribute, about, id, due: Instant::NEVER, watchers: Vec::new(), steps: Steps::default() }
    }

    /// Adds a watcher, which counts from the present raw reading; or changes a watcher, which keeps its base.
    pub(super) fn watch(&mut self, application: AppId, watch: Watch, raw: Option<i64>, now: Instant) {
        if let Some(raw) = raw.filter(|_| self.watchers.is_empty()) {
            self.steps.step(self.attribute.shape, raw, now);
        }
        let since = raw.map(|raw| Base { raw, at: now });
        match self.find(application) {
            Some(at) => self.watchers[at].change(watch, now),
            None => self.watchers.push(Watcher::new(application, watch, since, now)),
        }
    }

    pub(super) fn find(&self, application: AppId) -> Option<usize> {
        self.watchers.iter().position(|watcher| watcher.application == application)
    }

    pub(super) fn schedule(&mut self) {
        self.due = self.watchers.iter().map(Watcher::next).min().unwrap_or(Instant::NEVER);
    }

    /// Reads the raw number.
    pub(super) fn read(
        &mut self,
        now: Instant,
        plugs: &mut BTreeMap<AttributeId, Plug>,
        readers: &mut dyn Readers,
        counters: &mut Counters,
    ) -> Option<i64> {
        let raw = match plugs.get_mut(&self.id) {
            Some(plug) => plug.source.read(self.about, now, readers),
            None => readers.read(self.id, self.about, now),
        };
        counters.looks += 1;
        counters.unread += u64::from(raw.is_none());
        raw
    }

    /// One look: reads once, checks every threshold, and passes readings to the watchers that are due.
    pub(super) fn look(
        &mut self,
        now: Instant,
        plugs: &mut BTreeMap<AttributeId, Plug>,
        readers: &mut dyn Readers,
        counters: &mut Counters,
        tell: &mut dyn FnMut(Reading),
    ) {
        let raw = self.read(now, plugs, readers, counters);
        let step = raw.and_then(|raw| self.steps.step(self.attribute.shape, raw, now));
        let Probe { id, attribute, watchers, .. } = self;
        for watcher in watchers {
            let teller = Teller { id: *id, attribute, now, counters: &mut *counters, tell: &mut *tell };
            watcher.looked(raw, step, teller);
        }
    }

    /// Handles a report of the kernel that the attribute is beyond `level`.
    pub(super) fn alert(
        &mut self,
        level: i64,
        now: Instant,
        plugs: &mut BTreeMap<AttributeId, Plug>,
        readers: &mut dyn Readers,
        counters: &mut Counters,
        tell: &mut dyn FnMut(Reading),
    ) {
        let Some(raw) = self.read(now, plugs, readers, counters) else { return };
        // For a total at its first look, the level is the only known value.
        let step = self.steps.step(self.attribute.shape, raw, now).unwrap_or((level, Nanos::ZERO));
        let Probe { id, attribute, watchers, .. } = self;
        for watcher in watchers.iter_mut().filter(|watcher| watcher.minds(level)) {
            watcher.beyond = true;
            let mut teller = Teller { id: *id, attribute, now, counters: &mut *counters, tell: &mut *tell };
            teller.tell(watcher.application, step, Cause::Crossed);
        }
    }

    /// The reading for a watcher now.
    pub(super) fn asked(&self, application: AppId, raw: i64, now: Instant) -> Option<Reading> {
        let watcher = &self.watchers[self.find(application)?];
        let (value, over) = match self.attribute.shape {
            Shape::Level => (raw, Nanos::ZERO),
            shape => watcher.since?.value(shape, raw, now),
        };
        let (attribute, unit) = (self.id, self.attribute.unit);
        Some(Reading { attribute, application, value, at: now, over, cause: Cause::Asked, unit })
    }

    pub(super) fn watched<'a>(&'a self, watcher: &Watcher) -> Watched<'a> {
        Watched {
            application: watcher.application,
            attribute: &self.attribute,
            watch: watcher.watch,
            value: self.steps.last(),
            beyond: watcher.beyond,
            due: watcher.due,
        }
    }
}

/// Passes readings of one look.
struct Teller<'a> {
    id: AttributeId,
    attribute: &'a Attribute,
    now: Instant,
    counters: &'a mut Counters,
    tell: &'a mut dyn FnMut(Reading),
}

impl Teller<'_> {
    fn reading(&self, application: AppId, (value, over): (i64, Nanos), cause: Cause) -> Reading {
        let (attribute, unit) = (self.id, self.attribute.unit);
        Reading { attribute, application, value, at: self.now, over, cause, unit }
    }

    fn tell(&mut self, application: AppId, step: (i64, Nanos), cause: Cause) -> Reading {
        let reading = self.reading(application, step, cause);
        self.counters.told += 1;
        (self.tell)(reading);
        reading
    }
}

impl Watcher {
    fn new(application: AppId, watch: Watch, since: Option<Base>, now: Instant) -> Watcher {
        let (looks, never) = (Looks::default(), Instant::NEVER);
        let mut watcher =
            Watcher { application, watch, pace: None, due: never, check_due: never, since, looks, beyond: false };
        watcher.change(watch, now);
        watcher
    }

    fn change(&mut self, watch: Watch, now: Instant) {
        self.beyond &= self.watch.threshold == watch.threshold;
        self.watch = watch;
        self.set_period(watch.period, now);
    }

    pub(super) fn set_period(&mut self, period: Nanos, now: Instant) {
        self.watch.period = period;
        self.due = next_multiple(now, period);
        self.check_due = self.next_check(now);
    }

    pub(super) fn delay(&mut self, by: Nanos, now: Instant) {
        let latest = now + self.watch.period.saturating_mul(MOST_DELAY);
        self.due = (self.due + by).min(latest).max(self.due);
    }

    /// Without a threshold or a summary there is nothing to check between readings.
    fn next_check(&self, now: Instant) -> Instant {
        let Watch { check, threshold, summary, .. } = self.watch;
        let check = check.filter(|_| threshold.is_some() || summary != Summary::Last);
        check.map_or(Instant::NEVER, |check| next_multiple(now, check))
    }

    fn next(&self) -> Instant {
        self.due.min(self.check_due)
    }

    fn looked(&mut self, raw: Option<i64>, step: Option<(i64, Nanos)>, mut teller: Teller) {
        let (now, is_due) = (teller.now, self.due <= teller.now);
        let crossed = step.and_then(|step| {
            self.looks.take(step.0);
            self.judge(step, &mut teller)
        });
        if self.check_due <= now {
            self.check_due = self.next_check(now);
        }
        match crossed {
            _ if is_due => self.is_due(raw, teller),
            Some(crossed) => self.adapt(&crossed, now),
            None => {}
        }
    }

    /// Checks the threshold. Returns the reading if it was crossed.
    fn judge(&mut self, step: (i64, Nanos), teller: &mut Teller) -> Option<Reading> {
        let beyond = self.watch.threshold?.is_beyond(self.beyond, step.0);
        let has_crossed = beyond != std::mem::replace(&mut self.beyond, beyond);
        let cause = if beyond { Cause::Crossed } else { Cause::Cleared };
        has_crossed.then(|| teller.tell(self.application, step, cause))
    }

    fn is_due(&mut self, raw: Option<i64>, mut teller: Teller) {
        let now = teller.now;
        let skipped = now.since(self.due).get() / self.watch.period.get();
        teller.counters.skipped += skipped;
        self.due = self.due + self.watch.period.saturating_mul(skipped + 1);
        let Some(raw) = raw else { return };
        let told = self.summary(teller.attribute.shape, raw, now);
        self.since = Some(Base { raw, at: now });
        self.looks = Looks::default();
        let Some(told) = told else { return };
        let reading = match self.watch.quiet {
            true => teller.reading(self.application, told, Cause::Poll),
            false => teller.tell(self.application, told, Cause::Poll),
        };
        self.adapt(&reading, now);
    }

    /// The value of the next reading; `None` before the second look at a total.
    fn summary(&self, shape: Shape, raw: i64, now: Instant) -> Option<(i64, Nanos)> {
        let over = self.since.map_or(Nanos::ZERO, |since| now.since(since.at));
        let Looks { count, sum, min, max } = self.looks;
        match self.watch.summary {
            Summary::Min => (count > 0).then_some((min, over)),
            Summary::Max => (count > 0).then_some((max, over)),
            Summary::Mean if !shape.is_total() => (count > 0).then(|| ((sum / i128::from(count)) as i64, over)),
            _ if shape.is_total() => self.since.map(|since| since.value(shape, raw, now)),
            _ => Some((raw, Nanos::ZERO)),
        }
    }

    fn adapt(&mut self, reading: &Reading, now: Instant) {
        let Some(pace) = &mut self.pace else { return };
        let period = pace.next(reading, self.watch.period).max(MIN_PERIOD).min(MAX_PERIOD);
        if period != self.watch.period {
            self.set_period(period, now);
        }
    }

    /// Whether the kernel's report concerns a threshold of this watcher that was not crossed yet.
    fn minds(&self, level: i64) -> bool {
        let crossed = match self.watch.threshold {
            Some(Threshold::Above { limit, .. }) => limit <= level,
            Some(Threshold::Below { limit, .. }) => limit >= level,
            None => false,
        };
        crossed && !self.beyond
    }
}
