//! The source of one stream: keeps its ladder and its contract, by the reports of all sinks.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::{Instant, Nanos};

use super::share::EFFECT;
use super::{Candidate, Change, Plan, ShareFacts, ShareLaw, ShareTerms, plan};
use crate::bottleneck::{self, Bottleneck, Evidence, Guilty, Observation};
use crate::flow::{Host, Processor, Rung, Sink, Situation, Stream};
use crate::ladder::Ladder;
use crate::relief::Relief;

/// Weight of the newest report in the smoothed rate that allows recovery.
const SMOOTHING: f64 = 0.4;
/// Sinks that the model contains; those that report first.
const MOST_SINKS: usize = 256;
/// A cost that was measured at another rung counts for this time; a scene may have changed since.
const REMEMBERED: Nanos = Nanos::from_millis(60_000);
/// Time after the first report in which costs and rates are those of a stream that begins.
const BEGINNING: Nanos = Nanos::from_millis(2_000);
/// Cost of an event if nothing is known: a hundredth of a wanted period.
const FREE: f64 = 0.01;
/// A sink's host that neither reports saturation nor restores the rate in this time does not act: a rung falls.
const STALLED: Nanos = Nanos::from_millis(10_000);
/// A rate that rises by this part of the wanted one is progress.
const PROGRESS: f64 = 0.05;
/// However many packets are late, at least this part of the rate counts: one report lowers the level by half at most.
const LEAST_IN_TIME: f64 = 0.5;
/// A loss below this part is none, where several small losses together are the reason.
const SMALL: f64 = 0.02;

/// Limits of [`Source`], beside those of its ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    pub share: ShareTerms,
    pub bottleneck: bottleneck::Terms,
}

/// The last reports of the source's host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SourceFacts {
    /// Rates in events per second.
    pub generated: Option<f64>,
    pub sent: Option<f64>,
    /// CPU time that the application used, in CPUs.
    pub used: Option<f64>,
    /// Pressure on the CPU, 0 to 1.
    pub pressure: Option<f64>,
    /// Periods of packets that missed their deadline, per second (DWCS).
    pub misses: Option<f64>,
    /// The part of the stream's packets that left the host in time, 0 to 1; none: unknown.
    pub in_time: Option<f64>,
}

/// The last reports of one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SinkFacts {
    /// Identifies the sink from report to report.
    pub sink: u64,
    /// Rates in events per second.
    pub arrived: Option<f64>,
    pub decoded: Option<f64>,
    pub shown: Option<f64>,
    /// CPU time that the application used, in CPUs.
    pub used: Option<f64>,
    /// Pressure on the CPU, 0 to 1.
    pub pressure: Option<f64>,
    /// The least delay of an event since the last report, in nanoseconds, with any constant error.
    pub least_delay: Option<f64>,
    /// The sink's host has no larger contract for it.
    pub is_saturated: bool,
}

impl SinkFacts {
    /// The rate that counts: that of the last known stage.
    pub fn rate(&self) -> Option<f64> {
        self.shown.or(self.decoded).or(self.arrived)
    }
}

/// A decision with what led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The new rung, if it changes.
    pub rung: Option<usize>,
    /// The new guaranteed share of the source, in CPUs, if it changes.
    pub share: Option<f64>,
    /// The rung before.
    pub from: usize,
    /// The rate at the median sink, in events per second.
    pub rate: f64,
    /// The sink in the middle.
    pub median: u64,
    /// The part that limits the stream; `None`: the stream recovers.
    pub bottleneck: Option<Bottleneck>,
    /// All candidates; the chosen one is at `chosen`.
    pub candidates: Vec<Candidate>,
    pub chosen: usize,
}

/// Estimates of a sink from its earlier reports.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Bits per second that its way carries; infinite if unknown. Bits are relative to those of the best rung.
    downlink: f64,
    others: f64,
    /// CPU seconds per event at the best rung.
    cost: f64,
}

