//! Distributed management of CPU time: the rates of a stream's applications change their contracts, on each host.
//!
//! ```text
//!   source here:  GENERATED, or the median of RATE of the sinks' hosts ──> contract of the source
//!   sink here:    SHOWN or DECODED, beside ARRIVED                     ──> contract of the sink; SATURATED to the sources
//! ```
//! Each host decides the contracts of its own applications. A sink's target is the rate that arrives: a source that
//! becomes slow lowers the contracts of its sinks, and sinks that become slow raise the source's contract until enough
//! arrives. Source: thesis §5.4.

use std::collections::BTreeMap;

use qfabric_control::integrated::{ShareFacts, ShareLaw, ShareTerms};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Recipient, Topic, View};
use super::facts::{Facts, REPEAT, of_application, pressure};
use super::{ARRIVED, CPU_GRANTED, CPU_GUARANTEED, CPU_OWN, CPU_USED, DECODED, GENERATED, SATURATED, SHOWN, told};

/// Time between two looks at the reports.
pub(super) const LOOK: Nanos = Nanos::from_millis(500);
/// Limit of the applications of this host whose contracts are decided.
const MOST: usize = 64;

#[derive(Debug)]
pub struct Cpu {
    facts: Facts,
    contracts: Contracts,
    look: Option<Instant>,
    reasons: Option<Reasons>,
}

impl Cpu {
    /// For the applications of this host in the group of this Q-channel's name; `wanted` events per second.
    pub fn new(channel: &ChannelId, wanted: f64, terms: ShareTerms) -> Self {
        let (facts, contracts) = (Facts::new(channel), Contracts::new(wanted, terms));
        Cpu { facts, contracts, look: None, reasons: None }
    }
}

/// The contracts of the applications of this host.
#[derive(Debug)]
pub(super) struct Contracts {
    wanted: f64,
    terms: ShareTerms,
    laws: BTreeMap<AppId, ShareLaw>,
    /// When the sources were told last that this host has no larger contract; `None`: it has one, as far as they know.
    told_saturated: Option<Instant>,
}

/// What an application of this host does on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Source,
    Sink,
}

impl Contracts {
    pub(super) fn new(wanted: f64, terms: ShareTerms) -> Contracts {
        Contracts { wanted, terms, laws: BTreeMap::new(), told_saturated: None }
    }

    /// The answers of this host to decisions.
    pub(super) fn interests() -> [Interest; 2] {
        [CPU_OWN, CPU_GRANTED].map(|name| Interest::anywhere(Topic::Reading(AttributeId::of(name))))
    }

    /// Learns what was granted to an application of this host.
    pub(super) fn on_change(&mut self, change: &Change, view: &View<'_>) {
        let Some((application, answer)) = answer(change, view) else { return };
        let Some(law) = self.laws.get_mut(&application) else { return };
        match answer {
            Answer::Own(share) => law.own(share),
            Answer::Granted(share) => law.granted(share, view.now),
        }
    }

    pub(super) fn forget(&mut self, application: AppId) {
        self.laws.remove(&application);
    }

    /// Whether an application is a source or a sink, by its reports.
    pub(super) fn part(view: &View<'_>, application: AppId) -> Option<Part> {
        let has = |name: &str| of_application(view, view.host, application, name).is_some();
        match (has(GENERATED), has(SHOWN) || has(DECODED)) {
            (true, _) => Some(Part::Source),
            (false, true) => Some(Part::Sink),
            (false, false) => None,
        }
    }

    /// Decides the contracts of the applications with these parts.
    pub(super) fn look(
        &mut self,
        facts: &Facts,
        parts: &[Part],
        view: &View<'_>,
        decisions: &mut Decisions,
    ) -> Option<Reasons> {
        let mut reasons = None;
        let mut is_saturated = false;
        for application in facts.members(view.host) {
            let Some(part) = Self::part(view, application).filter(|part| parts.contains(part)) else { continue };
            if self.laws.len() >= MOST && !self.laws.contains_key(&application) {
                continue;
            }
            let law = self.laws.entry(application).or_insert_with(|| ShareLaw::new(self.terms));
            let seen = share_facts(part, application, self.wanted, view);
            let before = law.share();
            if let Some(share) = law.on_report(&seen, view.now) {
                decisions.push(guarantee(application, share));
                reasons = Some(explain(&seen, part, before, share));
            }
            is_saturated |= part == Part::Sink && law.is_saturated();
        }
        self.tell_saturation(is_saturated, facts, view, decisions);
        reasons
    }

