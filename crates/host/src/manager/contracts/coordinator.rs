//! The initiator's side of contracts.
//!
//! ```text
//!   apply ──> holding ── all offered ──> accepting ── all confirmed ──> in force ── renewed ──> in force
//!                │                          │                              └── Refuse, Cancel, silence ──> ended
//!                └── Refuse, silence ───────┴──> backing off ── random time ──> holding, next round
//!                                                   └── last attempt and no patience, or the reason is permanent ──> refused
//! ```
//! After every call, take outputs from [`Coordinator::poll`] until there are none.

mod job;

use std::collections::{BTreeMap, VecDeque};

use qfabric_broker::Deadlines;
use qfabric_types::api::contracts::{JointId, JointRequest};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, RandomNumbers, Resources};

use super::{Body, ContractMessage, Reason, Refused, Timing};
use job::{Event, Job, Stage};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorOutput {
    Send(Name, ContractMessage),
    /// The contract is in force on all hosts, with these vectors.
    InForce {
        id: JointId,
        granted: BTreeMap<Name, Resources>,
    },
    /// The contract is refused; nothing is held after the time of a hold.
    Refused {
        id: JointId,
        refused: Refused,
    },
    /// A host holds more for the contract; [`Coordinator::upgrade`] accepts it (QualMan §5.1.4). Without acceptance it
    /// ends after the time of a hold.
    Upgrade {
        id: JointId,
        host: Name,
        granted: Resources,
    },
    /// An accepted upgrade is in force on this host.
    Upgraded {
        id: JointId,
        host: Name,
        granted: Resources,
    },
    /// A contract in force has ended, because of this host.
    Ended {
        id: JointId,
        refused: Refused,
    },
}

/// The contracts that this host initiated.
#[derive(Clone, Debug)]
pub struct Coordinator {
    host: Name,
    timing: Timing,
    random: RandomNumbers,
    jobs: BTreeMap<u64, Job>,
    wakeups: Deadlines<u64>,
    out: VecDeque<CoordinatorOutput>,
}

/// The number is in use, or the limit of contracts is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this host already initiates {} contracts, or one with this number", Coordinator::MAX_CONTRACTS)]
pub struct TooManyContracts;

impl Coordinator {
    /// Largest number of contracts of one initiator.
    pub const MAX_CONTRACTS: usize = 4_096;

    /// `seed` determines the random pauses between attempts; hosts need different seeds.
    pub fn new(host: Name, timing: Timing, seed: u64) -> Coordinator {
        let (random, (jobs, wakeups, out)) = (RandomNumbers::new(seed), Default::default());
        Coordinator { host, timing, random, jobs, wakeups, out }
    }

    /// The next output; `None`: there is none.
    pub fn poll(&mut self) -> Option<CoordinatorOutput> {
        self.out.pop_front()
    }

    /// Begins a contract of this user and group. `number` must be random with 64 bits: it makes the identity unique even
    /// after a restart.
    ///
    /// # Errors
    /// Nothing was begun.
    pub fn apply(
        &mut self,
        number: u64,
        owner: Owner,
        request: &JointRequest,
        now: Instant,
    ) -> Result<JointId, TooManyContracts> {
        if self.jobs.len() >= Self::MAX_CONTRACTS || self.jobs.contains_key(&number) {
            return Err(TooManyContracts);
        }
        let id = JointId { host: self.host.clone(), number };
        let mut job = Job::new(id.clone(), owner, request, self.timing, now);
        job.begin(now, &mut self.out);
        self.jobs.insert(number, job);
        self.track(number);
        Ok(id)
    }

    /// Ends a contract, whatever its stage. Returns whether there was one.
    pub fn end(&mut self, id: &JointId) -> bool {
        let job = Some(id).filter(|id| id.host == self.host).and_then(|id| self.jobs.remove(&id.number));
        self.track(id.number);
        job.is_some_and(|job| {
            job.cancel_all(&mut self.out);
            true
        })
    }

    /// Accepts the last upgrade that a host offered.
    pub fn upgrade(&mut self, id: &JointId, host: &Name, now: Instant) {
        if let Some(job) = self.jobs.get_mut(&id.number) {
            job.upgrade(host, now, &mut self.out);
            self.track(id.number);
        }
    }

