//! At the source of a data channel: multipoint feedback for its sinks, in roles.
//!
//! Sinks are known by their applications' registrations in a group of the channel's name: the range of the metric
//! `frame_rate` is the role, that of `importance` says who keeps its quality longest. Their monitors report [`RATE`] on
//! the Q-channel; what changes is applied to the stream here and told to the sink.

use std::collections::BTreeMap;

use qfabric_channel::Registration;
use qfabric_control::adapt::capacity::Terms;
use qfabric_control::adapt::multipoint::{Multipoint, Rate, Role};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant};

use super::super::{Change, Controller, Decision, Decisions, Interest, Topic, View, What, Whom};
use super::{RATE, stream_of, told};

/// The controller.
#[derive(Debug)]
pub struct Roles {
    channel: ChannelId,
    /// Bits of one event on the way.
    bits: f64,
    fades: bool,
    policy: Multipoint,
    sinks: BTreeMap<u64, Name>,
}

impl Roles {
    /// For the Q-channel of a data channel whose events have so many bits.
    pub fn new(channel: &ChannelId, bits: f64, terms: Terms, now: Instant) -> Self {
        let (channel, policy) = (channel.clone(), Multipoint::new(terms, now));
        Roles { channel, bits, fades: false, policy, sinks: BTreeMap::new() }
    }

    /// Streams fade below their minimum instead of stopping there.
    pub fn fading(mut self) -> Self {
        self.fades = true;
        self
    }

    fn role(&self, registration: &Registration) -> Option<Role> {
        let range = |name: &str| registration.qos.iter().find(|range| range.metric.as_str() == name);
        let rate = range("frame_rate")?;
        let importance = range("importance").map_or(0, |range| range.min.clamp(0, 1_000) as u32);
        let role = Role::range(rate.min as f64, rate.max as f64, importance);
        Some(if self.fades { Role { least: 0.5, ..role } } else { role })
    }

    fn joined(&mut self, host: &Name, registration: &Registration, now: Instant) -> Vec<Rate> {
        let here = registration.group == self.channel.name || registration.parent.as_ref() == Some(&self.channel.name);
        let Some(role) = self.role(registration).filter(|_| here) else { return Vec::new() };
        let AppId(stream) = stream_of(host);
        self.sinks.insert(stream, host.clone());
        self.policy.join(stream, role, self.bits, now)
    }

    fn left(&mut self, host: &Name) -> Vec<Rate> {
        let AppId(stream) = stream_of(host);
        if self.sinks.remove(&stream).is_none() { Vec::new() } else { self.policy.leave(stream) }
    }

    fn decide(&self, rates: Vec<Rate>, now: Instant, decisions: &mut Decisions) {
        for Rate { stream, rate } in rates {
            let Some(sink) = self.sinks.get(&stream) else { continue };
            let amount = (rate * 1e3).round() as i64;
            decisions.push(Decision::Apply { application: AppId(stream), attribute: AttributeId::of(RATE), amount });
            let event = told(self.name(), QualityKind::Rate, RATE, amount, now);
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Whom::Host(sink.clone()), event });
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
            What::Reading(reading) => {
                let AppId(stream) = stream_of(&change.host);
                self.policy.on_report(stream, reading.value as f64 / 1e3, view.now)
            }
            What::Joined(registration) => self.joined(&change.host, registration, view.now),
            What::Left(_) | What::HostGone => self.left(&change.host),
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
