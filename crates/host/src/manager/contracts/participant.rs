//! The part of one host in the contracts of all initiators.
//!
//! ```text
//!   Request ──> asking broker ── held ──> consenting ── consented ──> offered ── Accept, committed ──> in force
//!                  └── refused ──> gone      └── declined ──> gone       │                                │ └ renewed
//!                                             └── time over, Cancel, initiator gone ─────────────────────┴──> gone
//! ```
//! After every call, take outputs from [`Participant::poll`] until there are none.

use std::collections::{BTreeMap, VecDeque};

use qfabric_broker::{HoldRequest, NotHeld};
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Resources};

use super::{Body, ContractMessage, InitiatorCaps, PartRequest, Reason, Timing, VERSION};

/// Largest number of contracts of one host; bounds its memory.
const MAX_CONTRACTS: usize = 4_096;

/// Largest number of cancelled contracts that are remembered, so that late copies of their messages are ignored.
const MAX_CANCELLED: usize = 1_024;

/// The user whose maximum counts for contracts of other hosts: nobody, as for loans.
const NOBODY: u32 = 65_534;

/// An upgrade that was not accepted is offered again after this number of holds at the earliest.
const UPGRADE_PAUSE: u64 = 8;

/// An order for the brokers of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Hold { round: u32, request: HoldRequest },
    Commit { id: JointId, round: u32, step: u32, accepted: Resources, until: Instant },
    Grow { id: JointId, round: u32, until: Instant },
    Release { id: JointId },
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
    /// The last accepted step.
    step: u32,
    /// Capacity became free, so an upgrade may be possible; from `upgrade_from` on.
    may_grow: bool,
    upgrade_from: Instant,
}

impl Entry {
    fn wants_upgrade(&self) -> bool {
        self.may_grow && self.stage == Stage::InForce && !self.granted.covers(&self.part.wanted)
    }
}

/// The participant of one host.
#[derive(Clone, Debug)]
pub struct Participant {
    host: Name,
    caps: InitiatorCaps,
    entries: BTreeMap<JointId, Entry>,
    /// Cancelled attempts, oldest first.
    cancelled: VecDeque<(JointId, u32)>,
    out: VecDeque<ParticipantOutput>,
}

impl Participant {
    pub fn new(host: Name) -> Participant {
        let (caps, cancelled, out) = (InitiatorCaps::default(), VecDeque::new(), VecDeque::new());
        Participant { host, caps, entries: BTreeMap::new(), cancelled, out }
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
            Body::Accept { step, granted } => self.accepted(id, round, step, granted, now),
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

    /// The application's answer to [`ParticipantOutput::Consent`].
    pub fn consented(&mut self, id: &JointId, round: u32, is_accepted: bool, now: Instant) {
        let Some(entry) = self.entry(id, round).filter(|entry| entry.stage == Stage::Consenting) else { return };
        if is_accepted {
            entry.stage = Stage::Offered;
            return self.offer(id);
        }
        self.release(id, now);
        self.send(id.clone(), round, Body::Refuse(Reason::Declined));
    }

    /// Capacity of this host became free: contracts that have less than was wanted may get more.
    pub fn freed(&mut self, now: Instant) {
        self.entries.values_mut().for_each(|entry| entry.may_grow = true);
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
        let of_host: Vec<JointId> = self.entries.keys().filter(|id| id.host == *host).cloned().collect();
        of_host.iter().for_each(|id| self.release(id, now));
    }

    /// Ends what is over.
    pub fn wake(&mut self, now: Instant) {
        let over = self.entries.iter().filter(|(_, entry)| entry.until <= now);
        let over: Vec<JointId> = over.map(|(id, _)| id.clone()).collect();
        over.iter().for_each(|id| self.release(id, now));
        self.upgrade(now);
    }

    /// When [`Participant::wake`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let upgrade = |entry: &Entry| if entry.wants_upgrade() { entry.upgrade_from } else { Instant::NEVER };
        self.entries.values().map(|entry| entry.until.min(upgrade(entry))).min()
    }

    /// Number of contracts that are held or in force here.
    pub fn contracts(&self) -> usize {
        self.entries.len()
    }

