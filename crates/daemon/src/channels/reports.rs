//! Reports: at what rate events of a data channel get to this host's applications, to the managers of those who feed it.
//!
//! An event counts when it is handed to the first application with a sink that takes it. What was dropped in a sink's
//! queue, was late, or waits there for a reader that does not read, was not achieved.

use std::collections::BTreeMap;

use qfabric_channel::{Event, RegistrationId, SourceId};
use qfabric_host::manager::policies::{DELAY, RATE};
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
use super::{Fabric, count, lock};

/// A request for a delay puts a report off by at most so many periods.
const MOST_PERIODS: u64 = 2;

/// Events of one source by which the first can be told from those that further sinks of the host get.
const TOLD_APART: u64 = 64;

/// The data channels on which this host's applications have sinks.
#[derive(Default)]
pub(super) struct Reports(Lock<BTreeMap<Name, Reported>, { rank::REPORTS }>);

struct Reported {
    meter: RateMeter,
    /// By the source's host: no memory is taken for an event of a known one.
    handed: BTreeMap<Name, BTreeMap<SourceId, Handed>>,
    due: Instant,
}

/// Which events of a source were handed to an application: the last one, and those up to [`TOLD_APART`] before it.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    /// Whether there were any since the last report: a source that is quiet for longer is forgotten.
    is_fresh: bool,
    last: u64,
    /// Bit `n` is for the event `n` before the last one.
    before: u64,
}

impl Handed {
    /// Whether it is the first time for this event; of those long ago it is taken to be.
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

impl Reported {
    fn forget_quiet(&mut self) {
        self.handed.retain(|_, sources| {
            sources.retain(|_, handed| std::mem::take(&mut handed.is_fresh));
            !sources.is_empty()
        });
    }
}

impl Reports {
    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        lock(&self.0).values().map(|reported| reported.due).min()
    }

    /// An event was handed to an application of this host.
    pub fn handed(&self, event: &Event<'_>, now: Instant) {
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
        }
    }

    /// Puts a channel's next report off.
    fn delay(&self, channel: &Name, by: Nanos, period: Nanos) {
        if let Some(reported) = lock(&self.0).get_mut(channel) {
            reported.due = reported.due + by.min(period.saturating_mul(MOST_PERIODS));
        }
    }

    /// The channel is not open here any more.
    pub fn forget(&self, channel: &Name) {
        lock(&self.0).remove(channel);
    }

    /// What was counted where it is due.
    pub fn take(&self, now: Instant, period: Nanos) -> Vec<(Name, i64, Nanos)> {
        let mut all = lock(&self.0);
        let due = all.iter_mut().filter(|(_, reported)| reported.due <= now);
        let taken = due.map(|(channel, reported)| {
            let (rate_milli, over) = reported.meter.report(now);
            reported.forget_quiet();
            // A thread that was late does not report twice at once.
            reported.due = (reported.due + period).max(now + Nanos::new(period.get() / 2));
            (channel.clone(), rate_milli, over)
        });
        taken.collect()
    }

    fn begin(&self, channel: &Name, now: Instant, period: Nanos) {
        let begun = || Reported { meter: RateMeter::new(now), handed: BTreeMap::new(), due: now + period };
        lock(&self.0).entry(channel.clone()).or_insert_with(begun);
    }
}

impl Fabric {
    /// This host has a sink on the channel: from now on it is counted what applications are handed.
    pub(super) fn count_handed(&self, channel: &ChannelId) {
        let period = self.config.report;
        if period != Nanos::ZERO && channel.plane == Plane::Data {
            self.reports.begin(&channel.name, clock::now(), period);
        }
    }

    /// Sends what is due.
    pub(super) fn report_handed(&self, now: Instant) {
        for (channel, value, over) in self.reports.take(now, self.config.report) {
            if !self.has_reader(&ChannelId::data(channel.clone())) {
                continue;
            }
            let reading = Reading {
                attribute: AttributeId::of(RATE),
                application: HOST,
                value,
                at: now,
                over,
                cause: Cause::Poll,
                unit: Unit::PerSecond,
            };
            self.network.report(&reading, RATE, &ChannelId { plane: Plane::Quality, name: channel });
        }
    }

