//! Monitors of this host: a thread reads attributes when they are due, and reports to managers here and on other
//! hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_host::monitor::{Adaptive, Monitor, Watch};
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{MonitorInfo, MonitorRequest};
use qfabric_types::monitor::{AdaptivePeriod, Attribute, AttributeId, HOST, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};

use super::attributes::Attributes;
use super::triggers::{Ready, Triggers, Waiting, Wanted};
use super::{Fabric, lock, problems};
use crate::control::Monitored;
use crate::ending::{Ending, Running};
use crate::net::Board;

/// How often this host looks for interfaces, disks and applications that appeared or disappeared.
const RESCAN: Nanos = Nanos::from_millis(2_000);
/// Period of a watch if the request names none.
const PERIOD: Nanos = Nanos::from_millis(1_000);
/// Largest number of delays that wait for the thread; further ones are dropped, because a delay is only a wish.
const MOST_DELAYS: usize = 256;

pub(super) struct Monitors {
    watching: Lock<Watching, { rank::MONITORS }>,
    waiting: Waiting,
    /// Readings to report later, until the thread takes them. The thread that adds one carries events, and must not
    /// wait for the monitor's lock.
    delays: Lock<Vec<(AttributeId, Nanos)>, { rank::DELAYS }>,
}

struct Watching {
    monitor: Monitor,
    attributes: Attributes,
    triggers: Triggers,
    /// Periods that a feedback loop sets.
    adaptive: BTreeMap<(AppId, AttributeId), AdaptivePeriod>,
    /// Last readings, for requests.
    last: BTreeMap<(AppId, u32), (i64, Instant)>,
    rescan_at: Instant,
    stopping: bool,
}

/// Starts the thread that watches attributes.
pub(crate) fn start_monitor(fabric: &Arc<Fabric>, ending: &Ending) -> std::io::Result<Running> {
    let (own, asked) = (fabric.clone(), fabric.clone());
    let ask = move || {
        lock(&asked.monitors.watching).stopping = true;
        asked.monitors.waiting.wake();
    };
    ending.run("qf-monitor", move || own.watch_resources(), ask)
}

impl Monitors {
    pub(super) fn new(board: Arc<Board>) -> std::io::Result<Monitors> {
        let watching = Watching {
            monitor: Monitor::new(),
            attributes: Attributes::open(board),
            triggers: Triggers::default(),
            adaptive: BTreeMap::new(),
            last: BTreeMap::new(),
            rescan_at: Instant::ZERO,
            stopping: false,
        };
        Ok(Monitors { watching: watching.into(), waiting: Waiting::new()?, delays: Lock::default() })
    }

    /// Postpones the report of the next reading of an attribute of this host.
    pub(super) fn delay(&self, attribute: AttributeId, by: Nanos) {
        let mut delays = lock(&self.delays);
        if delays.len() < MOST_DELAYS {
            delays.push((attribute, by));
        }
    }

    /// Attributes that are watched, that could be watched, and that cannot be read.
    pub(super) fn list(&self) -> Vec<MonitorInfo> {
        let watching = lock(&self.watching);
        let watched: Vec<_> = {
            let watches = watching.monitor.watches();
            watches.map(|watch| watching.with_trigger(watching.shown(&watch))).collect()
        };
        let is_watched = |name: &str| watched.iter().any(|info| info.attribute == name);
        let idle =
            watching.monitor.attributes(&watching.attributes).filter(|attribute| !is_watched(attribute.name.as_str()));
        let idle: Vec<_> = idle.map(idle_info).collect();
        let missing = watching.attributes.missing().iter().map(|missing| MonitorInfo {
            attribute: missing.name.to_owned(),
            unavailable: Some(missing.why.clone()),
            ..empty()
        });
        let missing: Vec<_> = missing.collect();
        watched.into_iter().chain(idle).chain(missing).collect()
    }

    /// Changes how an attribute is watched. `monitored`: the application, if the attribute is one of an application.
    pub(super) fn set(
        &self,
        name: &str,
        request: &MonitorRequest,
        monitored: Option<Monitored>,
    ) -> Result<MonitorInfo, Problem> {
        let mut watching = lock(&self.watching);
        let application = AppId(request.application);
        let answer = match request.poll_ns {
            Some(Nanos::ZERO) => watching.unwatch(application, name),
            _ => watching.watch(application, name, request, monitored),
        };
        watching.follow(&self.waiting);
        let answer = answer.map(|info| watching.with_trigger(info));
        drop(watching);
        self.waiting.wake();
        answer
    }
}

