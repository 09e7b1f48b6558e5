//! What the node has to say, until the socket's thread has the time: noted under the node's lock, carried out later.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use qfabric_channel::{Notice, SinkId, SourceId};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::Claim;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Instant, Nanos};
use rustix::event::{EventfdFlags, eventfd};

use super::Fabric;
use crate::auth::Peer;
use crate::ending::Ending;

/// Notices that wait; the next one is dropped and counted.
const NOTICES: usize = 4096;

/// What applications are to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notification {
    pub channel: ChannelId,
    pub attribute: AttributeId,
    /// For which host or application.
    pub subject: String,
    /// None: nobody decides it any more.
    pub amount: Option<i64>,
    pub audience: Audience,
}

/// Which of this host's applications are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Those with a source on the channel.
    Sources,
    /// Those with a sink on it.
    Sinks,
    /// The one of that name in the group that the Q-channel is of; what it has under reservation changes, too.
    Member(Name),
}

/// What is to change of a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adjusted {
    /// Who answers for it.
    pub peer: Peer,
    pub application: AppId,
    pub attribute: AttributeId,
    pub amount: i64,
}

/// A report of this host that is to be sent so much later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delayed {
    /// The data channel of the host that asks.
    pub channel: ChannelId,
    pub attribute: AttributeId,
    pub name: String,
    pub by: Nanos,
}

/// What a manager wants of the broker, or has heard of other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LendingMessage {
    /// So much is to be kept for another host until then.
    Keep { claim: Claim, amount: i64, until: Instant },
    /// It need not be kept any more.
    LetGo(Claim),
    /// What became of a request of this host: who keeps it; none: nobody.
    Answered { request: u64, giver: Option<Name> },
    /// What that host kept for a request of this host is an application's there.
    Taken { request: u64, giver: Name },
}

/// What was noted and not carried out yet.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Sinks with something in their queues. Each once for each time its queue was empty.
    pub ready: Vec<SinkId>,
    /// Sources that may try again.
    pub writable: Vec<SourceId>,
    /// What happened.
    pub notices: VecDeque<Notice>,
    /// What managers decided about applications of this host: which, what, how much.
    pub applied: Vec<(AppId, AttributeId, i64)>,
    /// What they decided that applications may adapt to.
    pub told: VecDeque<Notification>,
    /// What they decided about CPU time.
    pub adjusted: Vec<Adjusted>,
    /// Reports that are to be sent later.
    pub delayed: Vec<Delayed>,
    /// What hosts lend to each other, in order.
    pub lent: VecDeque<LendingMessage>,
    /// Connections that have more to say than was heard in one turn.
    pub unread: Vec<LeaseId>,
    /// Connections that have ended.
    pub over: Vec<LeaseId>,
    /// Notices that there was no room for.
    pub dropped: u64,
}

impl Noted {
    fn is_empty(&self) -> bool {
        let Noted { ready, writable, notices, applied, told, adjusted, delayed, lent, unread, over, .. } = self;
        let decided = [applied.is_empty(), told.is_empty(), adjusted.is_empty(), delayed.is_empty(), lent.is_empty()];
        let heard = [ready.is_empty(), writable.is_empty(), notices.is_empty(), unread.is_empty(), over.is_empty()];
        !heard.contains(&false) && !decided.contains(&false)
    }
}

/// Written by whoever calls the node, emptied by the socket's thread.
pub(super) struct Mailbox {
    noted: Lock<Noted, { rank::MAILBOX }>,
    /// Sinks with something in their queues since a frame that the receive thread handles: it hands over itself.
    arrived: Lock<Vec<SinkId>, { rank::MAILBOX }>,
    /// Who hands over; nobody before the service has begun.
    fabric: OnceLock<Weak<Fabric>>,
    wake: Arc<OwnedFd>,
    ending: Ending,
}

