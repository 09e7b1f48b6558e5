//! The energy directives over sender and receivers of a stream (000 §7.3): who runs the transcoders.
//!
//! ```text
//!   receiver                                        sender (the host with the sources)
//!   battery ── a control event each period ──────▶ batteries, gains of its application
//!                                                     │ directive
//!   applications with a sink ◀── PLACE, to all ───── place ──▶ applications with a source
//! ```
//! One encoder serves all sinks, so a channel has one place. Gains and costs of receivers count once for each receiver,
//! and the receiver that empties first stands for all when batteries are compared. `docs/design/0050-energy-directives.md` says
//! what a host that lies about its battery can gain.

mod battery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use qfabric_energy::{Directive, Energy, Gains, Place, Rules, place};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, Reading};
use qfabric_types::{Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Recipient, Topic, View};
use super::told;
use battery::OwnBattery;
pub use battery::{BATTERY, BATTERY_POWER, BatteryState, BatteryTerms, InvalidBattery};

/// Name of the attribute for the place of the transcoders: 0: the sender, 1: the receivers.
pub const PLACE: &str = "app.transcoders";

/// Name of the dimension of `app.level` that tells applications with a source the same.
pub const PLACE_LEVEL: &str = "transcoders";

/// Name of the attribute by which a source reports its gain if it runs the transcoders, in µJ per image.
pub const TEQ_SENDER: &str = "app.teq_sender";

/// Name of the attribute by which a source reports the gain of a receiver if the sender runs them, in µJ per image.
pub const TEQ_RECEIVER: &str = "app.teq_receiver";

/// Name of the attribute by which a source reports the cost of a receiver that runs them, in µJ per image.
pub const RECEIVER_COST: &str = "app.receiver_cost";

/// Most receivers whose batteries are known; a further one is ignored and counted.
const MOST_RECEIVERS: usize = 64;
/// Periods without a report after which a receiver is forgotten.
const SILENT: u64 = 3;
/// Periods for which a receiver counts as doubtful after its last contradiction.
const DOUBTFUL: u64 = 30;
/// Largest gain or cost of one image, J.
const MOST_J: f64 = 1e6;

/// The terms of the policy on one host.
#[derive(Clone, Debug, PartialEq)]
pub struct EnergyTerms {
    /// The goal; `None`: this host only shares the state of its battery.
    pub directive: Option<Directive>,
    /// Whether the rules of the directives are the corrected or the printed ones.
    pub rules: Rules,
    pub battery: BatteryTerms,
    /// Energies of one image until an application reports them, in joules.
    pub gains: Option<Gains>,
    /// Time between two reports of the battery, and least time between two changes of the place.
    pub period: Nanos,
    /// Part of the capacity below which max-aot spares this host.
    pub floor: f64,
}

/// A receiver's battery.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    state: BatteryState,
    at: Instant,
    contradicted: Option<Instant>,
}

/// What the last decision was made from, apart from the numbers.
#[derive(Clone, Debug, PartialEq)]
struct Decided {
    place: Place,
    at: Instant,
    doubtful: Vec<Name>,
}

/// The controller, on the host of the sources and on those of the sinks.
#[derive(Debug)]
pub struct TranscoderPlace {
    channel: ChannelId,
    terms: EnergyTerms,
    battery: OwnBattery,
    receivers: BTreeMap<Name, Receiver>,
    /// µJ per image: TEQ_s, TEQ_r, E_rcvr.
    gains_uj: [Option<f64>; 3],
    decided: Option<Decided>,
    look: Instant,
    reasons: Option<Reasons>,
    /// Reports that were not used: invalid ones, and those of hosts beyond the bound.
    ignored: u64,
}

impl TranscoderPlace {
    /// For the data channel of this Q-channel.
    pub fn new(channel: &ChannelId, terms: EnergyTerms, now: Instant) -> Self {
        let battery = OwnBattery::new(&terms.battery, now);
        let joules = terms.gains.map(|gains| [gains.teq_s, gains.teq_r, gains.e_rcvr]);
        let gains_uj = joules.map_or([None; 3], |all| all.map(|joules| Some(joules * 1e6)));
        TranscoderPlace {
            channel: channel.clone(),
            terms,
            battery,
            receivers: BTreeMap::new(),
            gains_uj,
            decided: None,
            look: now,
            reasons: None,
            ignored: 0,
        }
    }

    /// The present place; `None`: not decided yet, or this host does not decide.
    pub fn place(&self) -> Option<Place> {
        self.decided.as_ref().map(|decided| decided.place)
    }