impl Watching {
    fn watch(
        &mut self,
        application: AppId,
        name: &str,
        request: &MonitorRequest,
        monitored: Option<Monitored>,
    ) -> Result<MonitorInfo, Problem> {
        let before = self.found(application, name).map(|watched| watched.watch);
        let refused = |error: qfabric_host::monitor::MonitorError| error.problem();
        let watch = asked(before.unwrap_or(Watch::every(PERIOD)), request)?;
        request.adaptive.as_ref().map_or(Ok(()), Watch::check_adaptive).map_err(refused)?;
        if let Some(monitored) = monitored {
            let missing = |missing: qfabric_linux::monitor::Missing| problems::invalid(missing.why);
            self.attributes.add(application, monitored).map_err(missing)?;
        }
        self.monitor.watch(application, name, watch, &mut self.attributes, clock::now()).map_err(refused)?;
        self.set_pace((application, AttributeId::of(name)), request).map_err(refused)?;
        self.found(application, name).map(|watched| self.shown(&watched)).ok_or_else(|| problems::unwatched(name))
    }

    /// A fixed period ends the feedback loop.
    fn set_pace(
        &mut self,
        (application, attribute): (AppId, AttributeId),
        request: &MonitorRequest,
    ) -> Result<(), qfabric_host::monitor::MonitorError> {
        let place = (application, attribute);
        match request.adaptive {
            Some(terms) => {
                self.adaptive.insert(place, terms);
                self.monitor.set_pace(application, attribute, Some(Box::new(Adaptive::new(terms))))
            }
            None if request.poll_ns.is_some() => {
                self.adaptive.remove(&place);
                self.monitor.set_pace(application, attribute, None)
            }
            None => Ok(()),
        }
    }

    fn unwatch(&mut self, application: AppId, name: &str) -> Result<MonitorInfo, Problem> {
        let found = self.found(application, name).map(|watched| watched.attribute.clone());
        let attribute = found.ok_or_else(|| problems::unwatched(name))?;
        self.monitor.unwatch(application, attribute.id());
        self.adaptive.remove(&(application, attribute.id()));
        Ok(MonitorInfo { application: application.0, ..idle_info(&attribute) })
    }

    fn found(&self, application: AppId, name: &str) -> Option<qfabric_host::monitor::Watched<'_>> {
        let mut watches = self.monitor.watches();
        watches.find(|watched| watched.application == application && watched.attribute.name.as_str() == name)
    }

    fn shown(&self, watched: &qfabric_host::monitor::Watched<'_>) -> MonitorInfo {
        let last = self.last.get(&(watched.application, watched.attribute.id().0));
        MonitorInfo {
            application: watched.application.0,
            poll_ns: Some(watched.watch.period),
            threshold: watched.watch.threshold.map(|threshold| threshold.to_string()),
            check_ns: watched.watch.check,
            quiet: watched.watch.quiet,
            summary: Some(watched.watch.summary),
            adaptive: self.adaptive.get(&(watched.application, watched.attribute.id())).copied(),
            // A quiet watch shows its last reading, which is newer than the last reported value.
            value: watched.value.filter(|_| watched.watch.quiet).or(last.map(|(value, _)| *value)),
            at_ns: last.map(|(_, at)| at.get()),
            ..idle_info(watched.attribute)
        }
    }

    /// Sets kernel triggers for the thresholds that the kernel can watch.
    fn follow(&mut self, waiting: &Waiting) {
        let wanted = |watched: qfabric_host::monitor::Watched<'_>| {
            Some(Wanted {
                application: watched.application,
                attribute: watched.attribute.name.to_string(),
                threshold: watched.watch.threshold?,
                window: watched.watch.check.unwrap_or(watched.watch.period),
            })
        };
        self.triggers.follow(self.monitor.watches().filter_map(wanted).collect(), waiting);
    }

    fn with_trigger(&self, info: MonitorInfo) -> MonitorInfo {
        let (by_kernel, refused) = self.triggers.shown(AppId(info.application), &info.attribute);
        MonitorInfo { by_kernel, trigger_refused: refused.map(str::to_owned), ..info }
    }

    /// Finds interfaces and applications that appeared or disappeared; returns whether an application has left.
    fn rescan(&mut self, now: Instant) -> bool {
        self.rescan_at = now + RESCAN;
        self.attributes.rescan();
        let left = self.attributes.left();
        for &application in &left {
            self.monitor.leave(application);
            self.attributes.remove(application);
            self.last.retain(|(of, _), _| *of != application);
            self.adaptive.retain(|(of, _), _| *of != application);
        }
        !left.is_empty()
    }
}