impl Known {
    const NEW: Known = Known { downlink: f64::INFINITY, others: 0.0, cost: 0.0 };
}

/// The state at the source of one stream. Feed it once or twice per second.
#[derive(Clone, Debug)]
pub struct Source {
    terms: Terms,
    ladder: Ladder,
    law: ShareLaw,
    /// CPU seconds per event, by rung, with the time of the last report: measured, or at most this, if the application
    /// does not report its CPU time.
    costs: BTreeMap<usize, (f64, Instant)>,
    /// Other programs on the source's processor.
    others: f64,
    /// The largest share that the processor really gives, in CPUs; less than the contract's limit if it was refused.
    room: f64,
    known: BTreeMap<u64, Known>,
    guilty: Option<Guilty>,
    begun: Option<Instant>,
    /// While the host of the sink in the middle is to act: the best rate, and since when there is none better.
    stalled: Option<(f64, Instant)>,
    /// The delays at the sinks, which show that a link has recovered.
    relief: Relief<u64>,
    patience: Patience,
}

/// When a change is allowed; the rules of [`Ladder`].
#[derive(Clone, Copy, Debug)]
struct Patience {
    smooth: Option<f64>,
    /// Low rates in a row.
    low: u32,
    kept: Option<Instant>,
    changed: Option<Instant>,
    wait: Nanos,
    /// The last change was a higher rung that may fail.
    is_probing: bool,
    /// The last change was one of the contract alone.
    is_contract: bool,
    /// A limit seems to have ended: half of the rungs may come back at once.
    is_relieved: bool,
    /// When a higher rung failed last.
    failed: Option<Instant>,
}

impl Source {
    pub fn new(ladder: Ladder, terms: Terms) -> Source {
        let calm = ladder.terms().calm;
        let (smooth, kept, changed) = (None, None, None);
        let (is_probing, is_contract, is_relieved, failed) = (false, false, false, None);
        let patience =
            Patience { smooth, low: 0, kept, changed, wait: calm, is_probing, is_contract, is_relieved, failed };
        let relief = Relief::new(ladder.terms().period());
        let (costs, known) = (BTreeMap::new(), BTreeMap::new());
        Source {
            terms,
            ladder,
            law: ShareLaw::new(terms.share),
            costs,
            others: 0.0,
            room: terms.share.most,
            known,
            guilty: None,
            begun: None,
            stalled: None,
            relief,
            patience,
        }
    }

    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The host tells what the contract guarantees without any decision, in CPUs.
    pub fn own(&mut self, share: f64) {
        self.terms.share.least = share;
        self.law.own(share);
    }

    /// The host tells what it guarantees after the last decision, in CPUs.
    pub fn granted(&mut self, share: f64, now: Instant) {
        self.law.granted(share, now);
        if self.law.is_refused(now) {
            self.room = share;
        }
    }

    /// The guaranteed share of the source's contract, in CPUs.
    pub fn share(&self) -> f64 {
        self.law.share()
    }

    /// The application at the source is a new process: it has the contract with which it began.
    pub fn restarted(&mut self) {
        self.law = ShareLaw::new(self.terms.share);
        (self.others, self.room, self.begun, self.stalled) = (0.0, self.terms.share.most, None, None);
    }

    /// The reports of the last interval. Returns a decision that is to be carried out.
    pub fn on_reports(&mut self, source: &SourceFacts, sinks: &[SinkFacts], now: Instant) -> Option<Decided> {
        let sinks = &sinks[..sinks.len().min(MOST_SINKS)];
        let median = *median(sinks)?;
        let rate = median.rate()?;
        if now.since(*self.begun.get_or_insert(now)) < BEGINNING {
            return None;
        }
        self.forget_departed(sinks);
        self.learn(source, sinks, now);
        self.look_for_relief(sinks, now);
        let terms = *self.ladder.terms();
        // Events whose packets are late will be late at the sinks, before the sinks can report it.
        let rate = source.in_time.map_or(rate, |part| rate.min(terms.wanted * part.max(LEAST_IN_TIME)));
        self.patience.note(rate, &terms, now);
        let dwell = if self.patience.is_contract { EFFECT } else { terms.dwell };
        if self.patience.changed.is_some_and(|changed| now.since(changed) < dwell) {
            return None;
        }
        let missing = 1.0 - rate / terms.wanted;
        if self.patience.low >= 2 || (self.patience.low == 1 && missing > 2.0 * terms.lower_below) {
            return self.repair((source, sinks), (&median, rate), now);
        }
        self.stalled = None;
        let waited = self.patience.kept.is_some_and(|kept| now.since(kept) >= self.patience.wait);
        if waited { self.recover((source, sinks), (&median, rate), now) } else { None }
    }

