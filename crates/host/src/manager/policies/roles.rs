//! Multipoint feedback at the source of a data channel, for the roles of its sinks.
//!
//! Sinks are the hosts of applications registered in a group of the channel's name, or in a subgroup: the range of
//! the metric `frame_rate` is the role; `importance` decides which sinks keep their quality longest, and among equals
//! the range of `utility`, if all have it. Their monitors report [`RATE`] on the Q-channel; changed rates are applied to
//! the stream here and sent to the sink.

use std::collections::BTreeMap;

use qfabric_channel::Registration;
use qfabric_control::adapt::capacity::Terms;
use qfabric_control::adapt::multipoint::{Multipoint, Rate, Role};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::viewers::Viewers;
use super::{RATE, stream_of, told};

#[derive(Debug)]
pub struct Roles {
    channel: ChannelId,
    /// Size of one event on the network, in bits.
    bits: f64,
    fades: bool,
    policy: Multipoint,
    viewers: Viewers<Name>,
    sinks: BTreeMap<u64, Name>,
}

impl Roles {
    /// For the Q-channel of a data channel whose events have `bits` bits.
    pub fn new(channel: &ChannelId, bits: f64, terms: Terms, now: Instant) -> Self {
        let (channel, policy) = (channel.clone(), Multipoint::new(terms, now));
        Roles { channel, bits, fades: false, policy, viewers: Viewers::default(), sinks: BTreeMap::new() }
    }

    /// Streams may go below their minimum instead of stopping there.
    pub fn fading(mut self) -> Self {
        self.fades = true;
        self
    }

    fn joined(&mut self, host: &Name, viewer: &Registration, now: Instant) -> Vec<Rate> {
        let is_here = viewer.group == self.channel.name || viewer.parent.as_ref() == Some(&self.channel.name);
        if !is_here || !self.viewers.join(host.clone(), viewer) {
            return Vec::new();
        }
        self.sinks.insert(stream_of(host).0, host.clone());
        self.seat(host, now)
    }

    /// Sets the stream of a host to the common role of its viewers.
    fn seat(&mut self, host: &Name, now: Instant) -> Vec<Rate> {
        let Some(role) = self.viewers.role(host) else { return Vec::new() };
        let role = if self.fades { Role { least: 0.5, ..role } } else { role };
        self.policy.join(stream_of(host).0, role, self.bits, now)
    }

    fn left(&mut self, host: &Name, viewer: &Registration, now: Instant, decisions: &mut Decisions) -> Vec<Rate> {
        if !self.viewers.leave(host, viewer) {
            return Vec::new();
        }
        if self.viewers.role(host).is_some() {
            return self.seat(host, now);
        }
        decisions.push(Decision::Release { application: stream_of(host), attribute: AttributeId::of(RATE) });
        self.gone(host)
    }

    fn gone(&mut self, host: &Name) -> Vec<Rate> {
        let AppId(stream) = stream_of(host);
        self.viewers.retain(|of| of != host);
        if self.sinks.remove(&stream).is_none() { Vec::new() } else { self.policy.leave(stream) }
    }

    fn decide(&self, rates: Vec<Rate>, now: Instant, decisions: &mut Decisions) {
        for Rate { stream, rate } in rates {
            let Some(sink) = self.sinks.get(&stream) else { continue };
            let amount = (rate * 1e3).round() as i64;
            decisions.push(Decision::Apply { application: AppId(stream), attribute: AttributeId::of(RATE), amount });
            let event = told(self.name(), QualityKind::Rate, RATE, amount, now);
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Recipient::Host(sink.clone()), event });
        }
    }
}

impl Controller for Roles {
    fn name(&self) -> &str {
        "roles"
    }

    fn interests(&self) -> Vec<Interest> {
        let reports = Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)));
        vec![reports, Interest::anywhere(Topic::Members)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let rates = match &change.what {
            ChangeKind::Reading(reading) => {
                let AppId(stream) = stream_of(&change.host);
                self.policy.on_report(stream, reading.value as f64 / 1e3, view.now)
            }
            ChangeKind::Joined(viewer) => self.joined(&change.host, viewer, view.now),
            ChangeKind::Left(viewer) => self.left(&change.host, viewer, view.now, decisions),
            ChangeKind::HostGone => self.gone(&change.host),
            _ => Vec::new(),
        };
        self.decide(rates, view.now, decisions);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let rates = self.policy.on_time(view.now);
        self.decide(rates, view.now, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let at = self.policy.next_wakeup();
        (!self.sinks.is_empty()).then_some(at)
    }
}
