//! Forwards requests that this host cannot meet: hosts that can meet one offer, one offer is accepted, the others
//! are cancelled.
//!
//! ```text
//!   asker     Request ──> all      Accept ──> chosen          Cancel ──> all others that offered, also later
//!   others       Offer <── (holds the amount for HOLD)
//!   chosen                            Confirm <── (the amount is lent until Cancel, or until the asker is gone)
//!                                     Cancel <── (an application there claimed it: it is not the asker's any more)
//! ```
//! Source: thesis §4.3 (Figure 28), §4.5. Departure: an offer *holds* its amount, so that the same amount is not
//! promised to two askers; a hold expires, so that a crashed asker does not block the amount for long.
//!
//! `Request` and `Offer` carry bytes of memory in `other`: the memory that is asked for beside the amount, and the part of
//! it that the lender holds.
//! Hosts of older versions write zero there and do not read it, so they lend, and borrow, the amount alone.
//! The same holds for `subject`, a text: in a `Request` the rate in bit/s that is asked for beside the amount, such as
//! `2000000`; in an `Offer` the rate that the lender holds, with its link, such as `2000000 eth0`.

use std::collections::BTreeMap;

use qfabric_types::api::LoanRate;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

/// Time for which an offer stands.
pub(super) const HOLD: Nanos = Nanos::from_millis(3_000);

/// Time that the chosen host has to confirm before the next one is asked.
const CONFIRM: Nanos = Nanos::from_millis(700);

/// Requests of one host at the same time; further ones are refused.
const MAX_REQUESTS: usize = 1_024;

/// Requests of other hosts that may be held at the same time; a further one gets no answer.
pub(super) const MAX_HELD: usize = 256;

/// The rule that chooses among offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first offer.
    First,
    /// The largest of the first `n` offers; of fewer if the patience ends before.
    BestOf(usize),
    /// The offer of the nearest host, when the patience ends.
    Nearest,
}

/// A request to other hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The number of the request; the asker must not have another one with this number.
    pub request: u64,
    /// The channel whose managers are asked.
    pub channel: ChannelId,
    pub attribute: AttributeId,
    pub amount: i64,
    /// Memory that the lender must keep beside the amount; zero: none. Only lenders whose broker accounts for the
    /// attribute keep memory.
    pub memory: Bytes,
    /// Rate out of a link of the lender that it must keep beside the amount; zero: none. As for `memory`.
    pub rate: BitRate,
    /// The rule that chooses among offers.
    pub rule: Rule,
    /// Time to wait for offers.
    pub patience: Nanos,
    /// Time for which the lender keeps the amount if a broker accounts for it; otherwise it is kept until it is
    /// given back.
    pub hold: Nanos,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A host lends the amount.
    Met {
        /// The lender.
        host: Name,
        /// The memory that it keeps beside the amount; zero from a lender that keeps none.
        memory: Bytes,
        /// The rate that it keeps beside the amount; none from a lender that keeps none.
        rate: Option<LoanRate>,
    },
    /// No host confirmed in time.
    Unmet {
        /// Number of offers that were accepted and not confirmed.
        offers: usize,
    },
    /// The limit of simultaneous requests is reached.
    Refused { limit: usize },
}

#[derive(Debug)]
struct Offer {
    host: Name,
    amount: i64,
    memory: Bytes,
    rate: Option<LoanRate>,
    /// Half a round trip; before that is measured, half the time until the offer, which is an upper bound.
    distance: Nanos,
}

#[derive(Debug)]
struct Pending {
    ask: Ask,
    since: Instant,
    offers: Vec<Offer>,
    until: Instant,
    chosen: Option<Name>,
    tried: usize,
}

/// The channel, the recipient (`None`: all) and the event of a message.
pub(super) type Message = (ChannelId, Option<Name>, QualityEvent);

/// The requests of this host.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pending: BTreeMap<u64, Pending>,
}

pub(super) fn quality_event(
    kind: QualityKind,
    request: u64,
    attribute: AttributeId,
    value: i64,
    now: Instant,
) -> QualityEvent {
    let (controller, subject) = (AttributeId::of("manager"), QualityText::NONE);
    QualityEvent { controller, kind, value, other: 0, request, at: now, application: HOST, attribute, subject }
}

/// The bytes of memory in the field `other` of a request or an offer.
pub(super) fn memory_in(event: &QualityEvent) -> Bytes {
    Bytes::new(u64::try_from(event.other).unwrap_or(0))
}

/// The event with bytes of memory in its field `other`.
pub(super) fn with_memory(event: QualityEvent, memory: Bytes) -> QualityEvent {
    QualityEvent { other: i64::try_from(memory.get()).unwrap_or(i64::MAX), ..event }
}