    fn forget_departed(&mut self, sinks: &[SinkFacts]) {
        let present: BTreeSet<u64> = sinks.iter().map(|sink| sink.sink).collect();
        self.known.retain(|sink, _| present.contains(sink));
        self.relief.retain(|sink| present.contains(sink));
    }

    /// A shorter delay at half of the sinks shows that a link has recovered.
    fn look_for_relief(&mut self, sinks: &[SinkFacts], now: Instant) {
        for sink in sinks {
            if let Some(delay) = sink.least_delay {
                self.relief.on_delay(&sink.sink, delay, now);
            }
        }
        if self.ladder.rung() > 0 && self.relief.is_there(now) {
            self.patience.relieve(self.ladder.terms(), now);
        }
    }

    /// The rate is too low: acts on the guilty part.
    fn repair(
        &mut self,
        (source, sinks): (&SourceFacts, &[SinkFacts]),
        (median, rate): (&SinkFacts, f64),
        now: Instant,
    ) -> Option<Decided> {
        let found = bottleneck::find(&self.observe(source, median), &self.terms.bottleneck)?;
        self.guilty = Some(found.guilty);
        self.blame(&found, source, sinks, now);
        if found.guilty == Guilty::SinkProcessor && !median.is_saturated {
            // The sink's own host acts first.
            if !self.is_stalled(rate, now) {
                return None;
            }
        } else {
            self.stalled = None;
        }
        let changes = match found.guilty {
            Guilty::SourceProcessor => self.contracts_and_rungs(source.generated.unwrap_or(rate)),
            Guilty::SourceApplication | Guilty::Link | Guilty::SinkProcessor | Guilty::SinkApplication => self.lower(),
        };
        let plan = plan(&mut self.situation(sinks), &changes);
        self.decide(plan, Some(found), (median, rate), now)
    }

    /// Whether the rate has not risen for [`STALLED`].
    fn is_stalled(&mut self, rate: f64, now: Instant) -> bool {
        let (best, since) = *self.stalled.get_or_insert((rate, now));
        if rate > best + PROGRESS * self.ladder.terms().wanted {
            self.stalled = Some((rate, now));
            return false;
        }
        now.since(since) >= STALLED
    }

    /// The rate is kept: a higher rung, and at the best one a smaller contract.
    fn recover(
        &mut self,
        (source, sinks): (&SourceFacts, &[SinkFacts]),
        (median, rate): (&SinkFacts, f64),
        now: Instant,
    ) -> Option<Decided> {
        self.forgive(source, sinks, now);
        let rung = self.ladder.rung();
        if rung > 0 {
            let changes = self.higher();
            let mut plan = plan(&mut self.situation(sinks), &changes);
            // A higher rung must keep the rate, as far as the model can tell.
            let least = self.ladder.terms().wanted * (1.0 - self.ladder.terms().kept_above);
            let keeps = |at: &usize| plan.candidates[*at].rate >= least;
            let best = (1..plan.candidates.len()).filter(keeps);
            plan.chosen = best.max_by(|a, b| plan.candidates[*a].utility.total_cmp(&plan.candidates[*b].utility))?;
            return self.decide(plan, None, (median, rate), now);
        }
        self.give_back(source, sinks, (median, rate), now)
    }