    /// Declines the last upgrade that a host offered: it is free there at once, or when its hold is over if the message
    /// is lost.
    pub fn decline(&mut self, id: &JointId, host: &Name, now: Instant) {
        if let Some(job) = self.jobs.get_mut(&id.number) {
            job.decline(host, now, &mut self.out);
            self.track(id.number);
        }
    }

    /// Handles a message of a participant. One that no contract expects is answered with a Cancel, so that nothing
    /// stays held for it.
    pub fn receive(&mut self, from: &Name, message: ContractMessage, now: Instant) {
        let ContractMessage { id, round, body } = message;
        if id.host != self.host || matches!(body, Body::Request(_) | Body::Accept { .. }) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&id.number).filter(|job| job.has(from)) else {
            return self.reject(from, id, round, &body);
        };
        let is_of_version = matches!(body, Body::Refuse(Reason::Version { .. }));
        let is_idle = matches!(job.stage(), Stage::BackingOff { .. });
        if (round != job.round() || is_idle) && !is_of_version {
            return self.reject(from, id, round, &body);
        }
        let event = job.receive(from, body, now, &mut self.out);
        self.carry_out(id.number, event, now);
    }

    /// A host is gone: contracts with it end, or are tried again.
    pub fn gone(&mut self, host: &Name, now: Instant) {
        let with_host: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.has(host)).map(|(number, _)| *number).collect();
        for number in with_host {
            let reason = Reason::Silent;
            self.carry_out(number, Some(Event::Failed(Refused { host: host.clone(), reason })), now);
        }
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant) {
        for number in self.wakeups.due(now) {
            let event = self.jobs.get_mut(&number).and_then(|job| job.wake(now, &mut self.out));
            self.carry_out(number, event, now);
        }
    }

    /// When [`Coordinator::wake`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.wakeups.next()
    }

    /// The vectors of a contract in force, by host; `None` if it is not in force.
    pub fn granted(&self, id: &JointId) -> Option<BTreeMap<Name, Resources>> {
        self.jobs.get(&id.number).filter(|job| job.is_in_force()).map(Job::granted)
    }

    /// The contracts that are being made or in force.
    pub fn contracts(&self) -> impl Iterator<Item = &JointId> {
        self.jobs.values().map(Job::id)
    }

    fn reject(&mut self, from: &Name, id: JointId, round: u32, body: &Body) {
        if matches!(body, Body::Offer { .. } | Body::Confirm { .. }) {
            let message = ContractMessage { id, round, body: Body::Cancel };
            self.out.push_back(CoordinatorOutput::Send(from.clone(), message));
        }
    }

    fn carry_out(&mut self, number: u64, event: Option<Event>, now: Instant) {
        match event {
            Some(Event::InForce) => {
                let Some(job) = self.jobs.get(&number) else { return };
                let (id, granted) = (job.id().clone(), job.granted());
                self.out.push_back(CoordinatorOutput::InForce { id, granted });
            }
            Some(Event::Upgraded(host, granted)) => {
                let id = JointId { host: self.host.clone(), number };
                self.out.push_back(CoordinatorOutput::Upgraded { id, host, granted });
            }
            Some(Event::Failed(refused)) => self.failed(number, refused, now),
            None => {}
        }
        self.track(number);
    }

    /// Records what a contract waits for, after every change of it.
    fn track(&mut self, number: u64) {
        self.wakeups.set(&number, self.jobs.get(&number).map(Job::next_wakeup));
    }

    fn failed(&mut self, number: u64, refused: Refused, now: Instant) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if matches!(job.stage(), Stage::BackingOff { .. }) {
            return;
        }
        job.cancel_all(&mut self.out);
        let (id, was_in_force) = (job.id().clone(), job.is_in_force());
        if let Some(at) = job.next_attempt(&refused.reason, now, &mut self.random) {
            return job.back_off(at);
        }
        self.jobs.remove(&number);
        self.out.push_back(match was_in_force {
            true => CoordinatorOutput::Ended { id, refused },
            false => CoordinatorOutput::Refused { id, refused },
        });
    }
}
