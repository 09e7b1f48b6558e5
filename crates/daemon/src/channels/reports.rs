//! Reports: at what rate events of a data channel arrive at this host's sinks, to the managers of those who feed it.
//!
//! A built-in IN-filter counts what is left after all others. Nothing of it is an application's affair.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_channel::{Candidates, Choose, Direction, Event, RegistrationId, Spot};
use qfabric_host::manager::policies::RATE;
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::channel_wire::Report;
use qfabric_types::monitor::{AttributeId, Cause, HOST, MAX_NAME, Reading, Unit};
use qfabric_types::{Instant, Nanos};

use super::policies::{RateMeter, number_of};
use super::registry::Registry;
use super::{Fabric, count, lock};

/// Filters are called in the order of their names.
const SPOT: &str = "zz.meter";

/// A request for a delay puts a report off by at most so many periods.
const MOST_PERIODS: u64 = 2;

/// The data channels whose arrivals are counted.
#[derive(Default)]
pub(super) struct Reports(Lock<BTreeMap<Name, Reported>, { rank::REPORTS }>);

/// Counts on one channel: shared by its filter and the reports.
type Meter = Arc<Lock<RateMeter, { rank::METER }>>;

struct Reported {
    meter: Meter,
    due: Instant,
}

impl Reports {
    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        lock(&self.0).values().map(|reported| reported.due).min()
    }

    /// Puts a channel's next report off.
    pub fn delay(&self, channel: &Name, by: Nanos, period: Nanos) {
        if let Some(reported) = lock(&self.0).get_mut(channel) {
            reported.due = reported.due + by.min(period.saturating_mul(MOST_PERIODS));
        }
    }

    /// The channel is not open here any more.
    pub fn forget(&self, channel: &Name) {
        lock(&self.0).remove(channel);
    }

    /// What was counted where it is due.
    fn take(&self, now: Instant, period: Nanos) -> Vec<(Name, i64, Nanos)> {
        let mut all = lock(&self.0);
        let due = all.iter_mut().filter(|(_, reported)| reported.due <= now);
        let taken = due.map(|(channel, reported)| {
            let (rate_milli, over) = lock(&reported.meter).report(now);
            // A thread that was late does not report twice at once.
            reported.due = (reported.due + period).max(now + Nanos::new(period.get() / 2));
            (channel.clone(), rate_milli, over)
        });
        taken.collect()
    }
}

impl Fabric {
    /// This host has a sink on the channel: from now on its arrivals are counted.
    pub(super) fn count_arrivals(&self, channel: &ChannelId) {
        let period = self.config.report;
        if period == Nanos::ZERO || channel.plane != Plane::Data {
            return;
        }
        let mut all = lock(&self.reports.0);
        if all.contains_key(&channel.name) {
            return;
        }
        let now = clock::now();
        let meter = Meter::new(RateMeter::new(now).into());
        let spot = Spot { channel: channel.clone(), direction: Direction::In, name: SPOT.parse().expect("is a name") };
        all.insert(channel.name.clone(), Reported { meter: meter.clone(), due: now + period });
        drop(all);
        // Closed meanwhile, or full of filters: then there is nothing to report.
        if self.network.look(|node| node.install_own(spot, None, &[], filter(meter))).is_err() {
            self.reports.forget(&channel.name);
        }
    }

    /// Sends what is due.
    pub(super) fn report_arrivals(&self, now: Instant) {
        for (channel, value, over) in self.reports.take(now, self.config.report) {
            let data = ChannelId::data(channel.clone());
            if !self.network.look(|node| has_sinks(node, &data)) {
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

fn has_sinks(node: &qfabric_channel::Node, channel: &ChannelId) -> bool {
    let own = node.directory().host(node.host()).and_then(|record| record.channels.get(channel));
    own.is_some_and(|held| !held.sinks.is_empty())
}

/// Counts events that some sink gets.
fn filter(meter: Meter) -> Choose {
    Box::new(move |_: &Event<'_>, _: Candidates<'_>, chosen: &mut [bool]| {
        if chosen.contains(&true) {
            lock(&meter).hit(clock::now());
        }
    })
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
        let meter = Meter::new(RateMeter::new(ms(0)).into());
        lock(&reports.0).insert(video, Reported { meter, due: ms(500) });
        let video = "video".parse().unwrap();
        assert!(reports.take(ms(499), PERIOD).is_empty());
        assert_eq!(reports.take(ms(500), PERIOD), [("video".parse().unwrap(), 0, PERIOD)]);
        reports.delay(&video, Nanos::from_millis(130), PERIOD);
        assert_eq!(reports.next(), Some(ms(1_130)));
        reports.delay(&video, Nanos::from_millis(3_600_000), PERIOD);
        assert_eq!(reports.next(), Some(ms(2_130)), "nobody is silenced by a request");
        assert_eq!(reports.take(ms(9_000), PERIOD).len(), 1, "a late thread reports once");
        assert_eq!(reports.next(), Some(ms(9_250)));
    }
}
