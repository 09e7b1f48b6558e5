//! The thread of contracts. It owns coordinator, participant and book, and reads one clock. Orders to the brokers are
//! carried out here, one after the other, because they may wait for the control thread and for the kernel.
//!
//! It has the real-time priority of the threads that carry events between hosts. It has no budget (SCHED_DEADLINE),
//! because it waits for others.

mod asking;
mod outputs;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use qfabric_broker::{HeldContract, Holds};
use qfabric_host::manager::contracts::{
    ContractMessage, Coordinator, NotReadable, Participant, Reason, Refused, Timing,
};
use qfabric_linux::clock;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointContract, JointHolding, JointId, JointRequest};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, LinkEnd, Nanos, ThreadId};
use tokio::sync::oneshot;

use super::brokers::{Brokers, Holder};
use super::calls::{Call, ContractsReport, NotMade, WAITING};
use super::config::DefaultConsent;
use super::consents::Consents;
use super::lease::Lease;
use super::records::{MOST_PER_USER, Record, Records};
use super::{Contracts, JointConfig, problems};
use crate::auth::{Peer, places_for};
use crate::channels::Channels;
use crate::control::Requests;
use crate::ending::{Ending, Running};
use crate::memory::Memory;
use crate::net::{Links, Net};
use crate::problem;

/// The parts of the service that contracts use.
pub(crate) struct Parts {
    /// The name of this host.
    pub host: Name,
    pub requests: Requests,
    pub memory: Arc<Memory>,
    pub net: Arc<Net>,
    pub channels: Arc<Channels>,
    pub config: JointConfig,
    /// Real-time priority (SCHED_FIFO) of the thread; 0: none.
    pub priority: u32,
}

/// Interval at which partly satisfied contracts are tried again, because applications that leave free capacity, too.
const RETRY: Nanos = Nanos::from_millis(1_000);

/// Longest sleep.
const LONGEST: Duration = Duration::from_secs(60);

/// Starts the thread, and returns what asks it.
pub(crate) fn start_thread(parts: Parts, ending: &Ending) -> std::io::Result<(Running, Arc<Contracts>)> {
    let (calls, receiver) = sync_channel(WAITING);
    let (host, priority, (dropped, leases)) = (parts.host.clone(), parts.priority, Default::default());
    let contracts = Arc::new(Contracts { host, calls: calls.clone(), dropped, leases });
    parts.channels.hear_contracts(&contracts);
    let runner = Runner::new(parts);
    let run = move || {
        runner.enter(priority);
        runner.run(&receiver);
    };
    // Fails if the thread has ended.
    let thread = ending.run("qf-contracts", run, move || _ = calls.send(Call::Stop))?;
    Ok((thread, contracts))
}

struct Runner {
    host: Name,
    coordinator: Coordinator,
    participant: Participant,
    book: Holds<Brokers>,
    records: Records,
    consents: Consents,
    channels: Arc<Channels>,
    retry_at: Instant,
    report: ContractsReport,
}

/// A number that other processes cannot guess: a keyed hash, whose key comes from the kernel's random numbers.
fn random() -> u64 {
    RandomState::new().hash_one(clock::now().get())
}

impl Runner {
    fn new(parts: Parts) -> Runner {
        let Parts { host, requests, memory, net, channels, config, .. } = parts;
        let mut participant = Participant::new(host.clone());
        participant.set_caps(config.caps());
        participant.set_consent_time(config.consent_time);
        let book = Holds::over(Brokers { requests, memory, links: Links::of(&net), groups: Default::default() });
        Runner {
            coordinator: Coordinator::new(host.clone(), Timing::default(), random()),
            participant,
            host,
            book,
            records: Records::default(),
            consents: Consents::new(config.applications, config.consent == DefaultConsent::Accept),
            channels,
            retry_at: Instant::NEVER,
            report: ContractsReport::default(),
        }
    }

