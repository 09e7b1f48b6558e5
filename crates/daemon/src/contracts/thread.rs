//! The thread of contracts. It owns coordinator, participant and book, and reads one clock. Orders to the brokers are
//! carried out here, one after the other, because they may wait for the control thread and for the kernel.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_host::manager::contracts::{
    Answer, ContractMessage, Coordinator, CoordinatorOutput, InitiatorCaps, NotReadable, Order, Participant,
    ParticipantOutput, Reason, Refused, Timing,
};
use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointContract, JointHolding, JointId, JointRequest};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner};
use tokio::sync::oneshot;

use super::book::Book;
use super::brokers::Brokers;
use super::records::{MOST_PER_USER, Record, Records};
use super::{Call, Contracts, ContractsReport, NotMade, WAITING, problems};
use crate::auth::Peer;
use crate::channels::Channels;
use crate::control::Requests;
use crate::ending::Ending;
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
    /// Caps on the contracts of other hosts.
    pub caps: InitiatorCaps,
}

/// Interval at which partly satisfied contracts are tried again, because applications that leave free capacity, too.
const RETRY: Nanos = Nanos::from_millis(1_000);

/// Longest sleep.
const LONGEST: Duration = Duration::from_secs(60);

/// The running thread; ends when dropped.
pub(crate) struct ContractsThread {
    calls: SyncSender<Call>,
    thread: Option<JoinHandle<()>>,
}

impl ContractsThread {
    pub(crate) fn start(parts: Parts, ending: &Ending) -> std::io::Result<(ContractsThread, Arc<Contracts>)> {
        let (calls, receiver) = sync_channel(WAITING);
        let (host, dropped) = (parts.host.clone(), AtomicU64::default());
        let contracts = Arc::new(Contracts { host, calls: calls.clone(), dropped });
        parts.channels.hear_contracts(&contracts);
        let runner = Runner::new(parts);
        let thread = ending.spawn("qf-contracts", move || runner.run(&receiver))?;
        Ok((ContractsThread { calls, thread: Some(thread) }, contracts))
    }
}

impl Drop for ContractsThread {
    fn drop(&mut self) {
        // Fails if the thread has ended.
        let _ = self.calls.send(Call::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was logged by the thread itself.
            let _ = thread.join();
        }
    }
}

struct Runner {
    host: Name,
    coordinator: Coordinator,
    participant: Participant,
    book: Book,
    records: Records,
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
        let Parts { host, requests, memory, net, channels, caps } = parts;
        let mut participant = Participant::new(host.clone());
        participant.set_caps(caps);
        let book = Book::new(Brokers { requests, memory, links: Links::of(&net) });
        Runner {
            coordinator: Coordinator::new(host.clone(), Timing::default(), random()),
            participant,
            host,
            book,
            records: Records::default(),
            channels,
            retry_at: Instant::NEVER,
            report: ContractsReport::default(),
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
            Call::Apply { peer, request, reply } => self.apply(peer, *request, reply, now),
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
            Call::Rate { id, end, reply } => _ = reply.send(self.book.rate(&id, &end)),
            Call::Look { reply } => _ = reply.send(self.look(now)),
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
        request: JointRequest,
        reply: oneshot::Sender<Result<JointContract, NotMade>>,
        now: Instant,
    ) {
        let begun = self.check(peer, &request).and_then(|()| {
            let full = |_| problems::host_full(Coordinator::MAX_CONTRACTS).into();
            self.coordinator.apply(random(), peer.owner, &request, now).map_err(full)
        });
        match begun {
            Ok(id) => {
                let granted = std::collections::BTreeMap::new();
                let record = Record { owner: peer.owner, request, granted, reply: Some(reply) };
                self.records.0.insert(id, record);
            }
            Err(refused) => {
                self.report.refused += 1;
                _ = reply.send(Err(refused));
            }
        }
    }