/// The rate that a request asks for beside its amount; zero if it asks for none.
fn rate_in(event: &QualityEvent) -> BitRate {
    let rate = event.subject.as_str().parse::<u64>().unwrap_or(0);
    BitRate::new(rate).min(BitRate::MAX)
}

/// The request with the rate that it asks for.
fn with_rate(event: QualityEvent, rate: BitRate) -> QualityEvent {
    if rate == BitRate::ZERO {
        return event;
    }
    QualityEvent { subject: QualityText::new(&rate.get().to_string()), ..event }
}

/// The rate that the lender keeps, by its offer.
fn kept_rate_in(event: &QualityEvent) -> Option<LoanRate> {
    let (rate, interface) = event.subject.as_str().split_once(' ')?;
    Some(LoanRate { interface: interface.parse().ok()?, rate: BitRate::new(rate.parse().ok()?) })
}

/// The offer with the rate that this host keeps.
pub(super) fn with_kept_rate(event: QualityEvent, kept: Option<&LoanRate>) -> QualityEvent {
    let Some(LoanRate { interface, rate }) = kept else { return event };
    QualityEvent { subject: QualityText::new(&format!("{} {interface}", rate.get())), ..event }
}

pub(super) fn reply(kind: QualityKind, to: &QualityEvent, value: i64, now: Instant) -> QualityEvent {
    quality_event(kind, to.request, to.attribute, value, now)
}

impl Requests {
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    pub(super) fn ask(&mut self, ask: Ask, now: Instant, messages: &mut Vec<Message>) -> Option<Outcome> {
        if self.pending.len() >= MAX_REQUESTS || self.pending.contains_key(&ask.request) {
            return Some(Outcome::Refused { limit: MAX_REQUESTS });
        }
        let request = quality_event(QualityKind::Request, ask.request, ask.attribute, ask.amount, now);
        messages.push((ask.channel.clone(), None, with_rate(with_memory(request, ask.memory), ask.rate)));
        let until = now + ask.patience;
        self.pending
            .insert(ask.request, Pending { ask, since: now, offers: Vec::new(), until, chosen: None, tried: 0 });
        None
    }

    /// Handles an offer. An offer for a request that has chosen or ended is cancelled at once.
    pub(super) fn offered(
        &mut self,
        from: &Name,
        channel: &ChannelId,
        offer: &QualityEvent,
        now: Instant,
        messages: &mut Vec<Message>,
    ) {
        let Some(pending) = self.pending.get_mut(&offer.request).filter(|pending| pending.chosen.is_none()) else {
            messages.push((channel.clone(), Some(from.clone()), reply(QualityKind::Cancel, offer, 0, now)));
            return;
        };
        let distance = Nanos::new(now.since(pending.since).get() / 2);
        // The last offer of a host replaces its earlier ones, so repeated offers give no advantage.
        pending.offers.retain(|offer| offer.host != *from);
        let memory = memory_in(offer).min(pending.ask.memory);
        let asked = pending.ask.rate;
        let rate = kept_rate_in(offer).filter(|kept| asked > BitRate::ZERO && kept.rate == asked);
        pending.offers.push(Offer { host: from.clone(), amount: offer.value, memory, rate, distance });
        let enough = match pending.ask.rule {
            Rule::First => true,
            Rule::BestOf(n) => pending.offers.len() >= n,
            Rule::Nearest => false,
        };
        if enough {
            pending.choose(now, messages);
        }
    }

    /// Updates the distances of hosts that have been measured so far. Hosts that were silent for long had no
    /// measured distance when they offered.
    pub(super) fn measure(&mut self, distance: impl Fn(&Name) -> Option<Nanos>) {
        for offer in self.pending.values_mut().flat_map(|pending| &mut pending.offers) {
            offer.distance = distance(&offer.host).unwrap_or(offer.distance);
        }
    }

    /// The chosen host confirms: all other offers are cancelled.
    pub(super) fn confirmed(
        &mut self,
        from: &Name,
        event: &QualityEvent,
        now: Instant,
        messages: &mut Vec<Message>,
    ) -> Option<(u64, Outcome)> {
        let chosen = self.pending.get(&event.request)?.chosen.as_ref()?;
        if chosen != from {
            return None;
        }
        let pending = self.pending.remove(&event.request)?;
        pending.cancel_others(Some(from), now, messages);
        let offer = pending.offers.into_iter().find(|offer| offer.host == *from);
        let (memory, rate) = offer.map_or((Bytes::ZERO, None), |offer| (offer.memory, offer.rate));
        Some((event.request, Outcome::Met { host: from.clone(), memory, rate }))
    }

