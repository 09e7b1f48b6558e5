//! Reports of arrival rates: the rate at which this host's applications receive the events of a data channel. They go
//! to the managers of the hosts that feed the channel.
//!
//! An event counts when it is delivered to the first application with a sink that accepts it. An event does not count
//! if it was dropped in a sink's queue, was late, or waits there for a slow reader. If the application reads an event too
//! late after its delivery, one event less counts.

use std::collections::BTreeMap;

use qfabric_channel::{Event, RegistrationId, SinkId, SourceId};
use qfabric_host::manager::policies::{CPU_GRANTED, CPU_OWN, DELAY, LEAST_DELAY, RATE};
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::channel_wire::Report;
use qfabric_types::monitor::{AttributeId, Cause, HOST, MAX_NAME, Metric, Reading, Unit};
use qfabric_types::{Instant, Nanos};

use super::mailbox::{Audience, Delayed, Notification};
use super::policies::{RateMeter, number_of};
use super::registry::Registry;
use super::reporters::NotTaken;
use super::{Fabric, count, lock};

/// A delay request postpones a report by at most this number of periods.
const MOST_PERIODS: u64 = 2;

/// Number of recent events of a source for which a first delivery can be told from deliveries to further sinks of the
/// host.
const TOLD_APART: u64 = 64;

/// The data channels on which this host's applications have sinks.
#[derive(Default)]
pub(super) struct Reports(Lock<BTreeMap<Name, Reported>, { rank::REPORTS }>);

struct Reported {
    meter: RateMeter,
    /// The least delay of an event since the last report, in nanoseconds; negative if the clocks' comparison is wrong.
    least_delay: Option<i64>,
    /// By the source's host; an event of a known host allocates no memory.
    handed: BTreeMap<Name, BTreeMap<SourceId, Handed>>,
    /// Events that were late for each sink and are still counted, because another sink may have had them in time.
    late: BTreeMap<SinkId, u64>,
    due: Instant,
}

/// Events of a source that were delivered to an application: the last one, and those up to [`TOLD_APART`] before it.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    /// Whether any were delivered since the last report; a source that is quiet for longer is removed.
    is_fresh: bool,
    last: u64,
    /// Bit `n` stands for the event `n` before the last one.
    before: u64,
}

impl Handed {
    /// Whether this is the first delivery of the event; for older events it is assumed to be the first.
    fn is_first(&mut self, number: u64) -> bool {
        self.is_fresh = true;
        if number > self.last {
            let ahead = number - self.last;
            self.before = if ahead < TOLD_APART { self.before << ahead | 1 } else { 1 };
            self.last = number;
            return true;
        }
        let bit = if self.last - number < TOLD_APART { 1 << (self.last - number) } else { 0 };
        let is_first = self.before & bit == 0;
        self.before |= bit;
        is_first
    }
}

/// The counts of a channel since its last report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    channel: Name,
    pub(super) rate_milli: i64,
    /// None: no event was delivered.
    least_delay: Option<i64>,
    over: Nanos,
}

impl Taken {
    fn readings(&self, at: Instant) -> impl Iterator<Item = (&'static str, Reading)> {
        let (over, cause) = (self.over, Cause::Poll);
        let reading = move |name: &'static str, value, unit| {
            let (attribute, application) = (AttributeId::of(name), HOST);
            (name, Reading { attribute, application, value, at, over, cause, unit })
        };
        let delay = self.least_delay.map(|delay| reading(LEAST_DELAY, delay, Unit::Nanoseconds));
        [reading(RATE, self.rate_milli, Unit::PerSecond)].into_iter().chain(delay)
    }
}

impl Reported {
    fn forget_quiet(&mut self) {
        self.handed.retain(|_, sources| {
            sources.retain(|_, handed| std::mem::take(&mut handed.is_fresh));
            !sources.is_empty()
        });
    }
}