    fn requested(&mut self, id: JointId, round: u32, part: PartRequest, now: Instant) {
        if self.is_cancelled(&id, round) {
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
        if self.entries.len() >= MAX_CONTRACTS {
            return Err(Reason::Full { limit: MAX_CONTRACTS as u32 });
        }
        let initiator = (id.host != self.host).then_some(&id.host);
        let [first, last] = [0, u64::MAX].map(|number| JointId { host: id.host.clone(), number });
        let of_initiator = self.entries.range(first..=last);
        let wanted = self.caps.admit(initiator, &part, of_initiator.map(|(_, entry)| &entry.part))?;
        Ok(PartRequest { wanted, ..part })
    }

    fn hold(&mut self, id: JointId, round: u32, part: PartRequest, now: Instant) {
        let uid = if id.host == self.host { part.owner.uid } else { NOBODY };
        let (wanted, minimum, until) = (part.wanted.clone(), part.minimum.least(&part.wanted), now + part.hold);
        let request = HoldRequest { id: id.clone(), uid, wanted, minimum, until };
        let granted = Resources::default();
        let (stage, step) = (Stage::AskingBroker, 0);
        let entry = Entry { round, part, stage, granted, until, step, may_grow: false, upgrade_from: now };
        self.entries.insert(id, entry);
        self.out.push_back(ParticipantOutput::Order(Order::Hold { round, request }));
    }

    fn held(&mut self, id: JointId, round: u32, result: Result<Resources, Reason>, now: Instant) {
        let Some(entry) = self.entry(&id, round).filter(|entry| entry.stage == Stage::AskingBroker) else { return };
        match result {
            Ok(granted) => entry.granted = granted,
            Err(reason) => {
                self.entries.remove(&id);
                return self.send(id, round, Body::Refuse(reason));
            }
        }
        let Some(application) = entry.part.application.clone() else {
            entry.stage = Stage::Offered;
            return self.offer(&id);
        };
        entry.stage = Stage::Consenting;
        let granted = entry.granted.clone();
        if entry.until > now {
            self.out.push_back(ParticipantOutput::Consent { id, round, application, granted });
        }
    }

    fn accepted(&mut self, id: JointId, round: u32, step: u32, accepted: Resources, now: Instant) {
        let is_newer = self.entries.get(&id).is_some_and(|entry| entry.round > round);
        let Some(entry) = self.entry(&id, round).filter(|entry| entry.until > now) else {
            if !is_newer {
                self.send(id, round, Body::Refuse(Reason::Ended));
            }
            return;
        };
        let is_ready = matches!(entry.stage, Stage::Offered | Stage::InForce);
        if !is_ready || step <= entry.step {
            return;
        }
        (entry.step, entry.until) = (step, now + entry.part.hold);
        let until = entry.until;
        self.out.push_back(ParticipantOutput::Order(Order::Commit { id, round, step, accepted, until }));
    }

    fn committed(&mut self, id: JointId, round: u32, step: u32, result: Result<Resources, NotHeld>, now: Instant) {
        let Some(entry) = self.entry(&id, round) else { return };
        let Ok(granted) = result else {
            self.release(&id, now);
            return self.send(id, round, Body::Refuse(Reason::Ended));
        };
        let is_changed = entry.stage != Stage::InForce || entry.granted != granted;
        (entry.stage, entry.granted) = (Stage::InForce, granted.clone());
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
        self.cancelled.retain(|(known, _)| *known != id);
        if self.cancelled.len() >= MAX_CANCELLED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back((id, round));
    }

    fn is_cancelled(&self, id: &JointId, round: u32) -> bool {
        self.cancelled.iter().any(|(known, last)| known == id && *last >= round)
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
        self.out.push_back(ParticipantOutput::Order(Order::Release { id: id.clone() }));
        if entry.stage == Stage::InForce {
            self.out.push_back(ParticipantOutput::Ended { id: id.clone() });
        }
        self.freed(now);
    }

    /// Asks the brokers for upgrades, after orders that released something.
    fn upgrade(&mut self, now: Instant) {
        for (id, entry) in &mut self.entries {
            if !entry.wants_upgrade() || entry.upgrade_from > now || entry.until <= now {
                continue;
            }
            (entry.may_grow, entry.upgrade_from) = (false, now + pause(entry.part.hold));
            let (id, round, until) = (id.clone(), entry.round, now + entry.part.hold);
            self.out.push_back(ParticipantOutput::Order(Order::Grow { id, round, until }));
        }
    }

    fn send(&mut self, id: JointId, round: u32, body: Body) {
        self.out.push_back(ParticipantOutput::Send(id.host.clone(), ContractMessage { id, round, body }));
    }
}

fn pause(hold: Nanos) -> Nanos {
    hold.saturating_mul(UPGRADE_PAUSE)
}
