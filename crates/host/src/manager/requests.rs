//! Requests that cannot be met here are forwarded: whoever can meet them offers, one is accepted, the rest is cancelled.
//!
//! ```text
//!   asker     Request ──> all      Accept ──> chosen          Cancel ──> every other that offered, also later
//!   others       Offer <── (holds the amount for HOLD)
//!   chosen                            Confirm <── (the amount is lent until Cancel, or until the asker is gone)
//!                                     Cancel <── (an application there has it: it is not the asker's any more)
//! ```
//! Source: thesis §4.3 (Figure 28), §4.5. Departure: an offer *holds* what it offers, so that of two askers one is not
//! promised what the other gets; a hold ends by itself, so that an asker that dies costs nobody anything for long.

use std::collections::BTreeMap;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{Instant, Nanos};

/// How long an offer stands.
pub(super) const HOLD: Nanos = Nanos::from_millis(3_000);

/// How long the chosen one may take to confirm before the next is asked.
const CONFIRM: Nanos = Nanos::from_millis(700);

/// Requests of one host under way; more are refused.
const MOST: usize = 1_024;

/// Requests of other hosts that may be held here; to one more nothing is said.
pub(super) const MOST_HELD: usize = 256;

/// Which offer wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first.
    First,
    /// Of the first `n`, the one with most to give; of fewer when patience ends.
    BestOf(usize),
    /// When patience ends, the one with the shortest way.
    Nearest,
}

/// A request to other hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The asker's number for it, not in use.
    pub request: u64,
    /// Whose managers are asked.
    pub channel: ChannelId,
    /// For what.
    pub attribute: AttributeId,
    /// How much.
    pub amount: i64,
    /// Which offer wins.
    pub rule: Rule,
    /// How long offers are waited for.
    pub patience: Nanos,
    /// For how long the giver is to keep it, where a broker has its books; elsewhere until it is given back.
    pub hold: Nanos,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This host gives it.
    Met {
        /// Who.
        host: Name,
    },
    /// Nobody did, in time.
    Unmet {
        /// How many offered and did not confirm.
        offers: usize,
    },
    /// Too many requests are under way.
    Refused {
        /// How many there may be.
        limit: usize,
    },
}

#[derive(Debug)]
struct Offer {
    host: Name,
    amount: i64,
    /// Half a round trip; before that is measured, half of what the offer took, which is no less.
    distance: Nanos,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    since: Instant,
    offers: Vec<Offer>,
    until: Instant,
    chosen: Option<Name>,
    tried: usize,
}

/// To whom, on which channel, what.
pub(super) type Told = (ChannelId, Option<Name>, QualityEvent);

/// The asker's side.
#[derive(Debug, Default)]
pub(super) struct Requests {
    asked: BTreeMap<u64, Asked>,
}

pub(super) fn said(kind: QualityKind, request: u64, attribute: AttributeId, value: i64, now: Instant) -> QualityEvent {
    let (controller, subject) = (AttributeId::of("manager"), QualityText::NONE);
    QualityEvent { controller, kind, value, other: 0, request, at: now, application: HOST, attribute, subject }
}

pub(super) fn reply(kind: QualityKind, to: &QualityEvent, value: i64, now: Instant) -> QualityEvent {
    said(kind, to.request, to.attribute, value, now)
}

