//! Outputs of the node that wait for the socket's thread: recorded under the node's lock, carried out later.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use qfabric_channel::{Notice, SinkId, SourceId};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::channel::LeaseId;
use qfabric_types::api::{Claim, LoanRate};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Bytes, Nanos};
use rustix::event::{EventfdFlags, eventfd};

use super::Fabric;
use crate::auth::Peer;
use crate::contracts::Contracts;
use crate::ecalls::Inbox;
use crate::ending::Ending;
use crate::net::LoanOrder;

/// Largest number of waiting notices; further ones are dropped and counted.
const NOTICES: usize = 4096;

/// A decision that applications are notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notification {
    pub channel: ChannelId,
    pub attribute: AttributeId,
    /// The host or application that the decision is about.
    pub subject: String,
    /// None: no policy decides this amount any more.
    pub amount: Option<i64>,
    pub audience: Audience,
    /// Only this user's applications are notified; none: those of all users.
    pub user: Option<u32>,
}

/// The applications of this host that are notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Those with a source on the channel.
    Sources,
    /// Those with a sink on it.
    Sinks,
    /// The application of this name in the group of the Q-channel.
    Member(Name),
}

/// A decision of a policy about a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adjusted {
    pub policy: Name,
    /// The user who answers for the policy: only contracts that this user may change are changed.
    pub peer: Peer,
    /// The number by which the policy knows the application.
    pub application: AppId,
    /// The Q-channel of its group and its name there; none: the number is the host's.
    pub member: Option<(ChannelId, Name)>,
    pub attribute: AttributeId,
    pub amount: i64,
}

/// A change of contracts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContractOrder {
    Adjust(Adjusted),
    /// The decisions of a policy end: those about the application with this number, or all.
    Withdraw(Name, Option<AppId>),
}

/// A report of this host that another host asked to postpone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delayed {
    /// Data channel of the host that asks.
    pub channel: ChannelId,
    pub attribute: AttributeId,
    pub name: String,
    pub by: Nanos,
}

/// A host that lends, with what it keeps beside the share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lender {
    pub host: Name,
    pub memory: Bytes,
    pub rate: Option<LoanRate>,
}

/// A message about a loan: from a manager to the broker, or from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LendingMessage {
    /// Keep these amounts for another host.
    Keep(LoanOrder),
    /// Cancel the loan.
    LetGo(Claim),
    /// Result of a request of this host: the lender, or none.
    Answered { request: u64, lender: Option<Lender> },
    /// An application has claimed the loan at the lender.
    Taken { request: u64, giver: Name },
}

/// Outputs that are recorded and not yet carried out.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Sinks with events in their queues; a sink is added once each time its queue stops being empty.
    pub ready: Vec<SinkId>,
    /// Sources that may submit again.
    pub writable: Vec<SourceId>,
    pub notices: VecDeque<Notice>,
    /// Decisions of managers about applications of this host: application, attribute, amount.
    pub applied: Vec<(AppId, AttributeId, i64)>,
    /// Decisions that applications are notified of.
    pub told: VecDeque<Notification>,
    /// Decisions about CPU time, and the ends of such decisions, in order.
    pub contracts: Vec<ContractOrder>,
    pub delayed: Vec<Delayed>,
    /// Messages about loans, in order.
    pub lent: VecDeque<LendingMessage>,
    /// Connections with more messages than one turn reads.
    pub unread: Vec<LeaseId>,
    /// Connections that have ended.
    pub over: Vec<LeaseId>,
    /// Number of notices that were dropped.
    pub dropped: u64,
}

impl Noted {
    fn is_empty(&self) -> bool {
        let Noted { ready, writable, notices, applied, told, contracts, delayed, lent, unread, over, .. } = self;
        let decided = [applied.is_empty(), told.is_empty(), contracts.is_empty(), delayed.is_empty(), lent.is_empty()];
        let heard = [ready.is_empty(), writable.is_empty(), notices.is_empty(), unread.is_empty(), over.is_empty()];
        !heard.contains(&false) && !decided.contains(&false)
    }
}

