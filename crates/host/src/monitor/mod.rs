//! The resource monitor: decides when each attribute is read, and sends readings to its watchers.
//!
//! ```text
//!   watch(application, attribute) ──> probe: one per attribute ──look──> readers, plug-ins     raw numbers
//!                                        │
//!                                        └──> watchers: each its own period, threshold, summary ──tell──> Reading
//! ```
//! A *look* reads an attribute once for all its watchers. It is due when the first of them needs it, so the
//! shortest period wins. All times are whole multiples of their period on the common clock, unless a watch was
//! delayed: so they never drift, and looks of equal periods coincide, so that a reader opens a file once for all
//! attributes in it. A late poll skips the missed readings and counts them. Readers give levels and totals, never
//! differences, so that watchers do not affect each other.
//!
//! Source: Q-Fabric §2.2. Departure: passive monitors have thresholds, too. Thresholds are checked at every look,
//! whichever watcher it was for, and with `Watch::check` more often than the watcher receives readings.

mod base;
mod derived;
mod jobs;
mod pace;
mod probe;
mod words;

use std::collections::BTreeMap;

use qfabric_types::monitor::{Attribute, AttributeId, HOST, Readers, Reading, Threshold};
use qfabric_types::{AppId, Instant, Nanos};

use probe::{Probe, Watcher};

pub use derived::{Derived, DerivedError, Make};
pub use jobs::{Jobs, Published, Publisher};
pub use pace::{Adaptive, Pace};
pub use words::{Counters, MonitorError, Source, Summary, Watch, Watched};

/// Shortest period of a watch: with shorter ones looking costs more than it is worth.
pub const MIN_PERIOD: Nanos = Nanos::from_millis(1);
/// Longest period of a watch.
pub const MAX_PERIOD: Nanos = Nanos::from_millis(3_600_000);
/// Largest number of attributes that are looked at; those of different applications count separately.
pub const MAX_PROBES: usize = 4_096;
/// Largest number of attributes that one application may watch.
pub const MAX_WATCHES: usize = 256;
/// A delay postpones a reading by at most this number of periods, so that no watcher is silenced.
pub const MOST_DELAY: u64 = 2;
/// Largest number of plugged-in attributes.
pub const MAX_PLUGS: usize = 256;

/// The monitor of one host.
#[derive(Default)]
pub struct Monitor {
    /// In ascending order of attribute, then of the application that it belongs to.
    probes: Vec<Probe>,
    plugs: BTreeMap<AttributeId, Plug>,
    /// The earliest look.
    due: Option<Instant>,
    counters: Counters,
}

struct Plug {
    /// The application that plugged it in; the attribute ends when it leaves.
    owner: AppId,
    attribute: Attribute,
    source: Box<dyn Source>,
}

impl Monitor {
    /// A monitor without watches.
    pub fn new() -> Monitor {
        Monitor::default()
    }

    /// Watches an attribute for an application, or changes the watch. A new watch counts totals from now.
    pub fn watch(
        &mut self,
        application: AppId,
        name: &str,
        watch: Watch,
        readers: &mut dyn Readers,
        now: Instant,
    ) -> Result<(), MonitorError> {
        watch.check()?;
        let attribute = self.attribute(name, readers)?;
        let about = about(&attribute, application)?;
        self.check_room(application, attribute.id(), about)?;
        let at = self.probe(attribute, about);
        let Monitor { probes, plugs, counters, .. } = self;
        let raw = probes[at].read(now, plugs, readers, counters);
        probes[at].watch(application, watch, raw, now);
        self.schedule();
        Ok(())
    }

    /// Ends a watch. Returns whether there was one.
    pub fn unwatch(&mut self, application: AppId, attribute: AttributeId) -> bool {
        let before = self.watches().count();
        self.retain(|id, watcher| id != attribute || watcher.application != application);
        self.watches().count() < before
    }

    /// Ends the watches of an application that has left, and removes the attributes that it plugged in.
    pub fn leave(&mut self, application: AppId) {
        self.plugs.retain(|_, plug| plug.owner != application);
        self.retain(|_, watcher| watcher.application != application);
    }

    /// Sets the period of a watch by feedback. Its threshold is still checked every `Watch::check`.
    pub fn set_period(
        &mut self,
        application: AppId,
        attribute: AttributeId,
        period: Nanos,
        now: Instant,
    ) -> Result<(), MonitorError> {
        Watch::every(period).check()?;
        self.watcher(application, attribute)?.set_period(period, now);
        self.schedule();
        Ok(())
    }