    fn give_back(
        &mut self,
        source: &SourceFacts,
        sinks: &[SinkFacts],
        (median, rate): (&SinkFacts, f64),
        now: Instant,
    ) -> Option<Decided> {
        let target = self.ladder.terms().wanted;
        let facts = ShareFacts { target, rate, used: source.used, pressure: source.pressure };
        let before = self.law.share();
        let share = self.law.on_report(&facts, now).filter(|share| *share < before)?;
        let mut plan = plan(&mut self.situation(sinks), &[Change { source: Some(share), ..Change::KEEP }]);
        let (keep, less) = (plan.candidates[0].utility, plan.candidates[1].utility);
        if less < keep * 0.99 {
            self.law.set(before);
            return None;
        }
        plan.chosen = 1;
        self.decide(plan, None, (median, rate), now)
    }

    fn decide(
        &mut self,
        plan: Plan,
        bottleneck: Option<Bottleneck>,
        (median, rate): (&SinkFacts, f64),
        now: Instant,
    ) -> Option<Decided> {
        let Change { rung, source: share, .. } = plan.candidates[plan.chosen].change;
        if plan.chosen == 0 {
            return None;
        }
        let from = self.ladder.rung();
        let rung = rung.filter(|rung| *rung != from);
        if let Some(share) = share {
            self.law.set(share);
        }
        if let Some(rung) = rung {
            self.patience.moved(from, rung, self.ladder.terms(), now);
            self.ladder.move_to(rung, now);
            self.relief.reset();
            self.law.forget();
        }
        self.stalled = None;
        (self.patience.changed, self.patience.is_contract) = (Some(now), rung.is_none());
        let (low, smooth, kept) = (0, None, None);
        self.patience = Patience { low, smooth, kept, ..self.patience };
        let Plan { candidates, chosen } = plan;
        Some(Decided { rung, share, from, rate, median: median.sink, bottleneck, candidates, chosen })
    }

    fn observe(&self, source: &SourceFacts, median: &SinkFacts) -> Observation {
        Observation {
            wanted: self.ladder.terms().wanted,
            generated: source.generated,
            sent: source.sent,
            arrived: median.arrived,
            decoded: median.decoded,
            shown: median.shown,
            misses: self.misses(source),
            source_pressure: source.pressure,
            sink_pressure: median.pressure,
        }
    }

    /// Missed deadlines per second: periods, or the events of late packets.
    fn misses(&self, source: &SourceFacts) -> Option<f64> {
        let late = source.in_time.map(|part| (1.0 - part) * self.ladder.terms().wanted);
        late.map(|late| late.max(source.misses.unwrap_or(0.0))).or(source.misses)
    }

    /// The cost of an event at a rung as a part of that at the best one: assumed to fall in equal parts.
    fn scale(&self, rung: usize) -> f64 {
        1.0 - rung as f64 / (self.ladder.lowest() as f64 + 1.0)
    }

    fn learn(&mut self, source: &SourceFacts, sinks: &[SinkFacts], now: Instant) {
        let rung = self.ladder.rung();
        if let (Some(rate), used @ Some(_)) = (source.generated, source.used) {
            let facts = ShareFacts { target: self.ladder.terms().wanted, rate, used, pressure: source.pressure };
            self.law.learn(&facts);
        }
        match self.law.cost() {
            Some(cost) => _ = self.costs.insert(rung, (cost, now)),
            None => self.bound_cost(source, now),
        }
        self.costs.retain(|at, (_, measured)| *at == rung || now.since(*measured) <= REMEMBERED);
        let scale = self.scale(rung);
        for sink in sinks {
            if self.known.len() >= MOST_SINKS && !self.known.contains_key(&sink.sink) {
                continue;
            }
            let known = self.known.entry(sink.sink).or_insert(Known::NEW);
            if let (Some(used), Some(rate)) = (sink.used, sink.decoded.or(sink.shown).filter(|rate| *rate >= 0.5)) {
                known.cost = used / rate / scale;
            }
            if let Some(arrived) = sink.arrived {
                known.downlink = known.downlink.max(arrived * scale);
            }
        }
    }

