//! Token rate at the source: the rate of a stream of packets follows the rate at the median sink.
//!
//! ```text
//!   hosts of sinks ── RATE ──> Tokens ── twice a second: the median ──> law ── net.…rate ──> the stream, on this host
//!   the stream ── net.…rate, sent, waiting, dropped ──> law
//! ```
//! Source: thesis §5.1.3, Figure 34.

use qfabric_control::adapt::tokens::{Facts, Terms, TokenLaw};
use qfabric_types::api::net::{StreamAttribute, StreamId};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, Reading};
use qfabric_types::{BitRate, Instant};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Topic, View};
use super::RATE;
use super::cpu::LOOK;
use super::sink_rates::{FRESH, SinkRates};

/// What the policy reads of its stream.
const READ: [StreamAttribute; 4] =
    [StreamAttribute::Rate, StreamAttribute::Sent, StreamAttribute::Waiting, StreamAttribute::Dropped];

/// The policy of one stream.
#[derive(Debug)]
pub struct Tokens {
    channel: ChannelId,
    /// The identities of [`READ`], in that order.
    attributes: [AttributeId; 4],
    law: TokenLaw,
    sinks: SinkRates,
    look: Option<Instant>,
    reasons: Option<Reasons>,
}

impl Tokens {
    /// For a stream on an interface of this host, which carries the data channel of this Q-channel.
    pub fn new(channel: &ChannelId, (interface, stream): (&str, StreamId), terms: Terms) -> Tokens {
        let attributes = READ.map(|attribute| attribute.id(interface, stream));
        let (law, sinks) = (TokenLaw::new(terms), SinkRates::default());
        Tokens { channel: channel.clone(), attributes, law, sinks, look: None, reasons: None }
    }

    fn reported(&mut self, host: &Name, reading: &Reading, now: Instant) {
        if self.sinks.reported(host, reading, now) {
            self.look.get_or_insert(now + LOOK);
        }
    }

    /// The facts of the stream. `None`: it does not report, or does not exist.
    fn facts(&self, achieved: f64, view: &View<'_>) -> Option<Facts> {
        let value = |attribute: AttributeId| {
            let reading = view.latest(view.host, attribute, HOST)?;
            (view.now.since(reading.at) <= FRESH).then_some(reading.value.max(0) as f64)
        };
        let [granted, sent, waiting, dropped] = self.attributes.map(value);
        let is_full = waiting? >= 1.0 || dropped? >= 1.0;
        Some(Facts { achieved, granted: granted?, sent: sent? * 8.0, is_full })
    }
}

impl Controller for Tokens {
    fn name(&self) -> &str {
        "tokens"
    }

