//! Integrated control of a stream on one of its hosts: contracts of processors first, then quality.
//!
//! ```text
//!   sink here:    SHOWN, ARRIVED ──> contract of the sink; SATURATED to the sources if there is no larger one
//!   source here:  all rates, pressure, late packets ──> bottleneck ──> predicted candidates ──> contract of the source, LEVEL
//! ```
//! The same controller runs on every host of the stream; its part follows from the reports of the applications here. The
//! arithmetic is [`qfabric_control::integrated`]. Source: thesis §5.5.

use std::collections::BTreeMap;

use qfabric_control::integrated::{Candidate as Predicted, Decided, SinkFacts, Source, SourceFacts, Terms};
use qfabric_control::ladder::Ladder;
use qfabric_types::api::channel::Candidate;
use qfabric_types::api::net::{StreamAttribute, StreamId};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST};
use qfabric_types::{AppId, Instant};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Topic, View};
use super::cpu::{Answer, Contracts, LOOK, Part, answer, guarantee};
use super::facts::{Facts, least_delay, of_application, pressure};
use super::sink_rates::FRESH;
use super::{ARRIVED, DECODED, GENERATED, MISSES, SENT, SHOWN, stream_of};

#[derive(Debug)]
pub struct Integrated {
    facts: Facts,
    sinks: Contracts,
    source: Source,
    look: Option<Instant>,
    reasons: Option<Reasons>,
    /// The application here that was the source at the last look.
    serves: Option<AppId>,
    /// The sources here know the levels.
    begun: bool,
    /// The attributes of the stream of packets that carries the events: all packets, and the late ones.
    packets: Option<[AttributeId; 2]>,
}

impl Integrated {
    /// For the applications of this host in the group of this Q-channel's name.
    pub fn new(channel: &ChannelId, ladder: Ladder, terms: Terms) -> Self {
        let sinks = Contracts::new(ladder.terms().wanted, terms.share);
        let (facts, source) = (Facts::new(channel), Source::new(ladder, terms));
        Integrated { facts, sinks, source, look: None, reasons: None, serves: None, begun: false, packets: None }
    }

    /// With the stream of packets of this host that carries the events: late packets lower the level before the sinks
    /// report a lower rate.
    #[must_use]
    pub fn with_stream(mut self, interface: &str, stream: StreamId) -> Self {
        let attributes = [StreamAttribute::Packets, StreamAttribute::Late];
        self.packets = Some(attributes.map(|attribute| attribute.id(interface, stream)));
        self
    }

    /// The part of the stream's packets that were in time. `None`: no stream is named, or it sends nothing.
    fn in_time(&self, view: &View<'_>) -> Option<f64> {
        let value = |attribute: AttributeId| {
            let reading = view.latest(view.host, attribute, HOST)?;
            (view.now.since(reading.at) <= FRESH).then_some(reading.value.max(0) as f64)
        };
        let [packets, late] = self.packets?.map(value);
        let packets = packets.filter(|packets| *packets >= 1.0)?;
        Some((1.0 - late? / packets).clamp(0.0, 1.0))
    }

    /// The application here that generates the stream.
    fn source_here(&self, view: &View<'_>) -> Option<AppId> {
        self.facts.members(view.host).find(|application| Contracts::part(view, *application) == Some(Part::Source))
    }

    /// Learns what was granted to the source.
    fn on_answer(&mut self, change: &Change, view: &View<'_>) {
        let Some((application, answer)) = answer(change, view) else { return };
        if self.source_here(view) != Some(application) {
            return;
        }
        match answer {
            Answer::Own(share) => self.source.own(share),
            Answer::Granted(share) => self.source.granted(share, view.now),
        }
    }

    fn look_at_source(&mut self, application: AppId, view: &View<'_>, decisions: &mut Decisions) {
        let rate = |name: &str| self.facts.rate(view, view.host, name);
        let here = SourceFacts {
            generated: rate(GENERATED),
            sent: rate(SENT),
            used: self.facts.used(view, view.host),
            pressure: pressure(view, view.host),
            misses: rate(MISSES)
                .or_else(|| of_application(view, view.host, HOST, MISSES).map(|milli| milli as f64 / 1e3)),
            in_time: self.in_time(view),
        };
        let names: BTreeMap<u64, Name> =
            self.facts.sinks(view.host).map(|(host, _)| (stream_of(host).0, host.clone())).collect();
        let sinks: Vec<SinkFacts> =
            self.facts.sinks(view.host).map(|(host, arrived)| self.sink(host, arrived, view)).collect();
        let Some(decided) = self.source.on_reports(&here, &sinks, view.now) else { return };
        if let Some(share) = decided.share {
            decisions.push(guarantee(application, share));
        }
        if decided.rung.is_some() {
            self.tell_levels(Some(decided.from), decisions);
        }
        self.reasons = Some(self.explain(&decided, names.get(&decided.median), sinks.len()));
    }

