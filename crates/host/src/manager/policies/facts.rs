//! The reports of the applications of a group, by host: what `cpu` and `integrated` decide by.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_channel::Registration;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, QualityKind};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Interest, Topic, View};
use super::{ARRIVED, CPU_USED, DECODED, GENERATED, LEAST_DELAY, MISSES, RATE, SATURATED, SENT, SHOWN, member_of};

/// Pressure on a host's CPU, in millionths.
const PRESSURE: &str = "cpu.pressure";
/// A report older than this no longer counts.
const FRESH: Nanos = Nanos::from_millis(3_000);
/// Limit of the hosts whose reports are kept; reports of further hosts are ignored.
const MOST_HOSTS: usize = 1_024;

/// Limit of the applications of one host; further ones are ignored.
const MOST_MEMBERS: usize = 64;

/// The applications of a channel's group, and the rates at which the channel's events arrive.
#[derive(Debug)]
pub(super) struct Facts {
    channel: ChannelId,
    members: BTreeMap<Name, BTreeSet<AppId>>,
    /// The rate at each sink's host, in events per second, and its time.
    rates: BTreeMap<Name, (f64, Instant)>,
    saturated: BTreeSet<Name>,
}

impl Facts {
    pub(super) fn new(channel: &ChannelId) -> Facts {
        let (members, rates, saturated) = Default::default();
        Facts { channel: channel.clone(), members, rates, saturated }
    }

    pub(super) fn channel(&self) -> &ChannelId {
        &self.channel
    }

    pub(super) fn interests(&self) -> Vec<Interest> {
        let anywhere = |name: &str| Interest::anywhere(Topic::Reading(AttributeId::of(name)));
        let reports = [GENERATED, SENT, ARRIVED, DECODED, SHOWN, MISSES, CPU_USED, PRESSURE].map(anywhere);
        let on = |name: &str| Interest::on(&self.channel, Topic::Reading(AttributeId::of(name)));
        let more = [
            on(RATE),
            on(LEAST_DELAY),
            Interest::on(&self.channel, Topic::Control),
            Interest::anywhere(Topic::Members),
        ];
        reports.into_iter().chain(more).collect()
    }

    /// Learns from a change. Returns the application of this host that left, if one did.
    pub(super) fn on_change(&mut self, change: &Change, view: &View<'_>) -> Option<AppId> {
        let is_here = change.channel.as_ref() == Some(&self.channel);
        match &change.what {
            ChangeKind::Reading(reading) if is_here && reading.attribute == AttributeId::of(RATE) => {
                if self.rates.len() < MOST_HOSTS || self.rates.contains_key(&change.host) {
                    self.rates.insert(change.host.clone(), (reading.value.max(0) as f64 / 1e3, view.now));
                }
                None
            }
            ChangeKind::Control(QualityEvent { kind: QualityKind::Own, attribute, value, .. })
                if is_here && *attribute == AttributeId::of(SATURATED) =>
            {
                match *value > 0 && self.saturated.len() < MOST_HOSTS {
                    true => self.saturated.insert(change.host.clone()),
                    false => self.saturated.remove(&change.host),
                };
                None
            }
            ChangeKind::HostGone => {
                self.rates.remove(&change.host);
                self.saturated.remove(&change.host);
                self.members.remove(&change.host);
                None
            }
            ChangeKind::Joined(one) if one.group == self.channel.name => {
                if self.members.len() < MOST_HOSTS || self.members.contains_key(&change.host) {
                    let members = self.members.entry(change.host.clone()).or_default();
                    if members.len() < MOST_MEMBERS {
                        members.insert(number(one));
                    }
                }
                None
            }
            ChangeKind::Left(one) if one.group == self.channel.name => {
                let number = number(one);
                self.members.get_mut(&change.host)?.remove(&number);
                (change.host == *view.host).then_some(number)
            }
            _ => None,
        }
    }

    /// Forgets rates that are no longer reported.
    pub(super) fn expire(&mut self, now: Instant) {
        self.rates.retain(|_, (_, at)| now.since(*at) <= FRESH);
    }

    pub(super) fn is_saturated(&self, host: &Name) -> bool {
        self.saturated.contains(host)
    }

    /// The hosts with sinks that report, this host excepted, with the rates at which events arrive there.
    pub(super) fn sinks<'f>(&'f self, here: &'f Name) -> impl Iterator<Item = (&'f Name, f64)> {
        self.rates.iter().filter(move |(host, _)| *host != here).map(|(host, (rate, _))| (host, *rate))
    }

    /// Applications of the group on a host.
    pub(super) fn members(&self, host: &Name) -> impl Iterator<Item = AppId> + '_ {
        self.members.get(host).into_iter().flatten().copied()
    }

    /// The last report of an application of the group on a host; of several, the largest.
    pub(super) fn of_host(&self, view: &View<'_>, host: &Name, name: &str) -> Option<i64> {
        self.members(host).filter_map(|application| of_application(view, host, application, name)).max()
    }

    pub(super) fn rate(&self, view: &View<'_>, host: &Name, name: &str) -> Option<f64> {
        self.of_host(view, host, name).map(|milli| milli as f64 / 1e3)
    }

    pub(super) fn used(&self, view: &View<'_>, host: &Name) -> Option<f64> {
        self.of_host(view, host, CPU_USED).map(|ppm| ppm as f64 / 1e6)
    }
}

fn number(one: &Registration) -> AppId {
    member_of(&one.group, &one.application)
}

/// The last report of an application, if it is not too old.
pub(super) fn of_application(view: &View<'_>, host: &Name, application: AppId, name: &str) -> Option<i64> {
    let reading = view.latest(host, AttributeId::of(name), application)?;
    (view.now.since(reading.at) <= FRESH).then_some(reading.value.max(0))
}

/// The least delay at a sink's host, in nanoseconds; the clocks may make it negative.
pub(super) fn least_delay(view: &View<'_>, host: &Name) -> Option<f64> {
    let reading = view.latest(host, AttributeId::of(LEAST_DELAY), qfabric_types::monitor::HOST)?;
    (view.now.since(reading.at) <= FRESH).then_some(reading.value as f64)
}

/// Pressure on the CPU of a host, 0 to 1.
pub(super) fn pressure(view: &View<'_>, host: &Name) -> Option<f64> {
    let application = qfabric_types::monitor::HOST;
    of_application(view, host, application, PRESSURE).map(|ppm| ppm as f64 / 1e6)
}
