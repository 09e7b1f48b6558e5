//! Application adaptation at the source: a ladder that follows the rate at the median sink.
//!
//! ```text
//!   hosts of sinks ── RATE ──> Adapt ── once a second: the median ──> ladder ── LEVEL ──> sources here
//!   applications ── GENERATED, DECODED, SHOWN; cpu.pressure ──> bottleneck finder ──> the explanation
//! ```
//! The median makes the stream independent of a few sinks: a bad downlink, or a sink that reports a wrong rate, changes
//! nothing for the others while fewer than half are like it. With an even number the lower middle counts. The ladder
//! decides; the predicted utilities of its candidates are for the user. Source: thesis §5.3, §5.5.

use std::collections::BTreeMap;

use qfabric_control::bottleneck::{self, Observation};
use qfabric_control::ladder::{Ladder, Move};
use qfabric_control::relief::Relief;
use qfabric_types::api::channel::Candidate;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, Reading};
use qfabric_types::{Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Topic, View};
use super::facts::Group;
use super::sink_rates::{FRESH, SinkRates};
use super::{LEAST_DELAY, MISSES, RATE, SENT};

/// Name of the attribute for the level of a dimension of a ladder.
pub const LEVEL: &str = "app.level";

/// Names of the attributes by which applications report their rates, in thousandths of an event per second: generated
/// at the source, decoded and shown at a sink.
pub const GENERATED: &str = "app.generated_milli";
pub const DECODED: &str = "app.decoded_milli";
pub const SHOWN: &str = "app.shown_milli";

/// Pressure on a host's CPU, in millionths.
const PRESSURE: &str = "cpu.pressure";

/// Time between two looks at the rates.
const LOOK: Nanos = Nanos::from_millis(1_000);
/// A rate seen at a rung predicts the rate there for this time.
const REMEMBERED: Nanos = Nanos::from_millis(60_000);

#[derive(Debug)]
pub struct Adapt {
    channel: ChannelId,
    ladder: Ladder,
    sinks: SinkRates,
    /// The applications whose reports are about this stream.
    group: Group,
    /// The delays at the sinks, which show that a link has recovered.
    relief: Relief<Name>,
    look: Option<Instant>,
    /// The last rate at each rung that was in force.
    seen: BTreeMap<usize, (f64, Instant)>,
    reasons: Option<Reasons>,
    begun: bool,
}

impl Adapt {
    /// For the sources here on the data channel of this Q-channel.
    pub fn new(channel: &ChannelId, ladder: Ladder) -> Self {
        let (sinks, seen) = (SinkRates::default(), BTreeMap::new());
        let (group, relief) = (Group::new(channel), Relief::new(ladder.terms().period()));
        Adapt { channel: channel.clone(), ladder, sinks, group, relief, look: None, seen, reasons: None, begun: false }
    }

    fn reported(&mut self, host: &Name, reading: &Reading, now: Instant) {
        if self.sinks.reported(host, reading, now) {
            self.look.get_or_insert(now + LOOK);
        }
    }

    /// Sends the levels that differ from those of another rung; `None`: all.
    fn tell(&self, before: Option<usize>, decisions: &mut Decisions) {
        let old: Vec<i64> =
            before.map_or(Vec::new(), |rung| self.ladder.levels_at(rung).map(|(_, level)| level).collect());
        for (at, (name, amount)) in self.ladder.levels().enumerate() {
            if old.get(at) != Some(&amount) {
                decisions.push(Decision::Apply { application: HOST, attribute: AttributeId::of(name), amount });
            }
        }
    }

    fn observe(&self, sink: &Name, arrived: f64, view: &View<'_>) -> Observation {
        let fresh = |reading: &&Reading| view.now.since(reading.at) <= FRESH;
        // A host may have applications of other channels.
        let host_of = |host: &Name, name: &str| {
            let is_meant = |reading: &&Reading| {
                fresh(reading) && (reading.application == HOST || self.group.has(host, reading.application))
            };
            view.of_host(host, AttributeId::of(name)).filter(is_meant).map(|reading| reading.value.max(0)).max()
        };
        let rate = |host: &Name, name: &str| host_of(host, name).map(|milli| milli as f64 / 1e3);
        let pressure = |host: &Name| host_of(host, PRESSURE).map(|millionths| millionths as f64 / 1e6);
        Observation {
            wanted: self.ladder.terms().wanted,
            generated: rate(view.host, GENERATED),
            sent: rate(view.host, SENT),
            arrived: Some(arrived),
            decoded: rate(sink, DECODED),
            shown: rate(sink, SHOWN),
            misses: rate(view.host, MISSES),
            source_pressure: pressure(view.host),
            sink_pressure: pressure(sink),
        }
    }