/// Filled by the threads that call the node, emptied by the socket's thread.
pub(super) struct Mailbox {
    noted: Lock<Noted, { rank::MAILBOX }>,
    /// Sinks with events from the frame that the receive thread is handling; that thread delivers them itself.
    arrived: Lock<Vec<SinkId>, { rank::MAILBOX }>,
    /// Delivers events; unset until the service has begun.
    fabric: OnceLock<Weak<Fabric>>,
    /// Receives messages about joint contracts.
    contracts: OnceLock<Arc<Contracts>>,
    /// Receives messages about ECalls.
    ecalls: OnceLock<Arc<Inbox>>,
    /// Receives messages about the kernel path; unset without one.
    path: OnceLock<Arc<Inbox>>,
    wake: Arc<OwnedFd>,
    ending: Ending,
}

impl Mailbox {
    pub(super) fn new(ending: &Ending) -> std::io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (noted, arrived, fabric) = (Lock::default(), Lock::default(), OnceLock::new());
        let (contracts, ecalls, path) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Mailbox { noted, arrived, fabric, contracts, ecalls, path, wake: Arc::new(wake), ending: ending.clone() })
    }

    /// From now on the receive thread delivers arriving events itself.
    pub(super) fn serve(&self, fabric: &Arc<Fabric>) {
        // Called once.
        let _ = self.fabric.set(Arc::downgrade(fabric));
    }

    /// From now on messages about joint contracts reach `contracts`.
    pub(super) fn hear_contracts(&self, contracts: &Arc<Contracts>) {
        // Called once.
        let _ = self.contracts.set(contracts.clone());
    }

    /// The joint contracts; `None` until the service answers.
    pub(super) fn contracts(&self) -> Option<&Arc<Contracts>> {
        self.contracts.get()
    }

    /// From now on messages about ECalls reach `inbox`.
    pub(super) fn hear_ecalls(&self, inbox: &Arc<Inbox>) {
        // Called once.
        let _ = self.ecalls.set(inbox.clone());
    }

    /// The inbox for messages about ECalls; `None` until the service answers.
    pub(super) fn ecalls(&self) -> Option<&Arc<Inbox>> {
        self.ecalls.get()
    }

    /// From now on messages about the kernel path reach `inbox`.
    pub(super) fn hear_path(&self, inbox: &Arc<Inbox>) {
        // Called once.
        let _ = self.path.set(inbox.clone());
    }

    /// The inbox for messages about the kernel path; `None`: this host has none.
    pub(super) fn path(&self) -> Option<&Arc<Inbox>> {
        self.path.get()
    }

    pub(super) fn fabric(&self) -> Option<Arc<Fabric>> {
        self.fabric.get()?.upgrade()
    }

    /// A frame has brought an event for the sink.
    pub(super) fn ready_by_arrival(&self, sink: SinkId) {
        match self.fabric.get() {
            Some(_) => self.arrived.lock().push(sink),
            None => self.ready(sink),
        }
    }

    /// Moves the sinks with events from frames into `into`, which is empty; its memory is used for the next ones.
    pub(super) fn take_arrived(&self, into: &mut Vec<SinkId>) {
        std::mem::swap(&mut *self.arrived.lock(), into);
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Readable when an output is recorded.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Wakes the thread, for callers that must not wait for the mailbox's lock.
    pub(super) fn waker(&self) -> Arc<OwnedFd> {
        self.wake.clone()
    }

    pub(super) fn nudge(&self) {
        // If the counter is full, the descriptor is readable already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Moves all outputs into `into`, which is emptied first so that its memory is used again.
    pub(super) fn take(&self, into: &mut Noted) {
        // If there is nothing to read, the wake-up had no reason.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        into.ready.clear();
        into.writable.clear();
        into.notices.clear();
        into.applied.clear();
        into.told.clear();
        into.contracts.clear();
        into.delayed.clear();
        into.lent.clear();
        into.unread.clear();
        into.over.clear();
        std::mem::swap(&mut *self.noted.lock(), into);
    }

    /// A thread of the network cannot continue.
    pub(super) fn failed(&self, thread: &'static str, message: String) {
        self.ending.failed(thread, message);
    }

    pub(super) fn ready(&self, sink: SinkId) {
        self.note(|noted| noted.ready.push(sink));
    }

    pub(super) fn writable(&self, source: SourceId) {
        self.note(|noted| noted.writable.push(source));
    }

    pub(super) fn unread(&self, lease: LeaseId) {
        // Recorded once, however often the connection wakes this service: its messages are read in turns.
        self.note(|noted| match noted.unread.contains(&lease) {
            true => {}
            false => noted.unread.push(lease),
        });
    }

    pub(super) fn over(&self, lease: LeaseId) {
        self.note(|noted| noted.over.push(lease));
    }

    pub(super) fn apply(&self, application: AppId, attribute: AttributeId, amount: i64) {
        self.note(|noted| match noted.applied.len() < NOTICES {
            true => noted.applied.push((application, attribute, amount)),
            false => noted.dropped += 1,
        });
    }

    pub(super) fn tell(&self, told: Notification) {
        self.note(|noted| match noted.told.len() < NOTICES {
            true => noted.told.push_back(told),
            false => noted.dropped += 1,
        });
    }

    pub(super) fn adjust(&self, adjusted: Adjusted) {
        self.note(|noted| match noted.contracts.len() < NOTICES {
            true => noted.contracts.push(ContractOrder::Adjust(adjusted)),
            false => noted.dropped += 1,
        });
    }

    /// Ends a policy's decisions about the contract of an application, or about all. Never dropped: it takes the place of
    /// those that wait.
    pub(super) fn withdraw(&self, policy: &Name, application: Option<AppId>) {
        let is_of = |of: &Name, about: Option<AppId>| of == policy && (application.is_none() || application == about);
        self.note(|noted| {
            noted.contracts.retain(|order| match order {
                ContractOrder::Adjust(one) => !is_of(&one.policy, Some(one.application)),
                ContractOrder::Withdraw(of, about) => !is_of(of, *about),
            });
            noted.contracts.push(ContractOrder::Withdraw(policy.clone(), application));
        });
    }

    pub(super) fn delay(&self, delayed: Delayed) {
        self.note(|noted| match noted.delayed.len() < NOTICES {
            true => noted.delayed.push(delayed),
            false => noted.dropped += 1,
        });
    }

    pub(super) fn lend(&self, lent: LendingMessage) {
        self.note(|noted| match noted.lent.len() < NOTICES {
            true => noted.lent.push_back(lent),
            false => noted.dropped += 1,
        });
    }

    pub(super) fn notice(&self, notice: Notice) {
        if let (Notice::HostVanished(host), Some(inbox)) = (&notice, self.path()) {
            // At once: the host's next messages are of its next meeting.
            inbox.gone(host);
        }
        self.note(|noted| match noted.notices.len() < NOTICES {
            true => noted.notices.push_back(notice),
            false => noted.dropped += 1,
        });
    }

    /// Records outputs; one wake-up is enough for all that are recorded before the thread looks.
    fn note(&self, note: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted.lock();
        let quiet = noted.is_empty();
        note(&mut noted);
        drop(noted);
        if quiet {
            self.nudge();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn mailbox() -> Mailbox {
        Mailbox::new(&Ending::new().unwrap()).unwrap()
    }

    fn readable(mailbox: &Mailbox) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&mailbox.fd(), PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn the_thread_is_woken_once_and_gets_everything() {
        let (mailbox, mut noted) = (mailbox(), Noted::default());
        assert!(!readable(&mailbox));
        mailbox.ready(SinkId(1));
        mailbox.ready(SinkId(2));
        mailbox.writable(SourceId(3));
        assert!(readable(&mailbox));
        mailbox.take(&mut noted);
        assert_eq!((noted.ready.len(), noted.writable.len()), (2, 1));
        assert!(!readable(&mailbox));
        mailbox.ready(SinkId(4));
        mailbox.take(&mut noted);
        assert_eq!(noted.ready, [SinkId(4)]);
        assert!(noted.writable.is_empty(), "outputs that were carried out do not come again");
    }

    #[test]
    fn notices_beyond_the_bound_are_counted() {
        let (mailbox, mut noted) = (mailbox(), Noted::default());
        (0..NOTICES + 3).for_each(|_| mailbox.notice(Notice::HostVanished("a".parse().unwrap())));
        mailbox.take(&mut noted);
        assert_eq!((noted.notices.len(), noted.dropped), (NOTICES, 3));
    }
}