    /// Bounds the cost by the rate, if the application does not report its CPU time: one thread uses at most a CPU, and
    /// beside its contract half of it, if another thread waits. The least bound of a rung counts.
    fn bound_cost(&mut self, source: &SourceFacts, now: Instant) {
        let Some(rate) = source.generated.or(source.sent).map(|rate| rate.max(0.5)) else { return };
        let is_busy = source.pressure.is_some_and(|pressure| pressure > self.terms.bottleneck.pressure);
        let most = if is_busy { (1.0 + self.law.share()) / 2.0 } else { 1.0 };
        let bound = self.costs.entry(self.ladder.rung()).or_insert((f64::INFINITY, now));
        *bound = (bound.0.min(most / rate), now);
    }

    /// Learns the limits of the parts that are too slow now.
    fn blame(&mut self, found: &Bottleneck, source: &SourceFacts, sinks: &[SinkFacts], now: Instant) {
        let (rung, wanted, guilty) = (self.ladder.rung(), self.ladder.terms().wanted, found.guilty);
        let scale = self.scale(rung);
        // Of several small losses, each limits the stream.
        let is_spread = self.is_spread(&found.evidence);
        let tolerance = if is_spread { SMALL } else { self.terms.bottleneck.tolerance };
        if guilty == Guilty::SourceProcessor {
            let share = source.used.unwrap_or_else(|| source.generated.unwrap_or(0.0) * self.cost(rung));
            // A contract that is not kept was refused, or its host has less.
            self.room = match share < 0.8 * self.law.share() {
                true => share,
                false if self.law.is_refused(now) => self.law.share(),
                false => self.terms.share.most,
            };
            self.others = Processor::IDLE.others_for(self.law.share().min(self.room), share);
        }
        if guilty == Guilty::SourceApplication {
            self.others = 0.0;
        }
        if guilty == Guilty::SourceApplication && source.used.is_none() {
            // One thread cannot use more than a CPU: its cost is at most what the rate says.
            let cost = source.generated.filter(|rate| *rate >= 0.5).map(|rate| 1.0 / rate);
            cost.map(|cost| self.costs.insert(rung, (cost, now)));
        }
        let sent = source.sent.or(source.generated).unwrap_or(wanted).min(wanted);
        let is_late = matches!(found.evidence, Evidence::Misses { .. });
        let in_time = source.in_time.filter(|_| is_late).map(|part| sent * part.max(LEAST_IN_TIME));
        for sink in sinks {
            let Some(known) = self.known.get_mut(&sink.sink) else { continue };
            let arrived = sink.arrived.unwrap_or(sent);
            if (guilty == Guilty::Link || is_spread) && arrived < sent * (1.0 - tolerance) {
                known.downlink = arrived * scale;
            }
            // The packets share the way out of this host.
            if let Some(in_time) = in_time {
                known.downlink = known.downlink.min(in_time * scale);
            }
            let Some(shown) = sink.rate().filter(|shown| *shown < arrived * (1.0 - tolerance)) else { continue };
            match sink.used {
                Some(used) => known.others = Processor::IDLE.others_for(0.0, used),
                // As at the source: the cost is at most what the rate says.
                None if shown >= 0.5 => known.cost = 1.0 / shown / scale,
                None => {}
            }
        }
    }

    /// Whether the loss is one of several that are small.
    fn is_spread(&self, evidence: &Evidence) -> bool {
        let Evidence::Loss { before, after, .. } = *evidence else { return false };
        let expected = before.min(self.ladder.terms().wanted);
        after >= expected * (1.0 - self.terms.bottleneck.tolerance)
    }