    /// Reports of other hosts that were not used.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Gains over all receivers, in joules per image; `None`: some number is not known yet.
    fn gains(&self) -> Option<Gains> {
        let [teq_s, teq_r, e_rcvr] = self.gains_uj;
        let receivers = self.receivers.len() as f64;
        Some(Gains { teq_s: teq_s? / 1e6, teq_r: receivers * teq_r? / 1e6, e_rcvr: receivers * e_rcvr? / 1e6 })
    }

    fn is_doubtful(&self, receiver: &Receiver, now: Instant) -> bool {
        let time = Nanos::new(self.terms.period.get().saturating_mul(DOUBTFUL));
        receiver.contradicted.is_some_and(|at| now.since(at) < time)
    }

    fn doubtful(&self, now: Instant) -> Vec<Name> {
        let all = self.receivers.iter().filter(|(_, receiver)| self.is_doubtful(receiver, now));
        all.map(|(host, _)| host.clone()).collect()
    }

    /// The receiver that empties first, of those that are not doubtful.
    fn weakest(&self, now: Instant) -> Option<(&Name, BatteryState)> {
        let time = |state: &BatteryState| state.battery().time_to_empty();
        let honest = self.receivers.iter().filter(|(_, receiver)| !self.is_doubtful(receiver, now));
        let states = honest.map(|(host, receiver)| (host, receiver.state));
        states.min_by(|a, b| time(&a.1).total_cmp(&time(&b.1)))
    }

    /// The directive in force: max-aot needs a receiver whose battery is believed, and ends below the floor.
    fn in_force(&self, directive: Directive, own: &BatteryState, weakest: Option<BatteryState>) -> Directive {
        match (directive, weakest) {
            (Directive::MaxAot, _) if own.level() < self.terms.floor => Directive::MaxSot,
            (Directive::MaxAot, None) => Directive::MinSec,
            _ => directive,
        }
    }

    /// Decides, if all numbers are there; tells all hosts a changed place.
    fn decide(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let (Some(directive), Some(gains)) = (self.terms.directive, self.gains()) else { return };
        if self.receivers.is_empty() {
            return;
        }
        let own = self.battery.state(view.now);
        let weakest = self.weakest(view.now).map(|(host, state)| (host.clone(), state));
        let in_force = self.in_force(directive, &own, weakest.as_ref().map(|(_, state)| *state));
        let other = weakest.as_ref().map_or(BatteryState::MAINS, |(_, state)| *state);
        let chosen = place(in_force, &gains, [own.battery(), other.battery()], self.terms.rules);
        let doubtful = self.doubtful(view.now);
        let before = self.decided.as_ref();
        let has_moved = before.is_none_or(|before| before.place != chosen);
        if before.is_some_and(|before| has_moved && view.now.since(before.at) < self.terms.period) {
            return;
        }
        if has_moved || before.is_some_and(|before| before.doubtful != doubtful) {
            let cause = cause((directive, in_force, self.terms.rules), &gains, (&own, weakest.as_ref()), &doubtful);
            let decision = format!("transcoders run at {}", host_of(chosen));
            self.reasons = Some(Reasons { cause, decision, ..Reasons::default() });
        }
        let at = before.filter(|_| !has_moved).map_or(view.now, |before| before.at);
        self.decided = Some(Decided { place: chosen, at, doubtful });
        if has_moved {
            self.tell(Recipient::All, chosen, view, decisions);
            decisions.push(level_of(chosen));
        }
    }

    fn tell(&self, to: Recipient, place: Place, view: &View<'_>, decisions: &mut Decisions) {
        let event = told(self.name(), QualityKind::Level, PLACE, number_of(place), view.now);
        decisions.push(Decision::Tell { channel: self.channel.clone(), to, event });
    }

    /// Another host reports its battery. A new one is told the present place.
    fn reported(&mut self, host: &Name, event: &QualityEvent, view: &View<'_>, decisions: &mut Decisions) {
        let known = self.receivers.get(host).copied();
        if known.is_none() && self.receivers.len() >= MOST_RECEIVERS {
            return self.ignored += 1;
        }
        let state = match BatteryState::parse(event) {
            Ok(state) => state,
            Err(invalid) => return self.refuse(host, &invalid),
        };
        let elapsed = known.map_or(Nanos::ZERO, |known| view.now.since(known.at));
        let lies = known.is_some_and(|known| known.state.contradicts(&state, elapsed));
        let contradicted = if lies { Some(view.now) } else { known.and_then(|known| known.contradicted) };
        self.receivers.insert(host.clone(), Receiver { state, at: view.now, contradicted });
        match self.place() {
            None => self.decide(view, decisions),
            Some(place) if known.is_none() => self.tell(Recipient::Host(host.clone()), place, view, decisions),
            Some(_) => {}
        }
    }