    /// The predicted rate at a rung: what was seen there lately, else scaled from the rate now. Assumes that the cost of
    /// an event falls in equal parts from rung to rung, to `1/(rungs + 1)` at the lowest.
    fn predict(&self, rung: usize, now_at: usize, rate: f64, now: Instant) -> f64 {
        if rung == now_at {
            return rate;
        }
        if let Some((seen, _)) = self.seen.get(&rung).filter(|(_, at)| now.since(*at) <= REMEMBERED) {
            return *seen;
        }
        let cost = |rung: usize| 1.0 - rung as f64 / (self.ladder.lowest() as f64 + 1.0);
        (rate * cost(now_at) / cost(rung)).min(self.ladder.terms().wanted.max(rate))
    }

    /// Rungs near the present one and the chosen one, with their predicted utility. The lowest rung is worth half of
    /// the best.
    fn candidates(&self, step: &Move, rate: f64, now: Instant) -> Vec<Candidate> {
        let lowest = self.ladder.lowest();
        let mut rungs: Vec<usize> =
            [step.from.saturating_sub(1), step.from, (step.from + 1).min(lowest), step.to].into();
        rungs.sort_unstable();
        rungs.dedup();
        let candidate = |rung: usize| {
            let predicted = self.predict(rung, step.from, rate, now);
            let worth = 1.0 - rung as f64 / (2.0 * lowest.max(1) as f64);
            let utility = (predicted / self.ladder.terms().wanted).min(1.0) * worth;
            Candidate { decision: self.words(rung, step.from), rate: predicted, utility, chosen: rung == step.to }
        };
        rungs.into_iter().map(candidate).collect()
    }

    fn words(&self, rung: usize, from: usize) -> String {
        let levels: Vec<String> = self.ladder.levels_at(rung).map(|(name, level)| format!("{name} {level}")).collect();
        let verb = match rung.cmp(&from) {
            std::cmp::Ordering::Less => "raise to",
            std::cmp::Ordering::Equal => "keep",
            std::cmp::Ordering::Greater => "lower to",
        };
        format!("{verb} {}", levels.join(", "))
    }

    fn look_at_rates(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.sinks.keep_fresh(view.now);
        self.relief.retain(|sink| self.sinks.has(sink));
        let Some((sink, rate)) = self.sinks.median().map(|(sink, rate)| (sink.clone(), rate)) else { return };
        self.seen.insert(self.ladder.rung(), (rate, view.now));
        let is_relieved = self.relief.is_there(view.now) && self.ladder.relieve(view.now);
        let Some(step) = self.ladder.on_rate(rate, view.now) else { return };
        self.relief.reset();
        self.tell(Some(step.from), decisions);
        let relief = if is_relieved { "; the delay is shorter" } else { "" };
        let found = bottleneck::find(&self.observe(&sink, rate, view), &bottleneck::Terms::default());
        self.reasons = Some(Reasons {
            cause: format!("{} at {sink}, the median of {} sinks{relief}", step.reason, self.sinks.len()),
            bottleneck: found.filter(|_| step.is_lower()).map(|found| found.to_string()),
            decision: self.words(step.to, step.from),
            candidates: self.candidates(&step, rate, view.now),
        });
    }
}

impl Controller for Adapt {
    fn name(&self) -> &str {
        "adapt"
    }