    /// Postpones the next reading of every watcher of the attribute by this time, up to [`MOST_DELAY`] periods from
    /// now; afterwards one reading per period.
    pub fn delay(&mut self, attribute: AttributeId, by: Nanos, now: Instant) {
        for probe in self.probes.iter_mut().filter(|probe| probe.attribute.id() == attribute) {
            probe.watchers.iter_mut().for_each(|watcher| watcher.delay(by, now));
        }
        self.schedule();
    }

    /// Lets `pace` choose the period after every reading; `None`: the period stays.
    pub fn set_pace(
        &mut self,
        application: AppId,
        attribute: AttributeId,
        pace: Option<Box<dyn Pace>>,
    ) -> Result<(), MonitorError> {
        self.watcher(application, attribute)?.pace = pace;
        Ok(())
    }

    /// When [`Monitor::poll`] is due; `None`: there is no watch.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.due
    }

    /// Performs the looks that are due and passes readings to `tell`. Allocates no memory.
    pub fn poll(&mut self, now: Instant, readers: &mut dyn Readers, tell: &mut dyn FnMut(Reading)) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for probe in self.probes.iter_mut().filter(|probe| probe.due <= now) {
            probe.look(now, &mut self.plugs, readers, &mut self.counters, tell);
        }
        self.schedule();
    }

    /// The present reading for a watcher, before its time. Totals cover the time since the watcher's last regular
    /// reading, which stays the base of the next one.
    pub fn ask(
        &mut self,
        application: AppId,
        attribute: AttributeId,
        now: Instant,
        readers: &mut dyn Readers,
    ) -> Result<Option<Reading>, MonitorError> {
        let at = self.find_watch(application, attribute)?;
        let Monitor { probes, plugs, counters, .. } = self;
        let probe = &mut probes[at];
        Ok(probe.read(now, plugs, readers, counters).and_then(|raw| probe.asked(application, raw, now)))
    }

    /// Handles a report of the kernel that the attribute rose above `level`, or fell below it: looks at it and
    /// informs every watcher with such a threshold at once, whatever the mean since the last look is.
    pub fn alert(
        &mut self,
        attribute: AttributeId,
        level: i64,
        now: Instant,
        readers: &mut dyn Readers,
        tell: &mut dyn FnMut(Reading),
    ) {
        let Monitor { probes, plugs, counters, .. } = self;
        for probe in probes.iter_mut().filter(|probe| probe.attribute.id() == attribute) {
            counters.alerts += 1;
            probe.alert(level, now, plugs, readers, counters, tell);
        }
        self.schedule();
    }

    /// The thresholds of an attribute's watchers, for the kernel to watch.
    pub fn thresholds(&self, attribute: AttributeId) -> impl Iterator<Item = Threshold> + '_ {
        let probes = self.probes.iter().filter(move |probe| probe.attribute.id() == attribute);
        probes.flat_map(|probe| probe.watchers.iter().filter_map(|watcher| watcher.watch.threshold))
    }

    /// Adds an attribute computed by code, or by E-code ([`Derived`]). It ends when its owner leaves.
    pub fn plug_in(
        &mut self,
        owner: AppId,
        attribute: Attribute,
        source: Box<dyn Source>,
        readers: &dyn Readers,
    ) -> Result<(), MonitorError> {
        let id = attribute.id();
        if self.plugs.len() >= MAX_PLUGS {
            return Err(MonitorError::TooMany { what: "plugged-in attributes", limit: MAX_PLUGS });
        }
        let known = readers.attributes().iter().find(|known| known.id() == id);
        match known.or(self.plugs.get(&id).map(|plug| &plug.attribute)) {
            Some(known) => Err(MonitorError::Taken { name: attribute.name.to_string(), by: known.name.to_string() }),
            None => {
                self.plugs.insert(id, Plug { owner, attribute, source });
                Ok(())
            }
        }
    }

    /// Removes a plugged-in attribute. Its watchers receive no readings until it is plugged in again.
    pub fn unplug(&mut self, owner: AppId, attribute: AttributeId) -> bool {
        let is_own = self.plugs.get(&attribute).is_some_and(|plug| plug.owner == owner);
        is_own && self.plugs.remove(&attribute).is_some()
    }

    /// All attributes that can be watched on this host.
    pub fn attributes<'a>(&'a self, readers: &'a dyn Readers) -> impl Iterator<Item = &'a Attribute> {
        readers.attributes().iter().chain(self.plugs.values().map(|plug| &plug.attribute))
    }

    pub fn name(&self, attribute: AttributeId) -> Option<&str> {
        let at = self.probes.partition_point(|probe| probe.attribute.id() < attribute);
        let probe = self.probes.get(at).filter(|probe| probe.attribute.id() == attribute);
        probe.map(|probe| probe.attribute.name.as_str())
    }

    /// All watches with their last values.
    pub fn watches(&self) -> impl Iterator<Item = Watched<'_>> {
        self.probes.iter().flat_map(|probe| probe.watchers.iter().map(|watcher| probe.watched(watcher)))
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn attribute(&self, name: &str, readers: &dyn Readers) -> Result<Attribute, MonitorError> {
        let found = self.attributes(readers).find(|attribute| attribute.name.as_str() == name);
        found.cloned().ok_or_else(|| MonitorError::Unknown {
            name: name.chars().take(100).collect(),
            near: words::near(name, self.attributes(readers)),
        })
    }

    fn check_room(&self, application: AppId, id: AttributeId, about: AppId) -> Result<(), MonitorError> {
        let watched = self.watches().filter(|watched| watched.application == application);
        let (others, same): (Vec<_>, Vec<_>) = watched.partition(|watched| watched.attribute.id() != id);
        if same.is_empty() && others.len() >= MAX_WATCHES {
            return Err(MonitorError::TooMany { what: "attributes watched by one application", limit: MAX_WATCHES });
        }
        if self.find(id, about).is_err() && self.probes.len() >= MAX_PROBES {
            return Err(MonitorError::TooMany { what: "attributes watched on this host", limit: MAX_PROBES });
        }
        Ok(())
    }

    fn find(&self, id: AttributeId, about: AppId) -> Result<usize, usize> {
        self.probes.binary_search_by_key(&(id, about), |probe| (probe.attribute.id(), probe.about))
    }

    /// The index of an attribute's probe; creates the probe if needed.
    fn probe(&mut self, attribute: Attribute, about: AppId) -> usize {
        self.find(attribute.id(), about).unwrap_or_else(|at| {
            self.probes.insert(at, Probe::new(attribute, about));
            at
        })
    }

    fn find_watch(&self, application: AppId, attribute: AttributeId) -> Result<usize, MonitorError> {
        let is_it = |probe: &Probe| probe.attribute.id() == attribute && probe.find(application).is_some();
        self.probes.iter().position(is_it).ok_or(MonitorError::NotWatched { application, attribute })
    }

    fn watcher(&mut self, application: AppId, attribute: AttributeId) -> Result<&mut Watcher, MonitorError> {
        let at = self.find_watch(application, attribute)?;
        let watchers = &mut self.probes[at].watchers;
        Ok(watchers.iter_mut().find(|watcher| watcher.application == application).expect("just found"))
    }

    /// Ends the watches for which `keep` returns false, and probes without watches.
    fn retain(&mut self, keep: impl Fn(AttributeId, &Watcher) -> bool) {
        for probe in &mut self.probes {
            let id = probe.attribute.id();
            probe.watchers.retain(|watcher| keep(id, watcher));
        }
        self.probes.retain(|probe| !probe.watchers.is_empty());
        self.schedule();
    }

    fn schedule(&mut self) {
        self.probes.iter_mut().for_each(Probe::schedule);
        self.due = self.probes.iter().map(|probe| probe.due).min();
    }
}

/// The application that an attribute belongs to: the one that watches it, or the host.
fn about(attribute: &Attribute, application: AppId) -> Result<AppId, MonitorError> {
    match (attribute.is_of_application(), application) {
        (true, HOST) => Err(MonitorError::NeedsApplication { name: attribute.name.to_string() }),
        (true, application) => Ok(application),
        (false, _) => Ok(HOST),
    }
}

/// The first whole multiple of `period` after `now`.
fn next_multiple(now: Instant, period: Nanos) -> Instant {
    let period = period.get();
    Instant::new((now.get() / period).saturating_add(1).saturating_mul(period))
}