    fn sink(&self, host: &Name, arrived: f64, view: &View<'_>) -> SinkFacts {
        let rate = |name: &str| self.facts.rate(view, host, name);
        SinkFacts {
            sink: stream_of(host).0,
            arrived: rate(ARRIVED).or(Some(arrived)),
            decoded: rate(DECODED),
            shown: rate(SHOWN),
            used: self.facts.used(view, host),
            pressure: pressure(view, host),
            least_delay: least_delay(view, host),
            is_saturated: self.facts.is_saturated(host),
        }
    }

    /// Sends the levels that differ from those of another rung; `None`: all.
    fn tell_levels(&self, before: Option<usize>, decisions: &mut Decisions) {
        let ladder = self.source.ladder();
        let old: Vec<i64> = before.map_or(Vec::new(), |rung| ladder.levels_at(rung).map(|(_, level)| level).collect());
        for (at, (name, amount)) in ladder.levels().enumerate() {
            if old.get(at) != Some(&amount) {
                decisions.push(Decision::Apply { application: HOST, attribute: AttributeId::of(name), amount });
            }
        }
    }

    fn explain(&self, decided: &Decided, median: Option<&Name>, sinks: usize) -> Reasons {
        let wanted = self.source.ladder().terms().wanted;
        let at = median.map_or(String::new(), |host| format!(" at {host}, the median of {sinks} sinks"));
        let candidate = |(number, one): (usize, &Predicted)| Candidate {
            decision: self.words(one, decided.from),
            rate: one.rate,
            utility: one.utility,
            chosen: number == decided.chosen,
        };
        Reasons {
            cause: format!("{:.1}/s of {wanted:.1}/s{at}", decided.rate),
            bottleneck: decided.bottleneck.map(|found| found.to_string()),
            decision: decided
                .candidates
                .get(decided.chosen)
                .map_or_else(String::new, |one| self.words(one, decided.from)),
            candidates: decided.candidates.iter().enumerate().map(candidate).collect(),
        }
    }

    fn words(&self, one: &Predicted, from: usize) -> String {
        let share = one.change.source.map(|share| format!("guarantee {:.1} % of a CPU", share * 100.0));
        let levels = one.change.rung.filter(|rung| *rung != from).map(|rung| {
            let named: Vec<String> =
                self.source.ladder().levels_at(rung).map(|(name, level)| format!("{name} {level}")).collect();
            format!("{} to {}", if rung < from { "raise" } else { "lower" }, named.join(", "))
        });
        match (share, levels) {
            (None, None) => "keep".to_owned(),
            (share, levels) => share.into_iter().chain(levels).collect::<Vec<_>>().join(" and "),
        }
    }
}

impl Controller for Integrated {
    fn name(&self) -> &str {
        "integrated"
    }

    fn interests(&self) -> Vec<Interest> {
        let packets = self.packets.into_iter().flatten().map(|attribute| Interest::anywhere(Topic::Reading(attribute)));
        self.facts.interests().into_iter().chain(Contracts::interests()).chain(packets).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        self.sinks.on_change(change, view);
        self.on_answer(change, view);
        // A new process has the contract with which it began, and the best level.
        if let Some(application) = self.facts.on_change(change, view) {
            self.sinks.forget(application);
            if self.serves == Some(application) {
                self.source.restarted();
            }
        }
        let is_here = change.channel.as_ref() == Some(self.facts.channel());
        if change.what == ChangeKind::SourceJoined && is_here && self.begun {
            self.tell_levels(None, decisions);
        }
        self.look.get_or_insert(view.now + LOOK);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.facts.expire(view.now);
        self.reasons = self.sinks.look(&self.facts, &[Part::Sink], view, decisions);
        if let Some(application) = self.source_here(view) {
            if self.serves.replace(application).is_some_and(|before| before != application) {
                self.source.restarted();
            }
            if !std::mem::replace(&mut self.begun, true) {
                self.tell_levels(None, decisions);
            }
            self.look_at_source(application, view, decisions);
        }
        let has_members = self.facts.members(view.host).next().is_some();
        self.look = has_members.then(|| view.now + LOOK);
    }

    fn explanation(&mut self) -> Option<Reasons> {
        self.reasons.take()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.look
    }
}
