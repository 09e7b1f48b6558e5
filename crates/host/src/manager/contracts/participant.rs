//! The part of one host in the contracts of all initiators.
//!
//! ```text
//!   Request ──> asking broker ── held ──> consenting ── consented ──> offered ── Accept, committed ──> in force
//!                  └── refused ──> gone      └── declined, silent ──> gone                                │ └ renewed
//!                                             └── time over, Cancel, initiator gone ─────────────────────┴──> gone
//! ```
//! After every call, take outputs from [`Participant::poll`] until there are none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_broker::{Deadlines, HoldRequest, NotHeld};
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner, Resources};

use super::{Body, ContractMessage, InitiatorCaps, NoConsent, PartRequest, Reason, Timing, VERSION};

/// Largest number of contracts that this host initiated, and of those that all other hosts initiated; bounds memory.
/// Other hosts take no place of this host's own contracts.
const MAX_CONTRACTS: usize = 4_096;

/// Largest number of closed rounds that are remembered.
const MAX_CLOSED: usize = 1_024;

/// An upgrade that was not accepted is offered again after this number of holds at the earliest.
const UPGRADE_PAUSE: u64 = 8;

/// The last round of a contract that is over, so that a late copy of its request has no effect.
#[derive(Clone, Debug)]
struct Closed {
    id: JointId,
    round: u32,
    /// What its application said; without it, the initiator cancelled the round. An application is asked once in a round.
    refusal: Option<NoConsent>,
}

/// An order for the brokers of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Hold {
        round: u32,
        request: HoldRequest,
    },
    Commit {
        id: JointId,
        round: u32,
        step: u32,
        accepted: Resources,
        until: Instant,
    },
    Grow {
        id: JointId,
        round: u32,
        until: Instant,
    },
    /// Frees what [`Order::Grow`] held and no Commit took.
    FreeUpgrade {
        id: JointId,
    },
    Release {
        id: JointId,
    },
}