    /// Forgets limits that may no longer exist.
    fn forgive(&mut self, source: &SourceFacts, sinks: &[SinkFacts], now: Instant) {
        let is_calm = |pressure: Option<f64>| pressure.is_none_or(|now| now <= self.terms.bottleneck.pressure);
        if is_calm(source.pressure) {
            (self.others, self.room) = (0.0, self.terms.share.most);
        }
        // After a refusal, only a try shows whether there is capacity now.
        if self.law.refused().is_some_and(|refused| now.since(refused) >= REMEMBERED) {
            self.room = self.terms.share.most;
        }
        for sink in sinks {
            let is_calm = is_calm(sink.pressure);
            let Some(known) = self.known.get_mut(&sink.sink) else { continue };
            known.downlink = f64::INFINITY;
            known.others = if is_calm { 0.0 } else { known.others };
            known.cost = if is_calm && sink.used.is_none() { 0.0 } else { known.cost };
        }
    }

    /// CPU seconds per event at a rung: measured there, or scaled from the nearest measured one.
    fn cost(&self, rung: usize) -> f64 {
        let nearest = self.costs.iter().min_by_key(|(at, _)| at.abs_diff(rung));
        let free = FREE / self.ladder.terms().wanted;
        nearest.map_or(free, |(at, (cost, _))| cost * self.scale(rung) / self.scale(*at))
    }

    /// The contract that a rung needs, inside the limits of the contract.
    fn share_for(&self, rung: usize) -> f64 {
        let ShareTerms { least, most, headroom, .. } = self.terms.share;
        (self.ladder.terms().wanted * self.cost(rung) * (1.0 + headroom))
            .clamp(least.min(most), most)
            .min(self.room.max(least))
    }

    /// A larger contract, alone or with lower rungs. A contract that is not kept cannot help: then only rungs. If the
    /// application does not report its CPU time, the contract follows the error of the rate, and rungs wait until it
    /// cannot grow.
    fn contracts_and_rungs(&self, generated: f64) -> Vec<Change> {
        if self.law.cost().is_none() {
            let target = self.ladder.terms().wanted;
            let share = self.law.grown(&ShareFacts { target, rate: generated, ..ShareFacts::default() });
            let can_grow = share.min(self.room) > self.law.share() + 0.02;
            return if can_grow { vec![Change { source: Some(share), ..Change::KEEP }] } else { self.lower() };
        }
        let larger = |rung: usize| Some(self.share_for(rung)).filter(|share| *share > self.law.share() + 0.02);
        let contract = larger(self.ladder.rung()).map(|share| Change { source: Some(share), ..Change::KEEP });
        let with = |rung: usize| Change { rung: Some(rung), source: larger(rung), ..Change::KEEP };
        contract.into_iter().chain(self.below().map(with)).collect()
    }

    fn lower(&self) -> Vec<Change> {
        self.below().map(|rung| Change { rung: Some(rung), ..Change::KEEP }).collect()
    }

    /// Rungs below the present one that are compared: the next eight, then one of eight, one of 64, and the lowest.
    fn below(&self) -> impl Iterator<Item = usize> {
        let (rung, lowest) = (self.ladder.rung(), self.ladder.lowest());
        let is_compared = move |at: &usize| match at - rung {
            0..=8 => true,
            down @ 9..=64 => down % 8 == 0,
            down => down % 64 == 0 || *at == lowest,
        };
        (rung + 1..=lowest).filter(is_compared)
    }

    /// A processor shows by its pressure that it is free; of a link, only a try shows it, so one rung at a time.
    fn higher(&self) -> Vec<Change> {
        let rung = self.ladder.rung();
        let is_known = matches!(self.guilty, Some(Guilty::SourceProcessor | Guilty::SinkProcessor));
        // At most sixteen rungs are compared.
        let best = match (is_known, self.patience.is_relieved) {
            (true, _) => 0,
            (false, true) => rung / 2,
            (false, false) => rung - 1,
        };
        let each = (rung - best).div_ceil(16);
        let share = |rung: usize| {
            // A cost that is only bounded needs at most as much.
            let need = self.law.cost().map_or(0.0, |_| self.share_for(rung));
            let is_decided = self.law.share() > self.terms.share.least || self.law.refused().is_some();
            is_decided.then_some(need.max(self.law.share()))
        };
        (best..rung)
            .step_by(each)
            .map(|rung| Change { rung: Some(rung), source: share(rung), ..Change::KEEP })
            .collect()
    }