    /// An impossible report: the state before stays until it is too old.
    fn refuse(&mut self, host: &Name, invalid: &InvalidBattery) {
        self.ignored += 1;
        let decision = format!("the report of {host} is ignored, {} so far", self.ignored);
        let cause = format!("{host} reports {invalid}");
        self.reasons = Some(Reasons { cause, decision, ..Reasons::default() });
    }

    fn read(&mut self, change: &Change, reading: &Reading, view: &View<'_>) {
        if change.host != *view.host || change.channel.is_some() {
            return;
        }
        if self.battery.on_reading(reading.attribute, reading.value, view.now) {
            return;
        }
        let names = [TEQ_SENDER, TEQ_RECEIVER, RECEIVER_COST];
        let at = names.iter().position(|name| AttributeId::of(name) == reading.attribute);
        if let Some(at) = at {
            let most = MOST_J * 1e6;
            self.gains_uj[at] = Some((reading.value as f64).clamp(-most, most));
        }
    }
}

/// 0 for the sender, 1 for the receivers.
fn number_of(place: Place) -> i64 {
    match place {
        Place::Sender => 0,
        Place::Receiver => 1,
    }
}

/// The decision for applications with a source.
fn level_of(place: Place) -> Decision {
    Decision::Apply { application: HOST, attribute: AttributeId::of(PLACE_LEVEL), amount: number_of(place) }
}

fn host_of(place: Place) -> &'static str {
    match place {
        Place::Sender => "the sender",
        Place::Receiver => "the receivers",
    }
}

fn cause(
    (directive, in_force, rules): (Directive, Directive, Rules),
    gains: &Gains,
    (own, weakest): (&BatteryState, Option<&(Name, BatteryState)>),
    doubtful: &[Name],
) -> String {
    let mut text = directive.to_string();
    if in_force != directive {
        text += &format!(" (as {in_force})");
    }
    if rules == Rules::Printed {
        text += " by the printed rules";
    }
    // Gains of images to come are predictions, whatever the application derives them from.
    let [sender, receivers, cost] = [gains.teq_s, gains.teq_r, gains.e_rcvr].map(Energy::modelled);
    text += &format!(": per image, sender {sender}, receivers {receivers}, or they spend {cost}");
    text += &format!("; this host {}", own.lifetime());
    if let Some((host, state)) = weakest {
        text += &format!(", {host} {}", state.lifetime());
    }
    if let Some(first) = doubtful.first() {
        text += &format!("; {} of the receivers contradict their own reports, such as {first}", doubtful.len());
    }
    text
}

impl Controller for TranscoderPlace {
    fn name(&self) -> &str {
        "energy"
    }

    fn interests(&self) -> Vec<Interest> {
        let mut attributes = self.battery.attributes();
        let mut interests = Vec::new();
        if self.terms.directive.is_some() {
            attributes.extend([TEQ_SENDER, TEQ_RECEIVER, RECEIVER_COST].map(AttributeId::of));
            interests.extend([Interest::on(&self.channel, Topic::Control), Interest::anywhere(Topic::Members)]);
        }
        interests.extend(attributes.into_iter().map(|attribute| Interest::anywhere(Topic::Reading(attribute))));
        interests
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        match &change.what {
            ChangeKind::Reading(reading) => self.read(change, reading, view),
            ChangeKind::Control(event)
                if event.controller == AttributeId::of(self.name())
                    && event.attribute == AttributeId::of(BATTERY)
                    && event.kind == QualityKind::Own
                    && change.host != *view.host =>
            {
                self.reported(&change.host, event, view, decisions);
            }
            ChangeKind::HostGone => drop(self.receivers.remove(&change.host)),
            ChangeKind::SourceJoined if change.channel.as_ref() == Some(&self.channel) => {
                decisions.extend(self.place().map(level_of));
            }
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let period = self.terms.period.get();
        let event = self.battery.state(view.now).event(self.name(), view.now);
        if self.terms.directive.is_none() {
            // Only the hosts with sources decide.
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Recipient::Sources, event });
        }
        let silent = Nanos::new(period.saturating_mul(SILENT));
        self.receivers.retain(|_, receiver| view.now.since(receiver.at) <= silent);
        self.decide(view, decisions);
        self.look = view.now + self.terms.period;
    }

    fn explanation(&mut self) -> Option<Reasons> {
        self.reasons.take()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.look)
    }
}