impl Mailbox {
    pub fn new(ending: &Ending) -> std::io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (noted, arrived, fabric) = (Lock::default(), Lock::default(), OnceLock::new());
        Ok(Mailbox { noted, arrived, fabric, wake: Arc::new(wake), ending: ending.clone() })
    }

    /// From now on the receive thread hands over by itself.
    pub fn serve(&self, fabric: &Arc<Fabric>) {
        // Called once.
        let _ = self.fabric.set(Arc::downgrade(fabric));
    }

    pub fn fabric(&self) -> Option<Arc<Fabric>> {
        self.fabric.get()?.upgrade()
    }

    /// A frame has brought something for the sink.
    pub fn ready_by_arrival(&self, sink: SinkId) {
        match self.fabric.get() {
            Some(_) => self.arrived.lock().push(sink),
            None => self.ready(sink),
        }
    }

    /// What frames have brought.
    pub fn take_arrived(&self) -> Vec<SinkId> {
        std::mem::take(&mut *self.arrived.lock())
    }

    /// The memory is used again.
    pub fn keep_for_arrivals(&self, emptied: Vec<SinkId>) {
        let mut arrived = self.arrived.lock();
        if arrived.capacity() == 0 {
            *arrived = emptied;
        }
    }

    /// How the service ends.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Readable when something was noted.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What wakes the thread, for who must not wait for the mailbox itself.
    pub fn waker(&self) -> Arc<OwnedFd> {
        self.wake.clone()
    }

    /// Wakes the thread.
    pub fn nudge(&self) {
        // Full: then it is readable already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// All of it; `into` is emptied first, and its memory used again.
    pub fn take(&self, into: &mut Noted) {
        // Nothing in it: somebody else nudged without a reason.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        into.ready.clear();
        into.writable.clear();
        into.notices.clear();
        into.applied.clear();
        into.told.clear();
        into.adjusted.clear();
        into.delayed.clear();
        into.lent.clear();
        into.unread.clear();
        into.over.clear();
        std::mem::swap(&mut *self.noted.lock(), into);
    }

    /// A thread of the network cannot go on.
    pub fn failed(&self, thread: &'static str, message: String) {
        self.ending.failed(thread, message);
    }

    pub fn ready(&self, sink: SinkId) {
        self.note(|noted| noted.ready.push(sink));
    }

    pub fn writable(&self, source: SourceId) {
        self.note(|noted| noted.writable.push(source));
    }

    pub fn unread(&self, lease: LeaseId) {
        // Once, however often it wakes this service: what it has to say is heard in turns.
        self.note(|noted| match noted.unread.contains(&lease) {
            true => {}
            false => noted.unread.push(lease),
        });
    }

    pub fn over(&self, lease: LeaseId) {
        self.note(|noted| noted.over.push(lease));
    }

    pub fn apply(&self, application: AppId, attribute: AttributeId, amount: i64) {
        self.note(|noted| match noted.applied.len() < NOTICES {
            true => noted.applied.push((application, attribute, amount)),
            false => noted.dropped += 1,
        });
    }

    pub fn tell(&self, told: Notification) {
        self.note(|noted| match noted.told.len() < NOTICES {
            true => noted.told.push_back(told),
            false => noted.dropped += 1,
        });
    }

    pub fn adjust(&self, adjusted: Adjusted) {
        self.note(|noted| match noted.adjusted.len() < NOTICES {
            true => noted.adjusted.push(adjusted),
            false => noted.dropped += 1,
        });
    }

    pub fn delay(&self, delayed: Delayed) {
        self.note(|noted| match noted.delayed.len() < NOTICES {
            true => noted.delayed.push(delayed),
            false => noted.dropped += 1,
        });
    }

    pub fn lend(&self, lent: LendingMessage) {
        self.note(|noted| match noted.lent.len() < NOTICES {
            true => noted.lent.push_back(lent),
            false => noted.dropped += 1,
        });
    }

    pub fn notice(&self, notice: Notice) {
        self.note(|noted| match noted.notices.len() < NOTICES {
            true => noted.notices.push_back(notice),
            false => noted.dropped += 1,
        });
    }

    /// One wake-up for whatever is noted until the thread has looked.
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
        assert!(noted.writable.is_empty(), "what was carried out does not come again");
    }

    #[test]
    fn notices_beyond_the_bound_are_counted() {
        let (mailbox, mut noted) = (mailbox(), Noted::default());
        (0..NOTICES + 3).for_each(|_| mailbox.notice(Notice::HostVanished("a".parse().unwrap())));
        mailbox.take(&mut noted);
        assert_eq!((noted.notices.len(), noted.dropped), (NOTICES, 3));
    }
}