impl Fabric {
    fn watch_resources(&self) {
        let (mut told, mut names, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(left) = self.monitors.look(&mut ready, &mut told, &mut names) {
            // Without the monitor's lock: sending an event may take a while.
            told.drain(..).zip(names.drain(..)).for_each(|(reading, name)| self.network.reading(&reading, &name));
            self.monitors.waiting.wait(left, &mut ready);
        }
    }
}

impl Monitors {
    /// Reads the attributes that are due or that the kernel reported; returns the time until the next look, if one is
    /// due. None: the service ends.
    fn look(&self, ready: &mut Vec<Ready>, told: &mut Vec<Reading>, names: &mut Vec<String>) -> Option<Option<Nanos>> {
        let mut watching = lock(&self.watching);
        if watching.stopping {
            return None;
        }
        let now = clock::now();
        let delays = std::mem::take(&mut *lock(&self.delays));
        for (attribute, by) in delays {
            watching.monitor.delay(attribute, by, now);
        }
        if now >= watching.rescan_at && watching.rescan(now) {
            watching.follow(&self.waiting);
        }
        watching.poll(now, ready, told, names);
        Some(watching.monitor.next_wakeup().map(|due| due.since(clock::now())))
    }
}

impl Watching {
    fn poll(&mut self, now: Instant, ready: &mut Vec<Ready>, told: &mut Vec<Reading>, names: &mut Vec<String>) {
        let Watching { monitor, attributes, triggers, last, .. } = self;
        for (attribute, level) in ready.drain(..).filter_map(|ready| triggers.crossed(ready)) {
            monitor.alert(attribute, level, now, attributes, &mut |reading| told.push(reading));
        }
        monitor.poll(now, attributes, &mut |reading| told.push(reading));
        for reading in told.iter() {
            last.insert((reading.application, reading.attribute.0), (reading.value, reading.at));
            names.push(monitor.name(reading.attribute).unwrap_or_default().to_owned());
        }
    }
}

/// The watch after the request is carried out.
fn asked(before: Watch, request: &MonitorRequest) -> Result<Watch, Problem> {
    let MonitorRequest { poll_ns, threshold, check_ns, quiet, summary, adaptive, .. } = request;
    let threshold = match threshold.as_deref() {
        Some("") => None,
        Some(text) => Some(text.parse().map_err(|error| problems::invalid(format!("{error}")))?),
        None => before.threshold,
    };
    let period = poll_ns.unwrap_or(before.period);
    Ok(Watch {
        period: adaptive.map_or(period, |terms| period.min(terms.most_ns).max(terms.least_ns)),
        check: check_ns.map_or(before.check, |check| Some(check).filter(|check| *check > Nanos::ZERO)),
        threshold,
        summary: summary.unwrap_or(before.summary),
        quiet: quiet.unwrap_or(before.quiet),
    })
}

fn idle_info(attribute: &Attribute) -> MonitorInfo {
    MonitorInfo { attribute: attribute.name.to_string(), unit: unit(attribute.unit), ..empty() }
}

fn empty() -> MonitorInfo {
    MonitorInfo {
        attribute: String::new(),
        unit: String::new(),
        application: HOST.0,
        poll_ns: None,
        threshold: None,
        check_ns: None,
        quiet: false,
        summary: None,
        adaptive: None,
        value: None,
        at_ns: None,
        by_kernel: false,
        trigger_refused: None,
        unavailable: None,
    }
}

/// The unit in its JSON spelling.
fn unit(unit: Unit) -> String {
    serde_json::to_value(unit).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