impl Reports {
    /// Time of the next report.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.0).values().map(|reported| reported.due).min()
    }

    /// Counts an event that was delivered to an application of this host.
    pub(super) fn handed(&self, event: &Event<'_>, now: Instant) {
        let mut all = lock(&self.0);
        let Some(reported) = all.get_mut(&event.channel.name).filter(|_| event.channel.plane == Plane::Data) else {
            return;
        };
        let sources = match reported.handed.get_mut(event.host) {
            Some(known) => known,
            None => reported.handed.entry(event.host.clone()).or_default(),
        };
        if sources.entry(event.source).or_default().is_first(event.number) {
            reported.meter.hit(now);
            let delay = now.get().cast_signed().saturating_sub(event.sent.get().cast_signed());
            reported.least_delay = Some(reported.least_delay.map_or(delay, |least| least.min(delay)));
        }
    }

    /// Takes back events of a channel that were delivered to a sink's application, which read them too late. An event
    /// was achieved if one of the host's `readers` had it in time, so only what was late for all of them is taken back.
    pub(super) fn late(&self, channel: &ChannelId, sink: SinkId, events: u64, readers: &[SinkId]) {
        let mut all = lock(&self.0);
        let Some(reported) = all.get_mut(&channel.name).filter(|_| channel.plane == Plane::Data) else { return };
        reported.late.retain(|sink, _| readers.contains(sink));
        *reported.late.entry(sink).or_default() += events;
        let least = readers.iter().map(|sink| reported.late.get(sink).copied().unwrap_or(0)).min().unwrap_or(0);
        reported.late.values_mut().for_each(|late| *late -= least);
        reported.meter.take_back(least);
    }

    /// Postpones a channel's next report.
    fn delay(&self, channel: &Name, by: Nanos, period: Nanos) {
        if let Some(reported) = lock(&self.0).get_mut(channel) {
            reported.due = reported.due + by.min(period.saturating_mul(MOST_PERIODS));
        }
    }

    /// Removes a channel that is not open here any more.
    pub(super) fn forget(&self, channel: &Name) {
        lock(&self.0).remove(channel);
    }

    /// Takes the counts of the channels whose reports are due.
    pub(super) fn take(&self, now: Instant, period: Nanos) -> Vec<Taken> {
        let mut all = lock(&self.0);
        let due = all.iter_mut().filter(|(_, reported)| reported.due <= now);
        let taken = due.map(|(channel, reported)| {
            let (rate_milli, over) = reported.meter.report(now);
            reported.forget_quiet();
            // A thread that was late does not send two reports at once.
            reported.due = (reported.due + period).max(now + Nanos::new(period.get() / 2));
            Taken { channel: channel.clone(), rate_milli, least_delay: reported.least_delay.take(), over }
        });
        taken.collect()
    }

    fn begin(&self, channel: &Name, now: Instant, period: Nanos) {
        let begun = || Reported {
            meter: RateMeter::new(now),
            least_delay: None,
            handed: BTreeMap::new(),
            late: BTreeMap::new(),
            due: now + period,
        };
        lock(&self.0).entry(channel.clone()).or_insert_with(begun);
    }
}

impl Fabric {
    /// From now on counts the events that this host's applications receive on the channel.
    pub(super) fn count_handed(&self, channel: &ChannelId) {
        let period = self.config().report;
        if period != Nanos::ZERO && channel.plane == Plane::Data {
            self.reports.begin(&channel.name, clock::now(), period);
        }
    }

    /// Sends the reports that are due.
    pub(super) fn report_handed(&self, now: Instant) {
        for taken in self.reports.take(now, self.config().report) {
            if !self.has_reader(&ChannelId::data(taken.channel.clone())) {
                continue;
            }
            let quality = ChannelId { plane: Plane::Quality, name: taken.channel.clone() };
            taken.readings(now).for_each(|(name, reading)| self.network.report(&reading, name, &quality));
        }
    }

    /// Whether an application has a sink on the channel. The node's own sinks, which serve bindings, do not count.
    fn has_reader(&self, channel: &ChannelId) -> bool {
        let registry = self.registry();
        self.network.look(|node| registry.sinks.keys().any(|sink| node.channel_of_sink(*sink) == Some(channel)))
    }

    /// Postpones a report at the request of another host: a report of the service, of an application, or of the
    /// monitor.
    pub(super) fn delay_report(&self, registry: &mut Registry, delayed: Delayed) {
        let Delayed { channel, attribute, name, by } = delayed;
        if attribute == AttributeId::of(RATE) {
            return self.reports.delay(&channel.name, by, self.config().report);
        }
        if !is_applications(&name) || Metric::find(&name).is_some() {
            return self.monitors.delay(attribute, by);
        }
        let (attribute, amount) = (AttributeId::of(DELAY), Some(by.get().cast_signed()));
        let told = Notification { channel, attribute, subject: name, amount, audience: Audience::Sinks, user: None };
        self.tell_decided(registry, &told);
    }
}

impl Fabric {
    /// Passes on an application's report: to this host's policies, and to those of the hosts that feed the channel with
    /// the name of its group, if its user holds that channel.
    pub(super) fn report_of(&self, registry: &mut Registry, id: LeaseId, report: &Report<'_>) {
        let Report { registration, attribute, value } = *report;
        let number = RegistrationId(registration);
        let lease = registry.leases.get(&id).filter(|lease| lease.registrations.contains_key(&number));
        let peer = lease.map(|lease| lease.peer);
        let found = self.network.look(|node| {
            let own = node.directory().host(node.host());
            own.and_then(|record| record.registrations.get(&number)).cloned()
        });
        let (Some(peer), Some(found)) = (peer, found) else { return count(&self.totals.nonsense) };
        if !is_applications(attribute) {
            return count(&self.totals.nonsense);
        }
        let reading = Reading {
            attribute: AttributeId::of(attribute),
            application: number_of(&found.group, &found.application),
            value,
            at: clock::now(),
            over: Nanos::ZERO,
            cause: Cause::Poll,
            unit: Unit::Count,
        };
        let holds = registry.holds(peer, &ChannelId::data(found.group.clone()));
        let shared = ChannelId { plane: Plane::Quality, name: found.group.clone() };
        // No host feeds a group's own Q-channel: the report stays on this host.
        let channel = if holds { Some(shared) } else { found.channel() };
        let Some(channel) = channel else { return };
        let uid = peer.owner.uid;
        let taken = if peer.administers() { Ok(()) } else { registry.reporters.admit(&channel, uid, &reading) };
        match taken {
            Ok(()) => self.network.report(&reading, attribute, &channel),
            Err(why) => self.refuse_report(registry, (uid, why), &channel, (attribute, reading.at)),
        }
    }