    /// Removes the offers of a host that is gone.
    pub(super) fn gone(&mut self, host: &Name, now: Instant, messages: &mut Vec<Message>) {
        for pending in self.pending.values_mut() {
            pending.offers.retain(|offer| offer.host != *host);
            if pending.chosen.as_ref() == Some(host) {
                pending.chosen = None;
                pending.choose(now, messages);
            }
        }
    }

    /// Handles requests whose patience ended or whose confirmation did not come.
    pub(super) fn due(&mut self, now: Instant, messages: &mut Vec<Message>) -> Vec<(u64, Outcome)> {
        let due: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| pending.until <= now).map(|(id, _)| *id).collect();
        due.into_iter().filter_map(|id| self.continue_or_end(id, now, messages)).collect()
    }

    fn continue_or_end(&mut self, id: u64, now: Instant, messages: &mut Vec<Message>) -> Option<(u64, Outcome)> {
        let pending = self.pending.get_mut(&id)?;
        if let Some(silent) = pending.chosen.take() {
            // It may have lent the amount and its confirmation was lost, so it is cancelled in any case.
            messages.push(pending.cancel(&silent, now));
            pending.offers.retain(|offer| offer.host != silent);
        }
        if pending.offers.is_empty() {
            let pending = self.pending.remove(&id)?;
            return Some((id, Outcome::Unmet { offers: pending.tried }));
        }
        pending.choose(now, messages);
        None
    }
}

impl Pending {
    fn choose(&mut self, now: Instant, messages: &mut Vec<Message>) {
        let best = match self.ask.rule {
            Rule::First => self.offers.first(),
            Rule::BestOf(_) => self.offers.iter().max_by_key(|offer| (offer.amount, std::cmp::Reverse(&offer.host))),
            Rule::Nearest => self.offers.iter().min_by_key(|offer| (offer.distance, &offer.host)),
        };
        let Some(host) = best.map(|offer| offer.host.clone()) else { return };
        let accept = quality_event(QualityKind::Accept, self.ask.request, self.ask.attribute, self.ask.amount, now);
        let accept = QualityEvent { other: self.ask.hold.get().min(i64::MAX as u64) as i64, ..accept };
        messages.push((self.ask.channel.clone(), Some(host.clone()), accept));
        self.chosen = Some(host);
        self.tried += 1;
        self.until = now + CONFIRM;
    }

    fn cancel(&self, host: &Name, now: Instant) -> Message {
        let cancel = quality_event(QualityKind::Cancel, self.ask.request, self.ask.attribute, 0, now);
        (self.ask.channel.clone(), Some(host.clone()), cancel)
    }

    fn cancel_others(&self, winner: Option<&Name>, now: Instant, messages: &mut Vec<Message>) {
        let others = self.offers.iter().filter(|offer| Some(&offer.host) != winner);
        messages.extend(others.map(|offer| self.cancel(&offer.host, now)));
    }
}

/// The stage of a request of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker is asked; the offer will go to this channel.
    AskingBroker(ChannelId),
    Offered,
    Accepted,
}

/// The amount that this host keeps for an asker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub attribute: AttributeId,
    pub amount: i64,
    /// Memory beside the amount, if a broker accounts for it.
    pub memory: Bytes,
    /// The rate that is asked for beside the amount, if a broker accounts for it; zero: none.
    pub rate: BitRate,
    /// The rate that the broker keeps.
    pub kept_rate: Option<LoanRate>,
    /// When the hold expires; NEVER once accepted, if no broker accounts for it.
    pub until: Instant,
    pub stage: Stage,
}

impl Held {
    /// The hold for a request, for [`HOLD`].
    pub(super) fn of(request: &QualityEvent, stage: Stage, now: Instant) -> Held {
        let (attribute, amount, memory) = (request.attribute, request.value, memory_in(request));
        let (rate, kept_rate) = (rate_in(request), None);
        Held { attribute, amount, memory, rate, kept_rate, until: now + HOLD, stage }
    }
}

/// The holds for other hosts, by asker and request number.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub held: BTreeMap<(Name, u64), Held>,
}

impl Holds {
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.held.values().map(|held| held.until).filter(|until| *until < Instant::NEVER).min()
    }

    /// Removes and returns the holds for which `fits` returns true.
    pub(super) fn take(&mut self, fits: impl Fn(&(Name, u64), &Held) -> bool) -> BTreeMap<(Name, u64), Held> {
        let (taken, kept) = std::mem::take(&mut self.held).into_iter().partition(|(key, held)| fits(key, held));
        self.held = kept;
        taken
    }
}