    fn interests(&self) -> Vec<Interest> {
        let rate = Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)));
        let own = self.attributes.map(|attribute| Interest::anywhere(Topic::Reading(attribute)));
        own.into_iter().chain([rate, Interest::anywhere(Topic::Members)]).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, _decisions: &mut Decisions) {
        match &change.what {
            ChangeKind::Reading(reading)
                if reading.attribute == AttributeId::of(RATE) && change.channel.as_ref() == Some(&self.channel) =>
            {
                self.reported(&change.host, reading, view.now);
            }
            ChangeKind::HostGone => self.sinks.forget(&change.host),
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.sinks.keep_fresh(view.now);
        self.look = (!self.sinks.is_empty()).then(|| view.now + LOOK);
        let Some((sink, achieved)) = self.sinks.median().map(|(sink, rate)| (sink.clone(), rate)) else { return };
        let Some(facts) = self.facts(achieved, view) else { return };
        let Some(rate) = self.law.on_report(&facts, view.now) else { return };
        let [attribute, ..] = self.attributes;
        decisions.push(Decision::Apply { application: HOST, attribute, amount: rate.round() as i64 });
        let shown = |rate: f64| BitRate::new(rate.round() as u64);
        let full = if facts.is_full { "packets wait" } else { "no packet waits" };
        self.reasons = Some(Reasons {
            cause: format!("{achieved:.1}/s at {sink}, the median of {} sinks; {full}", self.sinks.len()),
            bottleneck: None,
            decision: format!("tokens {} to {}", shown(facts.granted), shown(rate)),
            candidates: Vec::new(),
        });
    }

    fn explanation(&mut self) -> Option<Reasons> {
        self.reasons.take()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.look
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;
    use qfabric_types::monitor::{Cause, Unit};

    use super::super::super::{Effect, Input, Manager, Output};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn reading(attribute: AttributeId, value: i64, at: Instant) -> Reading {
        let (over, cause, unit) = (Nanos::from_millis(500), Cause::Poll, Unit::Count);
        Reading { attribute, application: HOST, value, at, over, cause, unit }
    }

    /// Half a second: the sinks report their rates, and the stream what it sends. The decided rates of tokens.
    fn half(manager: &mut Manager, at: u64, rates: &[(&str, f64)], stream: [i64; 4]) -> Vec<i64> {
        let now = Instant::new(at * SECOND / 2);
        let (quality, here): (ChannelId, Name) = ("quality:video".parse().unwrap(), "a".parse().unwrap());
        for (attribute, value) in READ.iter().zip(stream) {
            let reading = reading(attribute.id("eth0", 3), value, now);
            manager.handle(Input::Reading(None, here.clone(), reading), now);
        }
        for (host, rate) in rates {
            let reading = reading(AttributeId::of(RATE), (rate * 1e3) as i64, now);
            manager.handle(Input::Reading(Some(quality.clone()), host.parse().unwrap(), reading), now);
        }
        while let Some(due) = manager.next_wakeup().filter(|due| *due <= now) {
            manager.handle(Input::Wake, due);
        }
        let rate_of = StreamAttribute::Rate.id("eth0", 3);
        let decided = |output| match output {
            Output::Effect(Effect::Apply(HOST, attribute, amount)) if attribute == rate_of => Some(amount),
            _ => None,
        };
        std::iter::from_fn(|| manager.poll()).filter_map(decided).collect()
    }

    fn source() -> Manager {
        let mut manager = Manager::new("a".parse().unwrap());
        let terms = Terms::new(20.0, 10e3, 10e6);
        manager.add(Box::new(Tokens::new(&"quality:video".parse().unwrap(), ("eth0", 3), terms)));
        manager
    }

    #[test]
    fn tokens_grow_while_packets_wait_and_the_median_sink_is_too_slow() {
        let mut manager = source();
        let rates = [("b", 10.0), ("c", 10.0), ("d", 20.0)];
        let full: Vec<i64> = (0..3).flat_map(|at| half(&mut manager, at, &rates, [500_000, 62_500, 3, 0])).collect();
        assert_eq!(full, [1_000_000], "at most to twice the rate, and then a second without a change");
        let mut idle = source();
        let empty = (0..8).flat_map(|at| half(&mut idle, at, &rates, [500_000, 62_500, 0, 0])).count();
        assert_eq!(empty, 0, "no packet waits: tokens are not what is missing");
        let one_bad = [("b", 2.0), ("c", 20.0), ("d", 20.0)];
        let told = (0..8).flat_map(|at| half(&mut source(), at, &one_bad, [500_000, 50_000, 3, 0])).count();
        assert_eq!(told, 0, "one bad sink of three changes nothing");
    }

    #[test]
    fn without_readings_of_the_stream_nothing_is_decided() {
        let mut manager = source();
        half(&mut manager, 0, &[("b", 20.0)], [500_000, 50_000, 0, 0]);
        let quality: ChannelId = "quality:video".parse().unwrap();
        for at in 4..20 {
            let now = Instant::new(at * SECOND);
            let report = reading(AttributeId::of(RATE), 5_000, now);
            manager.handle(Input::Reading(Some(quality.clone()), "b".parse().unwrap(), report), now);
            manager.handle(Input::Wake, now);
        }
        assert!(std::iter::from_fn(|| manager.poll()).all(|output| !matches!(output, Output::Effect(_))));
    }
}