    /// A report has no answer, so the refusal is counted and logged.
    fn refuse_report(
        &self,
        registry: &mut Registry,
        (uid, why): (u32, NotTaken),
        channel: &ChannelId,
        (attribute, at): (&str, Instant),
    ) {
        count(&self.totals.reports_refused);
        if registry.reporters.may_log(at) {
            tracing::warn!(uid, %channel, attribute, "a report is refused: {why}");
        }
    }
}

/// Whether applications may report this attribute; the service itself counts arrivals, and knows what it has granted.
fn is_applications(attribute: &str) -> bool {
    let is_name = attribute.len() <= MAX_NAME && attribute.parse::<Name>().is_ok();
    is_name && attribute.starts_with("app.") && ![RATE, LEAST_DELAY, CPU_OWN, CPU_GRANTED].contains(&attribute)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(500);

    #[test]
    fn applications_speak_for_themselves_and_of_nothing_else() {
        assert!(is_applications("app.position") && is_applications("app.show_need"));
        let longest = format!("app.{}", "x".repeat(MAX_NAME));
        for refused in [
            "app.rate_milli",
            "app.least_delay",
            CPU_OWN,
            CPU_GRANTED,
            "cpu.run_queue",
            "position",
            "app. position",
            longest.as_str(),
        ] {
            assert!(!is_applications(refused), "{refused}");
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn reports_come_in_their_period_and_a_request_puts_one_off() {
        let (reports, video) = (Reports::default(), "video".parse().unwrap());
        reports.begin(&video, ms(0), PERIOD);
        assert!(reports.take(ms(499), PERIOD).is_empty());
        let none = Taken { channel: "video".parse().unwrap(), rate_milli: 0, least_delay: None, over: PERIOD };
        assert_eq!(none.readings(ms(500)).map(|(name, _)| name).collect::<Vec<_>>(), [RATE]);
        assert_eq!(reports.take(ms(500), PERIOD), [none]);
        reports.delay(&video, Nanos::from_millis(130), PERIOD);
        assert_eq!(reports.next(), Some(ms(1_130)));
        reports.delay(&video, Nanos::from_millis(3_600_000), PERIOD);
        assert_eq!(reports.next(), Some(ms(2_130)), "a request does not suppress a report");
        assert_eq!(reports.take(ms(9_000), PERIOD).len(), 1, "a late thread reports once");
        assert_eq!(reports.next(), Some(ms(9_250)));
    }

    #[test]
    fn what_was_late_for_all_readers_was_not_achieved() {
        let (reports, video) = (Reports::default(), ChannelId::data("video".parse().unwrap()));
        reports.begin(&video.name, ms(0), PERIOD);
        let (one, other) = (SinkId(1), SinkId(2));
        let hit = |at: u64| lock(&reports.0).get_mut(&video.name).unwrap().meter.hit(ms(at));
        let rate = |at: u64| reports.take(ms(at), PERIOD)[0].rate_milli;
        (0..10).for_each(|event| hit(100 + 10 * event));
        reports.late(&video, one, 10, &[one, other]);
        reports.late(&video, other, 4, &[one, other]);
        assert_eq!(lock(&reports.0)[&video.name].late, [(one, 6), (other, 0)].into());
        let fewer = rate(500);
        assert!((50_000..70_000).contains(&fewer), "6 of 10 events in 90 ms: {fewer}");
        reports.late(&video, one, 4, &[one]);
        (0..10).for_each(|event| hit(600 + 10 * event));
        assert_eq!(rate(1_000), 0, "the ten that were reported before");
    }

    #[test]
    fn an_event_that_several_sinks_get_counts_once() {
        let mut handed = Handed::default();
        let mut first = |numbers: &[u64]| numbers.iter().filter(|number| handed.is_first(**number)).count();
        assert_eq!([first(&[1, 2, 4]), first(&[1, 2, 4]), first(&[3, 3])], [3, 0, 1], "in any order");
        assert_eq!([first(&[200, 199, 199, 200]), first(&[4])], [2, 1], "long ago");
    }
}