    /// Tells the sources when this host has no larger contract for its sink, again and again while this lasts, and when it
    /// has one again.
    fn tell_saturation(&mut self, is_saturated: bool, facts: &Facts, view: &View<'_>, decisions: &mut Decisions) {
        let is_due = match self.told_saturated {
            Some(told) => !is_saturated || view.now.since(told) >= REPEAT,
            None => is_saturated,
        };
        if is_due {
            self.told_saturated = is_saturated.then_some(view.now);
            let event = told("cpu", QualityKind::Own, SATURATED, i64::from(is_saturated), view.now);
            decisions.push(Decision::Tell { channel: facts.channel().clone(), to: Recipient::Sources, event });
        }
    }
}

/// The answer of this host to a decision about a contract, in CPUs.
pub(super) enum Answer {
    /// What the owner's contract guarantees.
    Own(f64),
    Granted(f64),
}

/// The application that a reading is about, and the answer in it.
pub(super) fn answer(change: &Change, view: &View<'_>) -> Option<(AppId, Answer)> {
    let ChangeKind::Reading(reading) = &change.what else { return None };
    let is = |name: &str| change.host == *view.host && reading.attribute == AttributeId::of(name);
    let share = reading.value.max(0) as f64 / 1e6;
    match () {
        () if is(CPU_OWN) => Some((reading.application, Answer::Own(share))),
        () if is(CPU_GRANTED) => Some((reading.application, Answer::Granted(share))),
        () => None,
    }
}

fn share_facts(part: Part, application: AppId, wanted: f64, view: &View<'_>) -> ShareFacts {
    let of = |name: &str| of_application(view, view.host, application, name);
    let rate = |name: &str| of(name).map(|milli| milli as f64 / 1e3);
    let (target, rate) = match part {
        Part::Source => (wanted, rate(GENERATED)),
        Part::Sink => (rate(ARRIVED).unwrap_or(wanted).min(wanted), rate(SHOWN).or_else(|| rate(DECODED))),
    };
    let used = of(CPU_USED).map(|ppm| ppm as f64 / 1e6);
    ShareFacts { target, rate: rate.unwrap_or(target), used, pressure: pressure(view, view.host) }
}

/// The decision about a contract.
pub(super) fn guarantee(application: AppId, share: f64) -> Decision {
    let amount = (share * 1e6).round() as i64;
    Decision::Apply { application, attribute: AttributeId::of(CPU_GUARANTEED), amount }
}

fn explain(seen: &ShareFacts, part: Part, before: f64, share: f64) -> Reasons {
    let what = if part == Part::Source { "generated" } else { "shown" };
    let pressure = seen.pressure.map_or(String::new(), |part| format!("; CPU pressure {:.0} %", part * 100.0));
    Reasons {
        cause: format!("{:.1}/s of {:.1}/s {what}{pressure}", seen.rate, seen.target),
        decision: format!("guarantee {:.1} % of a CPU instead of {:.1} %", share * 100.0, before * 100.0),
        ..Reasons::default()
    }
}

impl Controller for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn interests(&self) -> Vec<Interest> {
        self.facts.interests().into_iter().chain(Contracts::interests()).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, _decisions: &mut Decisions) {
        self.contracts.on_change(change, view);
        // A new process has the contract with which it began.
        if let Some(application) = self.facts.on_change(change, view) {
            self.contracts.forget(application);
        }
        self.look.get_or_insert(view.now + LOOK);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.facts.expire(view.now);
        self.reasons = self.contracts.look(&self.facts, &[Part::Source, Part::Sink], view, decisions);
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