    fn interests(&self) -> Vec<Interest> {
        let on = |name: &str| Interest::on(&self.channel, Topic::Reading(AttributeId::of(name)));
        let anywhere = |name: &str| Interest::anywhere(Topic::Reading(AttributeId::of(name)));
        let others = [GENERATED, SENT, DECODED, SHOWN, MISSES, PRESSURE].map(anywhere);
        others.into_iter().chain([on(RATE), on(LEAST_DELAY), Interest::anywhere(Topic::Members)]).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        self.group.on_change(change, view.host);
        let is_here = change.channel.as_ref() == Some(&self.channel);
        // A source that joins later begins with the best level.
        let has_joined = is_here && change.what == ChangeKind::SourceJoined;
        if !std::mem::replace(&mut self.begun, true) || has_joined {
            self.tell(None, decisions);
        }
        match &change.what {
            ChangeKind::Reading(reading) if is_here && reading.attribute == AttributeId::of(RATE) => {
                self.reported(&change.host, reading, view.now);
            }
            ChangeKind::Reading(reading) if is_here && reading.attribute == AttributeId::of(LEAST_DELAY) => {
                self.relief.on_delay(&change.host, reading.value as f64, view.now);
            }
            ChangeKind::HostGone => {
                self.sinks.forget(&change.host);
                self.relief.forget(&change.host);
            }
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.look_at_rates(view, decisions);
        self.look = (!self.sinks.is_empty()).then(|| view.now + LOOK);
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
    use qfabric_control::ladder::{Dimension, Terms};
    use qfabric_types::monitor::{Cause, Unit};

    use super::super::super::{Effect, Input, Manager, Output};
    use super::*;

    fn source(channel: &ChannelId) -> Manager {
        let dimensions = vec![Dimension::new("quality", &[80, 60, 40]), Dimension::new("size", &[640, 320])];
        let mut manager = Manager::new("a".parse().unwrap());
        manager.add(Box::new(Adapt::new(channel, Ladder::new(dimensions, Terms::new(20.0)).unwrap())));
        manager
    }

    /// A sink's report of its rate, in events per second.
    fn reading(rate: f64, at: Instant) -> Reading {
        Reading {
            attribute: AttributeId::of(RATE),
            application: HOST,
            value: (rate * 1e3) as i64,
            at,
            over: Nanos::from_millis(500),
            cause: Cause::Poll,
            unit: Unit::Count,
        }
    }

    /// One second with a report from each sink; the decided levels.
    fn second(manager: &mut Manager, channel: &ChannelId, at: u64, rates: &[(&str, f64)]) -> Vec<i64> {
        let now = Instant::new(at * 1_000_000_000);
        for (host, rate) in rates {
            manager.handle(Input::Reading(Some(channel.clone()), host.parse().unwrap(), reading(*rate, now)), now);
        }
        while let Some(due) = manager.next_wakeup().filter(|due| *due <= now + LOOK) {
            manager.handle(Input::Wake, due);
        }
        let level = |output| match output {
            Output::Effect(Effect::Apply(_, _, amount)) => Some(amount),
            _ => None,
        };
        std::iter::from_fn(|| manager.poll()).filter_map(level).collect()
    }

    #[test]
    fn quality_falls_while_the_rate_is_too_low_then_size_and_both_come_back_in_reverse_order() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let mut manager = source(&channel);
        assert_eq!(second(&mut manager, &channel, 0, &[("b", 20.0)]), [80, 640], "the levels at the beginning");
        let down: Vec<i64> = (1..12).flat_map(|at| second(&mut manager, &channel, at, &[("b", 16.0)])).collect();
        assert_eq!(down, [60, 40, 320]);
        let up: Vec<i64> = (12..400).flat_map(|at| second(&mut manager, &channel, at, &[("b", 20.0)])).collect();
        assert_eq!(up, [640, 60, 80]);
    }

    #[test]
    fn a_source_that_starts_again_gets_the_levels_again() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let mut manager = source(&channel);
        let lowered: Vec<i64> = (0..6).flat_map(|at| second(&mut manager, &channel, at, &[("b", 16.0)])).collect();
        assert_eq!(lowered, [80, 640, 60, 40, 320]);
        manager.handle(Input::SourceJoined("quality:other".parse().unwrap()), Instant::new(6_000_000_000));
        assert_eq!(second(&mut manager, &channel, 6, &[("b", 20.0)]), [0_i64; 0]);
        manager.handle(Input::SourceJoined(channel.clone()), Instant::new(7_000_000_000));
        assert_eq!(second(&mut manager, &channel, 7, &[("b", 20.0)]), [40, 320]);
    }