impl Requests {
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.until).min()
    }

    pub fn ask(&mut self, ask: Ask, now: Instant, tell: &mut Vec<Told>) -> Option<Outcome> {
        if self.asked.len() >= MOST || self.asked.contains_key(&ask.request) {
            return Some(Outcome::Refused { limit: MOST });
        }
        tell.push((ask.channel.clone(), None, said(QualityKind::Request, ask.request, ask.attribute, ask.amount, now)));
        let until = now + ask.patience;
        self.asked.insert(ask.request, Asked { ask, since: now, offers: Vec::new(), until, chosen: None, tried: 0 });
        None
    }

    /// An offer; one that nobody waits for any more is cancelled at once.
    pub fn offered(
        &mut self,
        from: &Name,
        channel: &ChannelId,
        offer: &QualityEvent,
        now: Instant,
        tell: &mut Vec<Told>,
    ) {
        let Some(asked) = self.asked.get_mut(&offer.request).filter(|asked| asked.chosen.is_none()) else {
            tell.push((channel.clone(), Some(from.clone()), reply(QualityKind::Cancel, offer, 0, now)));
            return;
        };
        let distance = Nanos::new(now.since(asked.since).get() / 2);
        // Its last word counts, and one host is one offer: nobody is better for saying it often.
        asked.offers.retain(|offer| offer.host != *from);
        asked.offers.push(Offer { host: from.clone(), amount: offer.value, distance });
        let enough = match asked.ask.rule {
            Rule::First => true,
            Rule::BestOf(n) => asked.offers.len() >= n,
            Rule::Nearest => false,
        };
        if enough {
            asked.choose(now, tell);
        }
    }

    /// How far hosts are, as far as it is measured by now: to those that were silent for long nobody had measured the way
    /// before they offered.
    pub fn measure(&mut self, distance: impl Fn(&Name) -> Option<Nanos>) {
        for offer in self.asked.values_mut().flat_map(|asked| &mut asked.offers) {
            offer.distance = distance(&offer.host).unwrap_or(offer.distance);
        }
    }

    /// The chosen one confirms: all others are cancelled.
    pub fn confirmed(
        &mut self,
        from: &Name,
        event: &QualityEvent,
        now: Instant,
        tell: &mut Vec<Told>,
    ) -> Option<(u64, Outcome)> {
        let chosen = self.asked.get(&event.request)?.chosen.as_ref()?;
        if chosen != from {
            return None;
        }
        let asked = self.asked.remove(&event.request)?;
        asked.cancel_others(Some(from), now, tell);
        Some((event.request, Outcome::Met { host: from.clone() }))
    }

    /// A host is gone, and its offers with it.
    pub fn gone(&mut self, host: &Name, now: Instant, tell: &mut Vec<Told>) {
        for asked in self.asked.values_mut() {
            asked.offers.retain(|offer| offer.host != *host);
            if asked.chosen.as_ref() == Some(host) {
                asked.chosen = None;
                asked.choose(now, tell);
            }
        }
    }

    /// Patience ended, or a confirmation did not come.
    pub fn due(&mut self, now: Instant, tell: &mut Vec<Told>) -> Vec<(u64, Outcome)> {
        let due: Vec<u64> = self.asked.iter().filter(|(_, asked)| asked.until <= now).map(|(id, _)| *id).collect();
        due.into_iter().filter_map(|id| self.give_up_or_go_on(id, now, tell)).collect()
    }

    fn give_up_or_go_on(&mut self, id: u64, now: Instant, tell: &mut Vec<Told>) -> Option<(u64, Outcome)> {
        let asked = self.asked.get_mut(&id)?;
        if let Some(silent) = asked.chosen.take() {
            // It may have lent and its word been lost: it is told, whichever it was.
            tell.push(asked.cancel(&silent, now));
            asked.offers.retain(|offer| offer.host != silent);
        }
        if asked.offers.is_empty() {
            let asked = self.asked.remove(&id)?;
            return Some((id, Outcome::Unmet { offers: asked.tried }));
        }
        asked.choose(now, tell);
        None
    }
}

impl Asked {
    fn choose(&mut self, now: Instant, tell: &mut Vec<Told>) {
        let best = match self.ask.rule {
            Rule::First => self.offers.first(),
            Rule::BestOf(_) => self.offers.iter().max_by_key(|offer| (offer.amount, std::cmp::Reverse(&offer.host))),
            Rule::Nearest => self.offers.iter().min_by_key(|offer| (offer.distance, &offer.host)),
        };
        let Some(host) = best.map(|offer| offer.host.clone()) else { return };
        let accept = said(QualityKind::Accept, self.ask.request, self.ask.attribute, self.ask.amount, now);
        let accept = QualityEvent { other: self.ask.hold.get().min(i64::MAX as u64) as i64, ..accept };
        tell.push((self.ask.channel.clone(), Some(host.clone()), accept));
        self.chosen = Some(host);
        self.tried += 1;
        self.until = now + CONFIRM;
    }

    fn cancel(&self, host: &Name, now: Instant) -> Told {
        let cancel = said(QualityKind::Cancel, self.ask.request, self.ask.attribute, 0, now);
        (self.ask.channel.clone(), Some(host.clone()), cancel)
    }

    fn cancel_others(&self, winner: Option<&Name>, now: Instant, tell: &mut Vec<Told>) {
        let others = self.offers.iter().filter(|offer| Some(&offer.host) != winner);
        tell.extend(others.map(|offer| self.cancel(&offer.host, now)));
    }
}

/// How far a request of another host has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker is asked; the offer will go to this channel.
    Asked(ChannelId),
    Offered,
    Accepted,
}

/// What this host keeps for an asker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub attribute: AttributeId,
    pub amount: i64,
    /// When it ends by itself; never, once accepted.
    pub until: Instant,
    pub stage: Stage,
}

impl Held {
    /// What a request asks for, for a moment.
    pub fn of(request: &QualityEvent, stage: Stage, now: Instant) -> Held {
        Held { attribute: request.attribute, amount: request.value, until: now + HOLD, stage }
    }
}

/// The giver's side: by asker and its number.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub held: BTreeMap<(Name, u64), Held>,
}

impl Holds {
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.held.values().map(|held| held.until).filter(|until| *until < Instant::NEVER).min()
    }

    /// Those that fit, taken out.
    pub fn take(&mut self, fits: impl Fn(&(Name, u64), &Held) -> bool) -> BTreeMap<(Name, u64), Held> {
        let (taken, kept) = std::mem::take(&mut self.held).into_iter().partition(|(key, held)| fits(key, held));
        self.held = kept;
        taken
    }
}
