//! The reports of the applications of a group, by host: what `cpu` and `integrated` decide by.

use std::collections::BTreeMap;

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
/// A sink's host that has no larger contract says so again after this time, for sources and policies that start later.
pub(super) const REPEAT: Nanos = Nanos::from_millis(2_000);
/// Such a statement counts for this time: one of three may be lost.
const SATURATED_FOR: Nanos = Nanos::from_millis(7_000);
/// Limit of the hosts whose reports are kept; reports of further hosts are ignored.
const MOST_HOSTS: usize = 1_024;

/// Limit of the applications of one host; further ones are ignored.
const MOST_MEMBERS: usize = 64;

/// The applications of a channel's group, by host.
#[derive(Debug)]
pub(super) struct Group {
    name: Name,
    /// With the number of registrations: one may end while another of the same name goes on.
    members: BTreeMap<Name, BTreeMap<AppId, u32>>,
}

impl Group {
    pub(super) fn new(channel: &ChannelId) -> Group {
        Group { name: channel.name.clone(), members: BTreeMap::new() }
    }

    /// Learns from a change. Returns the application of this host that joined or left, if one did.
    pub(super) fn on_change(&mut self, change: &Change, here: &Name) -> Option<AppId> {
        let number = match &change.what {
            ChangeKind::HostGone => {
                self.members.remove(&change.host);
                return None;
            }
            ChangeKind::Joined(one) if one.group == self.name => {
                if self.members.len() >= MOST_HOSTS && !self.members.contains_key(&change.host) {
                    return None;
                }
                let members = self.members.entry(change.host.clone()).or_default();
                if members.len() < MOST_MEMBERS || members.contains_key(&number(one)) {
                    *members.entry(number(one)).or_default() += 1;
                }
                number(one)
            }
            ChangeKind::Left(one) if one.group == self.name => {
                let members = self.members.get_mut(&change.host)?;
                let registrations = members.get_mut(&number(one))?;
                *registrations -= 1;
                if *registrations > 0 {
                    return None;
                }
                members.remove(&number(one));
                number(one)
            }
            _ => return None,
        };
        (change.host == *here).then_some(number)
    }

    /// Applications of the group on a host.
    pub(super) fn members(&self, host: &Name) -> impl Iterator<Item = AppId> + '_ {
        self.members.get(host).into_iter().flat_map(BTreeMap::keys).copied()
    }

    pub(super) fn has(&self, host: &Name, application: AppId) -> bool {
        self.members.get(host).is_some_and(|members| members.contains_key(&application))
    }
}

/// The applications of a channel's group, and the rates at which the channel's events arrive.
#[derive(Debug)]
pub(super) struct Facts {
    channel: ChannelId,
    group: Group,
    /// The rate at each sink's host, in events per second, and its time.
    rates: BTreeMap<Name, (f64, Instant)>,
    /// The hosts of sinks that have no larger contract, with the time of the last such statement.
    saturated: BTreeMap<Name, Instant>,
}

impl Facts {
    pub(super) fn new(channel: &ChannelId) -> Facts {
        let (rates, saturated) = Default::default();
        Facts { channel: channel.clone(), group: Group::new(channel), rates, saturated }
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

    /// Learns from a change. Returns the application of this host that joined or left, if one did.
    pub(super) fn on_change(&mut self, change: &Change, view: &View<'_>) -> Option<AppId> {
        let is_here = change.channel.as_ref() == Some(&self.channel);
        match &change.what {
            ChangeKind::Reading(reading)
                if is_here
                    && reading.attribute == AttributeId::of(RATE)
                    && (self.rates.len() < MOST_HOSTS || self.rates.contains_key(&change.host)) =>
            {
                self.rates.insert(change.host.clone(), (reading.value.max(0) as f64 / 1e3, view.now));
            }
            ChangeKind::Control(QualityEvent { kind: QualityKind::Own, attribute, value, .. })
                if is_here && *attribute == AttributeId::of(SATURATED) =>
            {
                self.saturated.remove(&change.host);
                if *value > 0 && self.saturated.len() < MOST_HOSTS {
                    self.saturated.insert(change.host.clone(), view.now);
                }
            }
            ChangeKind::HostGone => {
                self.rates.remove(&change.host);
                self.saturated.remove(&change.host);
            }
            _ => {}
        }
        self.group.on_change(change, view.host)
    }

    /// Forgets rates and statements that are no longer reported.
    pub(super) fn expire(&mut self, now: Instant) {
        self.saturated.retain(|_, at| now.since(*at) <= SATURATED_FOR);
        self.rates.retain(|_, (_, at)| now.since(*at) <= FRESH);
    }

    pub(super) fn is_saturated(&self, host: &Name) -> bool {
        self.saturated.contains_key(host)
    }

    /// The hosts with sinks that report, this host excepted, with the rates at which events arrive there.
    pub(super) fn sinks<'f>(&'f self, here: &'f Name) -> impl Iterator<Item = (&'f Name, f64)> {
        self.rates.iter().filter(move |(host, _)| *host != here).map(|(host, (rate, _))| (host, *rate))
    }

    /// Applications of the group on a host.
    pub(super) fn members(&self, host: &Name) -> impl Iterator<Item = AppId> + '_ {
        self.group.members(host)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_a_member_until_its_last_registration_ends() {
        let (here, name): (Name, Name) = ("a".parse().unwrap(), "video".parse().unwrap());
        let mut group = Group::new(&ChannelId::data(name.clone()));
        let (application, level, qos) = ("player".parse().unwrap(), 2, Vec::new());
        let one = Registration { application, group: name, parent: None, level, qos };
        let mut hear = |what| {
            let change = Change { channel: None, host: here.clone(), what };
            let told = group.on_change(&change, &here);
            (told.is_some(), group.has(&here, number(&one)))
        };
        assert_eq!(hear(ChangeKind::Joined(one.clone())), (true, true));
        assert_eq!(hear(ChangeKind::Joined(one.clone())), (true, true), "the program starts again");
        assert_eq!(hear(ChangeKind::Left(one.clone())), (false, true), "the old process ends");
        assert_eq!(hear(ChangeKind::Left(one.clone())), (true, false));
    }
}