    #[test]
    fn the_bottleneck_is_found_by_the_applications_of_the_channel() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let ladder = Ladder::new(vec![Dimension::new("quality", &[80, 60])], Terms::new(20.0)).unwrap();
        let (mut adapt, here) = (Adapt::new(&channel, ladder), "a".parse().unwrap());
        let mut readings = super::super::super::Readings::new(9);
        let mut found = |group: &str, generated: i64| {
            let (group, application): (Name, Name) = (group.parse().unwrap(), "server".parse().unwrap());
            let (application, joined) = (super::super::member_of(&group, &application), {
                qfabric_channel::Registration { application, group, parent: None, level: 2, qos: Vec::new() }
            });
            let report = Reading { attribute: AttributeId::of(GENERATED), application, ..reading(0.0, Instant::ZERO) };
            readings.keep(&here, Reading { value: generated, ..report });
            let view = View { host: &here, now: Instant::ZERO, readings: &readings };
            let change = Change { channel: None, host: here.clone(), what: ChangeKind::Joined(joined) };
            adapt.changed(&change, &view, &mut Vec::new());
            adapt.observe(&"b".parse().unwrap(), 9.0, &view).generated
        };
        assert_eq!(found("audio", 50_000), None, "another channel's application");
        assert_eq!(found("video", 10_000), Some(10.0));
    }

    #[test]
    fn one_bad_sink_of_three_changes_nothing() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let mut manager = source(&channel);
        let rates = [("b", 20.0), ("c", 19.9), ("d", 2.0)];
        let told: Vec<i64> = (0..60).flat_map(|at| second(&mut manager, &channel, at, &rates)).collect();
        assert_eq!(told, [80, 640]);
    }

    #[test]
    fn sinks_that_have_closed_do_not_hide_that_the_delay_of_the_others_is_shorter() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let ladder = Ladder::new(vec![Dimension::new("quality", &[80, 60])], Terms::new(20.0)).unwrap();
        let (mut adapt, here) = (Adapt::new(&channel, ladder), "a".parse().unwrap());
        let readings = super::super::super::Readings::new(1);
        for half in 0..11 {
            let now = Instant::new(half * 500_000_000);
            let view = View { host: &here, now, readings: &readings };
            let (sinks, delay) = if half < 3 { (3, 40_000_000) } else { (1, 10_000_000) };
            let delay = Reading { attribute: AttributeId::of(LEAST_DELAY), value: delay, ..reading(0.0, now) };
            for host in ["b", "c", "d"].into_iter().take(sinks) {
                for reading in [reading(20.0, now), delay] {
                    let (channel, what) = (Some(channel.clone()), ChangeKind::Reading(reading));
                    let change = Change { channel, host: host.parse().unwrap(), what };
                    adapt.changed(&change, &view, &mut Vec::new());
                }
            }
            adapt.woken(&view, &mut Vec::new());
        }
        assert!(adapt.relief.is_there(Instant::new(5_000_000_000)));
    }

    #[test]
    fn the_explanation_names_cause_candidates_and_bottleneck() {
        let channel: ChannelId = "quality:video".parse().unwrap();
        let dimensions = vec![Dimension::new("quality", &[80, 60, 40])];
        let mut adapt = Adapt::new(&channel, Ladder::new(dimensions, Terms::new(20.0)).unwrap());
        let (host, readings) = ("a".parse().unwrap(), super::super::super::Readings::new(1));
        adapt.sinks.reported(&"b".parse().unwrap(), &reading(12.0, Instant::ZERO), Instant::ZERO);
        adapt.woken(&View { host: &host, now: Instant::new(1_000_000_000), readings: &readings }, &mut Vec::new());
        let reasons = adapt.explanation().unwrap();
        assert_eq!(reasons.cause, "12.0/s of 20.0/s at b, the median of 1 sinks");
        assert_eq!(reasons.bottleneck.unwrap(), "link: 12.0/s arrived of 20.0/s wanted");
        let chosen: Vec<_> = reasons.candidates.iter().filter(|one| one.chosen).collect();
        assert_eq!((chosen.len(), chosen[0].decision.as_str()), (1, "lower to quality 40"));
        assert_eq!((reasons.candidates.len(), adapt.explanation()), (3, None));
    }
}