    /// Gives the calling thread its real-time priority.
    fn enter(&self, priority: u32) {
        let fifo = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) };
        let given = if priority > 0 { fifo.give(ThreadId(0)) } else { Ok(()) };
        let Err(error) = given else { return };
        match self.channels.makes_contracts() {
            true => tracing::warn!(%error, priority, "contracts with other hosts wait behind other work"),
            false => tracing::debug!(%error, priority, "contracts wait behind other work"),
        }
    }

    fn run(mut self, calls: &Receiver<Call>) {
        loop {
            match calls.recv_timeout(self.sleep(clock::now())) {
                Ok(Call::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(call) => self.handle(call, clock::now()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.wake(clock::now());
            self.drain();
        }
        self.end();
    }

    /// Ends the contracts that users of this host asked for, and frees at once what this host holds.
    fn end(&mut self) {
        let own: Vec<JointId> = self.records.0.keys().cloned().collect();
        own.iter().for_each(|id| _ = self.coordinator.end(id));
        self.drain();
        self.book.expire(Instant::NEVER);
    }

    fn sleep(&self, now: Instant) -> Duration {
        let own = [self.coordinator.next_wakeup(), self.participant.next_wakeup(), self.book.next_wakeup()];
        let next = own.into_iter().flatten().chain([self.retry_at]).min();
        next.map_or(LONGEST, |next| Duration::from_nanos(next.since(now).get()).min(LONGEST))
    }

    fn wake(&mut self, now: Instant) {
        let is_due = |next: Option<Instant>| next.is_some_and(|next| next <= now);
        if is_due(self.coordinator.next_wakeup()) {
            self.coordinator.wake(now);
        }
        if is_due(self.participant.next_wakeup()) {
            self.participant.wake(now);
            self.drain();
        }
        if is_due(self.book.next_wakeup()) {
            self.book.expire(now);
        }
        if self.retry_at <= now {
            self.participant.freed(now);
        }
        let next = if self.retry_at <= now { now + RETRY } else { self.retry_at.min(now + RETRY) };
        self.retry_at = if self.book.is_partial() { next } else { Instant::NEVER };
    }

    fn handle(&mut self, call: Call, now: Instant) {
        // An answer without a receiver is dropped.
        match call {
            Call::Apply { peer, groups, request, lease, reply } => {
                self.apply(peer, groups, *request, lease, reply, now);
            }
            Call::List { peer, reply } => {
                let own = self.records.in_force().filter(|(_, record)| peer.may_touch(record.owner));
                _ = reply.send(own.map(|(id, record)| record.shown(id)).collect());
            }
            Call::End { peer, id, reply } => {
                let ended = self.end_contract(peer, &id);
                // The parts of this host are free before the answer.
                self.drain();
                _ = reply.send(ended);
            }
            Call::Rate { id, end, reply } => _ = reply.send(self.rate(&id, &end)),
            Call::NextOffer { peer, id, waiting, reply } => {
                _ = reply.send(self.next_offer(peer, &id, waiting, now));
            }
            Call::AnswerOffer { peer, id, host, is_accepted, reply } => {
                _ = reply.send(self.answer_offer(peer, &id, &host, is_accepted, now));
            }
            Call::Consent(call) => self.consent(call, now),
            Call::Configure { config, reply } => {
                self.configure(*config, now);
                _ = reply.send(());
            }
            Call::Look { reply } => _ = reply.send(self.look(now)),
            Call::Count { reply } => _ = reply.send(self.count()),
            Call::HolderEnded(lease) => self.holder_ended(lease, now),
            Call::Heard(host, message) => self.heard(&host, message, now),
            Call::Gone(host) => {
                self.coordinator.gone(&host, now);
                self.participant.gone(&host, now);
            }
            Call::Stop => {}
        }
    }

    fn apply(
        &mut self,
        peer: Peer,
        groups: Vec<u32>,
        request: JointRequest,
        lease: Option<Lease>,
        reply: oneshot::Sender<Result<JointContract, NotMade>>,
        now: Instant,
    ) {
        let begun = self.check(peer, &request).and_then(|()| {
            let full = |_| problems::host_full(Coordinator::MAX_CONTRACTS).into();
            self.coordinator.apply(random(), peer.owner, &request, now).map_err(full)
        });
        match begun {
            Ok(id) => {
                self.keep_groups(&id, groups);
                self.records.0.insert(id, Record::new(peer.owner, request, lease, reply));
            }
            Err(refused) => {
                self.report.refused += 1;
                _ = reply.send(Err(refused));
            }
        }
    }

    /// Keeps the groups of the program that asks for a contract, as long as there is a record of the contract.
    fn keep_groups(&mut self, id: &JointId, groups: Vec<u32>) {
        let records = &self.records.0;
        let all = &mut self.book.brokers_mut().groups;
        all.retain(|id, _| records.contains_key(id));
        all.insert(id.clone(), groups);
    }

    /// Refuses what no attempt could change.
    fn check(&self, peer: Peer, request: &JointRequest) -> Result<(), NotMade> {
        if self.records.is_full_for(peer.owner.uid) {
            return Err(problems::too_many(peer.owner.uid, MOST_PER_USER).into());
        }
        let most = places_for(peer.owner.uid, Coordinator::MAX_CONTRACTS);
        if self.records.0.len() >= most {
            return Err(problems::host_full(most).into());
        }
        for part in request.parts().iter().filter(|part| part.host != self.host) {
            if !self.channels.makes_contracts() {
                return Err(problems::only_here(&part.host, &self.host).into());
            }
            if !self.channels.takes_contracts(&part.host) {
                let refused = Refused { host: part.host.clone(), reason: Reason::Silent };
                return Err(NotMade::Refused(Box::new(refused.answer())));
            }
        }
        Ok(())
    }

    fn end_contract(&mut self, peer: Peer, id: &JointId) -> Result<(), Problem> {
        self.own_contract(peer, id)?;
        self.records.0.remove(id);
        self.coordinator.end(id);
        Ok(())
    }

    /// A contract in force that the peer may change.
    fn own_contract(&mut self, peer: Peer, id: &JointId) -> Result<&mut Record, Problem> {
        let record = self.records.0.get_mut(id).filter(|record| record.is_in_force());
        let record = record.ok_or_else(|| problems::no_such_contract(id))?;
        match record.owner {
            owner if peer.may_touch(owner) => Ok(record),
            owner => Err(problem::not_your_contract(id, owner.uid, peer.owner.uid)),
        }
    }

    /// A message that names this host as its sender is not believed: the user in it counts here.
    fn heard(&mut self, host: &Name, message: Result<ContractMessage, NotReadable>, now: Instant) {
        match message {
            Ok(_) if *host == self.host => {}
            Ok(message) => self.receive(host, message, now),
            Err(NotReadable::Version { number, .. }) => self.participant.not_readable(host, number),
            Err(error) => tracing::debug!(%host, %error, "a message about a contract cannot be read"),
        }
    }

    fn receive(&mut self, from: &Name, message: ContractMessage, now: Instant) {
        message.deliver(from, &mut self.coordinator, &mut self.participant, now);
    }

    /// The rate that a contract in force has on a link.
    fn rate(&self, id: &JointId, end: &LinkEnd) -> Option<HeldRateId> {
        self.book.get(id).filter(|held| held.is_committed)?.holder.links.get(end).copied()
    }

    fn look(&self, now: Instant) -> Vec<JointHolding> {
        let holding = |(id, held): (&JointId, &HeldContract<Holder>)| JointHolding {
            initiator: id.host.clone(),
            uid: held.owner.uid,
            resources: held.held().clone(),
            in_force: held.is_committed,
            left_ns: held.until.since(now),
        };
        self.book.entries().map(holding).collect()
    }

    fn count(&self) -> ContractsReport {
        let (in_force, parts) = (self.records.in_force().count(), self.book.entries().len());
        ContractsReport { in_force, parts, expired: self.book.expired(), ..self.report }
    }
}