    /// The model of the stream as it is known now.
    fn situation(&self, sinks: &[SinkFacts]) -> Situation {
        let lowest = self.ladder.lowest();
        let rung = |rung: usize| Rung {
            worth: 1.0 - rung as f64 / (2.0 * lowest.max(1) as f64),
            encode: self.cost(rung),
            decode: self.scale(rung),
            bits: self.scale(rung),
        };
        let source = Host { processor: Processor { others: self.others, ..Processor::IDLE }, ..Host::IDLE };
        let (mut hosts, mut places) = (vec![source], Vec::new());
        for (at, sink) in sinks.iter().enumerate() {
            let Known { downlink, others, cost } = self.known.get(&sink.sink).copied().unwrap_or(Known::NEW);
            let processor = Processor { others, ..Processor::IDLE };
            hosts.push(Host { processor, uplink: f64::INFINITY, downlink });
            places.push(Sink { host: at + 1, reserved: 0.0, factor: cost });
        }
        let stream = Stream {
            weight: 1.0,
            wanted: self.ladder.terms().wanted,
            source: 0,
            reserved: self.law.share().min(self.room),
            rung: self.ladder.rung(),
            rungs: (0..=lowest).map(rung).collect(),
            sinks: places,
        };
        Situation { hosts, streams: vec![stream] }
    }
}

/// The sink in the middle, ordered by rate; the lower one of two.
fn median(sinks: &[SinkFacts]) -> Option<&SinkFacts> {
    let mut known: Vec<(f64, &SinkFacts)> = sinks.iter().filter_map(|sink| Some((sink.rate()?, sink))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(known.get(known.len().checked_sub(1)? / 2)?.1)
}

impl Patience {
    fn note(&mut self, rate: f64, terms: &crate::ladder::Terms, now: Instant) {
        let missing = |rate: f64| 1.0 - rate / terms.wanted;
        let smooth = self.smooth.map_or(rate, |smooth| smooth + SMOOTHING * (rate - smooth));
        self.smooth = Some(smooth);
        self.low = if missing(rate) > terms.lower_below { self.low.saturating_add(1) } else { 0 };
        let is_kept = missing(smooth) < terms.kept_above && self.low == 0;
        self.kept = if is_kept { self.kept.or(Some(now)) } else { None };
        let is_proven = self.changed.is_some_and(|changed| now.since(changed) >= terms.probe);
        if self.is_probing && self.low == 0 && is_proven {
            (self.is_probing, self.wait) = (false, terms.calm);
        }
    }

    fn moved(&mut self, from: usize, to: usize, terms: &crate::ladder::Terms, now: Instant) {
        if to < from {
            self.is_probing = true;
            return;
        }
        let has_failed = self.is_probing && self.changed.is_some_and(|changed| now.since(changed) < terms.probe);
        let doubled = Nanos::new(self.wait.get().saturating_mul(2)).min(terms.most_wait);
        self.wait = match (has_failed, to - from) {
            (true, _) => doubled.max(terms.after_failure),
            (false, 1) => self.wait.max(terms.after_failure),
            (false, _) => terms.calm,
        };
        (self.is_probing, self.is_relieved) = (false, false);
        self.failed = if has_failed { Some(now) } else { self.failed };
    }

    /// As [`Ladder::relieve`].
    fn relieve(&mut self, terms: &crate::ladder::Terms, now: Instant) {
        if self.failed.is_none_or(|failed| now.since(failed) >= terms.after_failure) {
            (self.is_relieved, self.wait) = (true, self.wait.min(terms.calm));
        }
    }
}