    /// Whether an application has a sink on the channel: the node's own, of bindings, are handed nothing.
    fn has_reader(&self, channel: &ChannelId) -> bool {
        let registry = self.registry();
        self.network.look(|node| registry.sinks.keys().any(|sink| node.channel_of_sink(*sink) == Some(channel)))
    }

    /// Another host wants a report of this one later: of the service, of an application, or of the monitor.
    pub(super) fn delay_report(&self, registry: &mut Registry, delayed: Delayed) {
        let Delayed { channel, attribute, name, by } = delayed;
        if attribute == AttributeId::of(RATE) {
            return self.reports.delay(&channel.name, by, self.config.report);
        }
        if !is_applications(&name) || Metric::find(&name).is_some() {
            return self.monitors.delay(attribute, by);
        }
        let (attribute, amount) = (AttributeId::of(DELAY), Some(by.get().cast_signed()));
        let told = Notification { channel, attribute, subject: name, amount, audience: Audience::Sinks };
        self.tell_decided(registry, &told);
    }
}

impl Fabric {
    /// An application says how it is doing: for this host's policies, and for those of the hosts that feed the channel
    /// of its group's name, where its user holds that.
    pub(super) fn report_of(&self, registry: &Registry, id: LeaseId, report: &Report<'_>) {
        let Report { registration, attribute, value } = *report;
        let number = RegistrationId(registration);
        let lease = registry.leases.get(&id).filter(|lease| lease.registrations.contains(&number));
        let found = self.network.look(|node| {
            let own = node.directory().host(node.host());
            own.and_then(|record| record.registrations.get(&number)).cloned()
        });
        let (Some(lease), Some(found)) = (lease, found) else { return count(&self.totals.nonsense) };
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
        let holds = registry.holds(lease.peer, &ChannelId::data(found.group.clone()));
        let shared = ChannelId { plane: Plane::Quality, name: found.group.clone() };
        // Nobody feeds a group's own Q-channel: there it stays on this host.
        let channel = if holds { Some(shared) } else { found.channel() };
        if let Some(channel) = channel {
            self.network.report(&reading, attribute, &channel);
        }
    }
}

/// Whether applications may say so: what arrives is counted by the service itself.
fn is_applications(attribute: &str) -> bool {
    let is_name = attribute.len() <= MAX_NAME && attribute.parse::<Name>().is_ok();
    is_name && attribute.starts_with("app.") && attribute != RATE
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(500);

    #[test]
    fn applications_speak_for_themselves_and_of_nothing_else() {
        assert!(is_applications("app.position") && is_applications("app.show_need"));
        let longest = format!("app.{}", "x".repeat(MAX_NAME));
        for refused in ["app.rate_milli", "cpu.run_queue", "position", "app. position", longest.as_str()] {
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
        assert_eq!(reports.take(ms(500), PERIOD), [("video".parse().unwrap(), 0, PERIOD)]);
        reports.delay(&video, Nanos::from_millis(130), PERIOD);
        assert_eq!(reports.next(), Some(ms(1_130)));
        reports.delay(&video, Nanos::from_millis(3_600_000), PERIOD);
        assert_eq!(reports.next(), Some(ms(2_130)), "nobody is silenced by a request");
        assert_eq!(reports.take(ms(9_000), PERIOD).len(), 1, "a late thread reports once");
        assert_eq!(reports.next(), Some(ms(9_250)));
    }

    #[test]
    fn an_event_that_several_sinks_get_counts_once() {
        let mut handed = Handed::default();
        let mut first = |numbers: &[u64]| numbers.iter().filter(|number| handed.is_first(**number)).count();
        assert_eq!([first(&[1, 2, 4]), first(&[1, 2, 4]), first(&[3, 3])], [3, 0, 1], "in whatever order");
        assert_eq!([first(&[200, 199, 199, 200]), first(&[4])], [2, 1], "long ago");
    }
}