    /// Refuses what no attempt could change.
    fn check(&self, peer: Peer, request: &JointRequest) -> Result<(), NotMade> {
        if self.records.is_full_for(peer.owner.uid) {
            return Err(problems::too_many(peer.owner.uid, MOST_PER_USER).into());
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
        let record = self.records.0.get(id).filter(|record| record.is_in_force());
        let owner = record.ok_or_else(|| problems::no_such_contract(id))?.owner;
        if !peer.may_touch(owner) {
            return Err(problem::not_your_contract(id, owner.uid, peer.owner.uid));
        }
        self.records.0.remove(id);
        self.coordinator.end(id);
        Ok(())
    }

    fn heard(&mut self, host: &Name, message: Result<ContractMessage, NotReadable>, now: Instant) {
        match message {
            Ok(message) => self.receive(host, message, now),
            Err(NotReadable::Version { number, .. }) => self.participant.not_readable(host, number),
            Err(error) => tracing::debug!(%host, %error, "a message about a contract cannot be read"),
        }
    }

    /// Both sides ignore messages for the other one.
    fn receive(&mut self, from: &Name, message: ContractMessage, now: Instant) {
        self.coordinator.receive(from, message.clone(), now);
        self.participant.receive(from, message, now);
    }

    /// Carries out all outputs, and those that they cause.
    fn drain(&mut self) {
        loop {
            if let Some(output) = self.coordinator.poll() {
                self.carry_out(output);
            } else if let Some(output) = self.participant.poll() {
                self.carry_out_part(output);
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, output: CoordinatorOutput) {
        match output {
            CoordinatorOutput::Send(to, message) => self.send(&to, message),
            CoordinatorOutput::InForce { id, granted } => self.made(&id, granted),
            CoordinatorOutput::Refused { id, refused } => {
                self.report.refused += 1;
                tracing::info!(contract = %id, %refused, "a contract is refused");
                if let Some(reply) = self.records.0.remove(&id).and_then(|record| record.reply) {
                    _ = reply.send(Err(NotMade::Refused(Box::new(refused.answer()))));
                }
            }
            // The user asked for this amount, so an upgrade is accepted.
            CoordinatorOutput::Upgrade { id, host, .. } => self.coordinator.upgrade(&id, &host, clock::now()),
            CoordinatorOutput::Upgraded { id, host, granted } => {
                self.report.upgraded += 1;
                if let Some(record) = self.records.0.get_mut(&id) {
                    record.granted.insert(host, granted);
                }
            }
            CoordinatorOutput::Ended { id, refused } => {
                self.report.lost += 1;
                tracing::warn!(contract = %id, %refused, "a contract in force has ended");
                self.records.0.remove(&id);
            }
        }
    }

    fn made(&mut self, id: &JointId, granted: std::collections::BTreeMap<Name, qfabric_types::Resources>) {
        let Some(record) = self.records.0.get_mut(id) else { return };
        record.granted = granted;
        let shown = record.shown(id);
        if record.reply.take().is_some_and(|reply| reply.send(Ok(shown)).is_err()) {
            // Nobody waits any more, and nobody would end the contract.
            self.records.0.remove(id);
            self.coordinator.end(id);
            return;
        }
        self.report.made += 1;
        tracing::info!(contract = %id, "a contract is in force");
    }

    fn carry_out_part(&mut self, output: ParticipantOutput) {
        match output {
            ParticipantOutput::Send(to, message) => self.send(&to, message),
            ParticipantOutput::Order(order) => self.order(order),
            // No application of this host can be asked yet.
            ParticipantOutput::Consent { id, round, .. } => {
                self.participant.consented(&id, round, false, clock::now());
            }
            ParticipantOutput::InForce { .. } | ParticipantOutput::Ended { .. } => {}
        }
    }

    fn order(&mut self, order: Order) {
        let now = clock::now();
        let answer = match order {
            Order::Hold { round, request } => {
                let (id, owner) = (request.id.clone(), self.owner(&request.id, request.uid));
                Answer::Held { id, round, result: self.book.hold(request, owner, now) }
            }
            Order::Commit { id, round, step, accepted, until } => {
                let result = self.book.commit(&id, &accepted, until, now);
                Answer::Committed { id, round, step, result }
            }
            Order::Grow { id, round, until } => {
                let whole = self.book.grow(&id, until, now);
                Answer::Grown { id, round, whole }
            }
            Order::Release { id } => return self.book.release(&id, now),
        };
        self.participant.answered(answer, clock::now());
    }

    /// Who answers for a part on this host.
    fn owner(&self, id: &JointId, uid: u32) -> Owner {
        let own = self.records.0.get(id).map(|record| record.owner);
        own.filter(|owner| owner.uid == uid).unwrap_or(Owner::NOBODY)
    }

    fn send(&mut self, to: &Name, message: ContractMessage) {
        if *to == self.host {
            let host = self.host.clone();
            return self.receive(&host, message, clock::now());
        }
        self.channels.tell_contract(to, &message);
    }

    fn look(&self, now: Instant) -> (Vec<JointHolding>, ContractsReport) {
        let holdings = self.book.holdings(now);
        let (in_force, parts) = (self.records.in_force().count(), holdings.len());
        (holdings, ContractsReport { in_force, parts, expired: self.book.expired, ..self.report })
    }
}