/// The brokers' answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Held { id: JointId, round: u32, result: Result<Resources, Reason> },
    Committed { id: JointId, round: u32, step: u32, result: Result<Resources, NotHeld> },
    Grown { id: JointId, round: u32, whole: Option<Resources> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParticipantOutput {
    Send(Name, ContractMessage),
    /// For the brokers, in order; the answer goes to [`Participant::answered`].
    Order(Order),
    /// Ask the application; the answer goes to [`Participant::consented`].
    Consent {
        id: JointId,
        round: u32,
        application: Name,
        granted: Resources,
        /// Without an answer until then, the part is refused.
        until: Instant,
    },
    /// The contract is in force here with this vector, first or after an upgrade.
    InForce {
        id: JointId,
        granted: Resources,
    },
    /// A contract that was in force here has ended.
    Ended {
        id: JointId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AskingBroker,
    Consenting,
    Offered,
    InForce,
}

#[derive(Clone, Debug)]
struct Entry {
    round: u32,
    /// Its wanted amounts are within the caps of its initiator.
    part: PartRequest,
    stage: Stage,
    granted: Resources,
    until: Instant,
    /// While the application is asked: the end of the time for its answer.
    answer_by: Instant,
    /// The last accepted step.
    step: u32,
    /// Capacity became free, so an upgrade may be possible; from `upgrade_from` on.
    may_grow: bool,
    upgrade_from: Instant,
}

impl Entry {
    /// Whether more would be accepted.
    fn is_growing(&self) -> bool {
        self.part.may_grow && self.stage == Stage::InForce && !self.granted.covers(&self.part.wanted)
    }

    fn wants_upgrade(&self) -> bool {
        self.may_grow && self.is_growing()
    }

    fn is_unanswered(&self, now: Instant) -> bool {
        self.stage == Stage::Consenting && self.answer_by <= now
    }

    fn next_wakeup(&self) -> Instant {
        let answer = if self.stage == Stage::Consenting { self.answer_by } else { Instant::NEVER };
        let upgrade = if self.wants_upgrade() { self.upgrade_from } else { Instant::NEVER };
        self.until.min(answer).min(upgrade)
    }
}

/// The participant of one host.
#[derive(Clone, Debug)]
pub struct Participant {
    host: Name,
    caps: InitiatorCaps,
    /// Longest time that an application has to consent.
    consent_time: Nanos,
    entries: BTreeMap<JointId, Entry>,
    wakeups: Deadlines<JointId>,
    /// The contracts that would accept more.
    growing: BTreeSet<JointId>,
    /// Cancelled attempts, oldest first.
    closed: VecDeque<Closed>,
    out: VecDeque<ParticipantOutput>,
}

impl Participant {
    pub fn new(host: Name) -> Participant {
        let (caps, entries, wakeups, growing, closed, out) = Default::default();
        Participant { host, caps, consent_time: Nanos::MAX, entries, wakeups, growing, closed, out }
    }

    /// Sets the longest time that an application has to consent; [`Timing::consent`] bounds it for every request.
    /// Questions that were asked keep their time.
    pub fn set_consent_time(&mut self, longest: Nanos) {
        self.consent_time = longest;
    }

    /// Replaces the caps of initiators. Contracts beyond a new cap stay, and their initiator gets nothing more.
    pub fn set_caps(&mut self, caps: InitiatorCaps) {
        self.caps = caps;
    }

    /// The next output; `None`: there is none.
    pub fn poll(&mut self) -> Option<ParticipantOutput> {
        self.out.pop_front()
    }

    /// Handles a message. Messages for a coordinator, and those of a host that did not initiate the contract, are
    /// ignored.
    pub fn receive(&mut self, from: &Name, message: ContractMessage, now: Instant) {
        let ContractMessage { id, round, body } = message;
        if *from != id.host {
            return;
        }
        match body {
            Body::Request(part) => self.requested(id, round, part, now),
            Body::Accept { step, granted, frees_upgrade } => {
                let accepted = self.accepted(&id, round, step, granted, now);
                if accepted && frees_upgrade {
                    self.out.push_back(ParticipantOutput::Order(Order::FreeUpgrade { id }));
                    self.freed(now);
                }
            }
            Body::Cancel => self.cancelled(id, round, now),
            Body::Offer { .. } | Body::Refuse(_) | Body::Confirm { .. } => {}
        }
    }

    /// Refuses a request of a version that this host does not know.
    pub fn not_readable(&mut self, from: &Name, number: u64) {
        let id = JointId { host: from.clone(), number };
        self.send(id, 0, Body::Refuse(Reason::Version { speaks: VERSION }));
    }

    /// The brokers' answer to an order.
    pub fn answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Held { id, round, result } => self.held(id, round, result, now),
            Answer::Committed { id, round, step, result } => self.committed(id, round, step, result, now),
            Answer::Grown { id, round, whole } => self.grown(id, round, whole),
        }
    }

    /// The application's answer to [`ParticipantOutput::Consent`]. Returns whether the question was still open.
    pub fn consented(&mut self, id: &JointId, round: u32, answer: Result<(), NoConsent>, now: Instant) -> bool {
        let is_asked = |entry: &&mut Entry| entry.stage == Stage::Consenting && entry.answer_by > now;
        let Some(entry) = self.entry(id, round).filter(is_asked) else { return false };
        match answer {
            Ok(()) => {
                entry.stage = Stage::Offered;
                self.track(id);
                self.offer(id);
            }
            Err(refusal) => self.refuse_without_consent(id, refusal, now),
        }
        true
    }

    /// Capacity of this host became free: contracts that have less than was wanted may get more.
    pub fn freed(&mut self, now: Instant) {
        for id in self.growing.clone() {
            self.entries.entry(id.clone()).and_modify(|entry| entry.may_grow = true);
            self.track(&id);
        }
        self.upgrade(now);
    }

    /// Ends a contract on this host: its application has left.
    pub fn leave(&mut self, id: &JointId, now: Instant) {
        let Some(round) = self.entries.get(id).map(|entry| entry.round) else { return };
        self.release(id, now);
        self.send(id.clone(), round, Body::Cancel);
    }

    /// An initiator is gone: its contracts end.
    pub fn gone(&mut self, host: &Name, now: Instant) {
        let of_host: Vec<JointId> = self.of_initiator(host).map(|(id, _)| id.clone()).collect();
        of_host.iter().for_each(|id| self.release(id, now));
    }

    /// Ends what is over.
    pub fn wake(&mut self, now: Instant) {
        for id in self.wakeups.due(now) {
            match self.entries.get(&id) {
                Some(entry) if entry.until <= now => self.release(&id, now),
                Some(entry) if entry.is_unanswered(now) => {
                    self.refuse_without_consent(&id, NoConsent::Silent, now);
                }
                _ => {}
            }
        }
        self.upgrade(now);
    }

    /// When [`Participant::wake`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.wakeups.next()
    }

    /// Number of contracts that are held or in force here.
    pub fn contracts(&self) -> usize {
        self.entries.len()
    }

    fn requested(&mut self, id: JointId, round: u32, part: PartRequest, now: Instant) {
        if let Some(closed) = self.closed.iter().find(|closed| closed.id == id && closed.round >= round) {
            // The refusal was lost, so it is sent again.
            if let Some(refusal) = closed.refusal.filter(|_| closed.round == round) {
                self.send(id, round, Body::Refuse(Reason::NoConsent(refusal)));
            }
            return;
        }
        match self.entries.get(&id) {
            Some(known) if known.round > round => return,
            // The offer was lost, so it is sent again.
            Some(known) if known.round == round && known.stage == Stage::Offered => return self.offer(&id),
            Some(known) if known.round == round => return,
            Some(_) => self.release(&id, now),
            None => {}
        }
        match self.admitted(&id, part) {
            Ok(part) => self.hold(id, round, part, now),
            Err(reason) => self.send(id, round, Body::Refuse(reason)),
        }
    }

    /// The request with the wanted amounts that the caps allow.
    fn admitted(&self, id: &JointId, part: PartRequest) -> Result<PartRequest, Reason> {
        if !(Timing::SHORTEST..=Timing::LONGEST).contains(&part.hold) {
            return Err(Reason::Hold { given: part.hold });
        }
        let own = self.of_initiator(&self.host).count();
        let present = if id.host == self.host { own } else { self.entries.len() - own };
        if present >= MAX_CONTRACTS {
            return Err(Reason::Full { limit: MAX_CONTRACTS as u32 });
        }
        let initiator = (id.host != self.host).then_some(&id.host);
        let others = self.of_initiator(&id.host).map(|(_, entry)| &entry.part);
        let wanted = self.caps.admit(initiator, &part, others)?;
        Ok(PartRequest { wanted, ..part })
    }

    fn of_initiator(&self, host: &Name) -> impl Iterator<Item = (&JointId, &Entry)> + Clone {
        let [first, last] = [0, u64::MAX].map(|number| JointId { host: host.clone(), number });
        self.entries.range(first..=last)
    }

    fn hold(&mut self, id: JointId, round: u32, part: PartRequest, now: Instant) {
        let owner = if id.host == self.host { part.owner } else { Owner::NOBODY };
        let (wanted, minimum, until) = (part.wanted.clone(), part.minimum.least(&part.wanted), now + part.hold);
        let request = HoldRequest { id: id.clone(), owner, wanted, minimum, until };
        let (granted, stage, step, may_grow) = (Resources::default(), Stage::AskingBroker, 0, false);
        let (answer_by, upgrade_from) = (now + Timing::consent(part.hold).min(self.consent_time), now);
        let entry = Entry { round, part, stage, granted, until, answer_by, step, may_grow, upgrade_from };
        self.entries.insert(id.clone(), entry);
        self.track(&id);
        self.out.push_back(ParticipantOutput::Order(Order::Hold { round, request }));
    }

    fn held(&mut self, id: JointId, round: u32, result: Result<Resources, Reason>, now: Instant) {
        let Some(entry) = self.entry(&id, round).filter(|entry| entry.stage == Stage::AskingBroker) else { return };
        match result {
            Ok(granted) => entry.granted = granted,
            Err(reason) => {
                self.entries.remove(&id);
                self.track(&id);
                return self.send(id, round, Body::Refuse(reason));
            }
        }
        let Some(application) = entry.part.application.clone() else {
            entry.stage = Stage::Offered;
            return self.offer(&id);
        };
        entry.stage = Stage::Consenting;
        let (granted, until) = (entry.granted.clone(), entry.answer_by);
        self.track(&id);
        if until > now {
            self.out.push_back(ParticipantOutput::Consent { id, round, application, granted, until });
        }
    }

    /// Returns whether the Accept counts.
    fn accepted(&mut self, id: &JointId, round: u32, step: u32, accepted: Resources, now: Instant) -> bool {
        let is_newer = self.entries.get(id).is_some_and(|entry| entry.round > round);
        let Some(entry) = self.entry(id, round).filter(|entry| entry.until > now) else {
            if !is_newer {
                self.send(id.clone(), round, Body::Refuse(Reason::Ended));
            }
            return false;
        };
        let is_ready = matches!(entry.stage, Stage::Offered | Stage::InForce);
        if !is_ready || step <= entry.step {
            return false;
        }
        (entry.step, entry.until) = (step, now + entry.part.hold);
        let (id, until) = (id.clone(), entry.until);
        self.track(&id);
        self.out.push_back(ParticipantOutput::Order(Order::Commit { id, round, step, accepted, until }));
        true
    }

    fn committed(&mut self, id: JointId, round: u32, step: u32, result: Result<Resources, NotHeld>, now: Instant) {
        let Some(entry) = self.entry(&id, round) else { return };
        let Ok(granted) = result else { return self.refuse(&id, Reason::Ended, now) };
        let is_changed = entry.stage != Stage::InForce || entry.granted != granted;
        (entry.stage, entry.granted) = (Stage::InForce, granted.clone());
        self.track(&id);
        if is_changed {
            self.out.push_back(ParticipantOutput::InForce { id: id.clone(), granted: granted.clone() });
        }
        self.send(id, round, Body::Confirm { step, granted });
    }

    fn grown(&mut self, id: JointId, round: u32, whole: Option<Resources>) {
        let is_in_force = self.entry(&id, round).is_some_and(|entry| entry.stage == Stage::InForce);
        if let Some(granted) = whole.filter(|_| is_in_force) {
            self.send(id, round, Body::Offer { granted, is_upgrade: true });
        }
    }

    fn cancelled(&mut self, id: JointId, round: u32, now: Instant) {
        if self.entries.get(&id).is_some_and(|entry| entry.round <= round) {
            self.release(&id, now);
        }
        self.close(Closed { id, round, refusal: None });
    }

    fn close(&mut self, closed: Closed) {
        self.closed.retain(|known| known.id != closed.id);
        if self.closed.len() >= MAX_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(closed);
    }

    fn entry(&mut self, id: &JointId, round: u32) -> Option<&mut Entry> {
        self.entries.get_mut(id).filter(|entry| entry.round == round)
    }

    fn offer(&mut self, id: &JointId) {
        let Some(entry) = self.entries.get(id) else { return };
        let offer = Body::Offer { granted: entry.granted.clone(), is_upgrade: false };
        self.send(id.clone(), entry.round, offer);
    }

    fn release(&mut self, id: &JointId, now: Instant) {
        let Some(entry) = self.entries.remove(id) else { return };
        self.track(id);
        self.out.push_back(ParticipantOutput::Order(Order::Release { id: id.clone() }));
        if entry.stage == Stage::InForce {
            self.out.push_back(ParticipantOutput::Ended { id: id.clone() });
        }
        self.freed(now);
    }

    fn refuse_without_consent(&mut self, id: &JointId, refusal: NoConsent, now: Instant) {
        if let Some(round) = self.entries.get(id).map(|entry| entry.round) {
            self.close(Closed { id: id.clone(), round, refusal: Some(refusal) });
        }
        self.refuse(id, Reason::NoConsent(refusal), now);
    }

    /// Frees a part, and tells its initiator why.
    fn refuse(&mut self, id: &JointId, reason: Reason, now: Instant) {
        let Some(round) = self.entries.get(id).map(|entry| entry.round) else { return };
        self.release(id, now);
        self.send(id.clone(), round, Body::Refuse(reason));
    }

    /// Asks the brokers for upgrades, after orders that released something.
    fn upgrade(&mut self, now: Instant) {
        for id in self.growing.clone() {
            let is_due = |entry: &&mut Entry| entry.wants_upgrade() && entry.upgrade_from <= now && entry.until > now;
            let Some(entry) = self.entries.get_mut(&id).filter(is_due) else { continue };
            (entry.may_grow, entry.upgrade_from) = (false, now + pause(entry.part.hold));
            let (round, until) = (entry.round, now + entry.part.hold);
            self.track(&id);
            self.out.push_back(ParticipantOutput::Order(Order::Grow { id, round, until }));
        }
    }

    /// Records what an entry waits for, after every change of it.
    fn track(&mut self, id: &JointId) {
        let entry = self.entries.get(id);
        self.wakeups.set(id, entry.map(Entry::next_wakeup));
        if entry.is_some_and(Entry::is_growing) {
            self.growing.insert(id.clone());
        } else {
            self.growing.remove(id);
        }
    }

    fn send(&mut self, id: JointId, round: u32, body: Body) {
        self.out.push_back(ParticipantOutput::Send(id.host.clone(), ContractMessage { id, round, body }));
    }
}

fn pause(hold: Nanos) -> Nanos {
    hold.saturating_mul(UPGRADE_PAUSE)
}
