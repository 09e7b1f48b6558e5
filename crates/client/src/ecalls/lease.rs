//! The connection to `ecalls.sock`: the lease of an ECalls session, over which events are raised and notices arrive.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use qfabric_shm::{Process, fds};
use qfabric_types::api::ecalls::{LeaseId, ServiceId, SubscriptionId};
use qfabric_types::ecalls_wire::{DescriptorSet, FromClient, FromDaemon, MAX_MESSAGE, RaiseRequest, VERSION};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::error::ClientError;
use crate::sync::lock;

/// Largest number of unread notices; a further notice replaces the oldest.
const WAITING: usize = 256;

/// A message of the daemon that is not an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A call of a service of this process; answer with [`super::Ecalls::reply`].
    Call {
        /// Number of the call, for the answer.
        call: u64,
        /// Number of the called service.
        service: ServiceId,
        /// Process that calls.
        pid: i32,
        /// Data of the request.
        data: Vec<u8>,
    },
    /// A handler faulted too often, and the daemon removed it.
    TakenOut {
        /// The subscription that used the handler.
        subscription: SubscriptionId,
        /// The number of faults, the limit, and the last fault.
        why: String,
    },
    /// The daemon ended a subscription.
    Ended {
        /// Number of the subscription.
        subscription: SubscriptionId,
        /// The cause.
        why: String,
    },
}

#[derive(Debug)]
pub(super) struct Lease {
    socket: OwnedFd,
    /// An eventfd, readable while a notice waits in the inbox.
    waiting: OwnedFd,
    /// An epoll, readable while `socket` or `waiting` is.
    news: OwnedFd,
    path: PathBuf,
    patience: Duration,
    process: Process,
    id: LeaseId,
    inbox: Mutex<Inbox>,
}

#[derive(Debug)]
struct Inbox {
    notices: VecDeque<Notice>,
    buffer: Vec<u8>,
    /// Answers that are still to come, though their callers have given up. The daemon answers in the order of the requests.
    owed: usize,
}

/// An answer of the daemon.
enum Answer {
    Welcome(LeaseId),
    Descriptors(DescriptorSet, Vec<OwnedFd>),
    Refused(String),
}

impl Lease {
    /// Connects and receives the number of the lease.
    pub(super) fn open(path: &Path, patience: Duration) -> Result<Lease, ClientError> {
        let broken = |error: io::Error| lost(path, &error.to_string());
        let process = Process::current().map_err(ClientError::unnumbered)?;
        let socket = fds::connect(path, patience).map_err(broken)?;
        let (waiting, news) = news_of(&socket).map_err(broken)?;
        let inbox = Inbox { notices: VecDeque::new(), buffer: vec![0; MAX_MESSAGE], owed: 0 }.into();
        let mut lease = Lease { socket, waiting, news, path: path.to_owned(), patience, process, id: 0, inbox };
        match lease.ask(&FromClient::Hello { version: VERSION }, None)? {
            Answer::Welcome(id) => lease.id = id,
            Answer::Refused(why) => return Err(lost(path, &why)),
            Answer::Descriptors(..) => return Err(lost(path, "the daemon sent an unexpected answer")),
        }
        Ok(lease)
    }

    /// Number of the lease, for calls that change nothing; see [`Lease::own`].
    pub(super) fn id(&self) -> LeaseId {
        self.id
    }

    /// Number of the lease, for this process alone. A child of a fork has copies of the descriptors, but no lease.
    pub(super) fn own(&self) -> Result<LeaseId, ClientError> {
        self.process.is_current().then_some(self.id).ok_or(ClientError::Forked { what: "the connection for ECalls" })
    }

    /// Requests descriptors.
    pub(super) fn take(&self, what: &FromClient<'_>, with: Option<BorrowedFd<'_>>) -> Result<Descriptors, ClientError> {
        match self.ask(what, with)? {
            Answer::Descriptors(given, fds) if given.count() == fds.len() => {
                Ok(Descriptors { given, fds: fds.into_iter().map(Some).collect() })
            }
            Answer::Refused(why) => Err(lost(&self.path, &why)),
            _ => Err(lost(&self.path, "the daemon sent an unexpected answer")),
        }
    }

    fn ask(&self, what: &FromClient<'_>, with: Option<BorrowedFd<'_>>) -> Result<Answer, ClientError> {
        self.own()?;
        let mut inbox = self.inbox();
        self.send(what, with)?;
        let until = Instant::now() + self.patience;
        loop {
            match self.receive(&mut inbox)? {
                Some(_) if inbox.owed > 0 => inbox.owed -= 1,
                Some(answer) => return Ok(answer),
                None if self.wait(self.socket.as_fd(), until)? => {}
                None => {
                    inbox.owed += 1;
                    return Err(lost(&self.path, "the daemon did not answer in time"));
                }
            }
        }
    }

    /// Sends a message, with an allocation; not for events.
    pub(super) fn send(&self, message: &FromClient<'_>, with: Option<BorrowedFd<'_>>) -> Result<(), ClientError> {
        self.own()?;
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        fds::send(&self.socket, &bytes, with.as_slice()).map_err(|error| lost(&self.path, &error.to_string()))
    }

    /// Raises an event: one system call, without copy or allocation. `false`: the daemon's queue is full.
    pub(super) fn raise(&self, event: &RaiseRequest<'_>) -> Result<bool, ClientError> {
        self.own()?;
        let head = event.head();
        match fds::send_now(&self.socket, &[IoSlice::new(&head), IoSlice::new(event.data)]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(lost(&self.path, &error.to_string())),
        }
    }

    /// The next notice; None if none arrives within `patience`.
    pub(super) fn next_notice(&self, patience: Duration) -> Result<Option<Notice>, ClientError> {
        self.own()?;
        let until = Instant::now() + patience;
        loop {
            let mut inbox = self.inbox();
            if let Some(notice) = inbox.notices.pop_front() {
                if inbox.notices.is_empty() {
                    let _ = rustix::io::read(&self.waiting, &mut [0; 8]);
                }
                return Ok(Some(notice));
            }
            if self.receive(&mut inbox)?.is_some() {
                inbox.owed = inbox.owed.saturating_sub(1);
            }
            if inbox.notices.is_empty() {
                drop(inbox);
                if !self.wait(self.news.as_fd(), until)? {
                    return Ok(None);
                }
            }
        }
    }

    /// Readable while a notice waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// True if the descriptor became readable before `until`.
    fn wait(&self, fd: BorrowedFd<'_>, until: Instant) -> Result<bool, ClientError> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(!left.is_zero()),
            Err(error) => Err(lost(&self.path, &error.to_string())),
        }
    }

    /// Reads one waiting message: returns an answer, stores a notice.
    fn receive(&self, inbox: &mut Inbox) -> Result<Option<Answer>, ClientError> {
        let Inbox { notices, buffer, .. } = inbox;
        let got = match fds::recv_now(&self.socket, buffer) {
            Ok(got) if got.length == 0 => return Err(lost(&self.path, "the daemon closed the connection")),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(lost(&self.path, &error.to_string())),
        };
        let notice = match FromDaemon::decode(&buffer[..got.length]) {
            Some(FromDaemon::Welcome(lease)) => return Ok(Some(Answer::Welcome(lease))),
            Some(FromDaemon::Descriptors(given)) => return Ok(Some(Answer::Descriptors(given, got.fds))),
            Some(FromDaemon::Refused(why)) => return Ok(Some(Answer::Refused(why.to_owned()))),
            Some(FromDaemon::Call { call, service, pid, data }) => {
                Notice::Call { call, service, pid, data: data.to_vec() }
            }
            Some(FromDaemon::TakenOut { subscription, why }) => Notice::TakenOut { subscription, why: why.to_owned() },
            Some(FromDaemon::Ended { subscription, why }) => Notice::Ended { subscription, why: why.to_owned() },
            None => return Err(lost(&self.path, "the daemon sent a message that this version cannot decode")),
        };
        if notices.len() >= WAITING {
            notices.pop_front();
        }
        notices.push_back(notice);
        let _ = rustix::io::write(&self.waiting, &1_u64.to_ne_bytes()); // fails only if it is readable anyway
        Ok(None)
    }
}

/// The descriptors `waiting` and `news` of a lease.
fn news_of(socket: &OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    let waiting = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let news = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&news, socket, EventData::new_u64(0), EventFlags::IN)?;
    epoll::add(&news, &waiting, EventData::new_u64(1), EventFlags::IN)?;
    Ok((waiting, news))
}

/// Received descriptors, by kind.
#[derive(Debug)]
pub(super) struct Descriptors {
    given: DescriptorSet,
    fds: Vec<Option<OwnedFd>>,
}

impl Descriptors {
    /// Takes the descriptor of this bit of [`DescriptorSet`].
    pub(super) fn pick(&mut self, bit: u8) -> Option<OwnedFd> {
        self.fds.get_mut(self.given.index(bit)?)?.take()
    }
}

pub(super) fn lost(path: &Path, why: &str) -> ClientError {
    ClientError::Lease { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::accept;

    use super::*;

    /// A lease of a daemon that gives its connection to `then` after the welcome.
    fn leased(then: impl FnOnce(OwnedFd) + Send + 'static) -> Lease {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ecalls.sock");
        let listener = fds::listen(&path, 1).unwrap();
        thread::spawn(move || {
            let client = accept(&listener).unwrap();
            asked(&client);
            tell(&client, &FromDaemon::Welcome(7));
            then(client);
        });
        Lease::open(&path, Duration::from_secs(60)).unwrap()
    }

    fn asked(client: &OwnedFd) {
        fds::recv(client, &mut [0; MAX_MESSAGE]).unwrap();
    }

    fn tell(client: &OwnedFd, message: &FromDaemon<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        fds::send(client, &bytes, &[]).unwrap();
    }

    fn is_readable(lease: &Lease) -> bool {
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&lease.fd(), PollFlags::IN)], Some(&no_time)).unwrap() > 0
    }

    #[test]
    fn a_notice_that_comes_before_an_answer_is_seen_by_those_who_wait_for_notices() {
        let lease = leased(|client| {
            asked(&client);
            tell(&client, &FromDaemon::Ended { subscription: 3, why: "over" });
            tell(&client, &FromDaemon::Refused("no"));
            asked(&client);
        });
        assert!(!is_readable(&lease));
        assert!(lease.take(&FromClient::TakeSockets, None).unwrap_err().to_string().contains("no"));
        assert!(is_readable(&lease));
        let ended = Notice::Ended { subscription: 3, why: "over".to_owned() };
        assert_eq!(lease.next_notice(Duration::ZERO).unwrap(), Some(ended));
        assert!(!is_readable(&lease));
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_that_of_the_next_request() {
        let mut lease = leased(|client| {
            asked(&client);
            asked(&client);
            tell(&client, &FromDaemon::Refused("the first"));
            tell(&client, &FromDaemon::Refused("the second"));
            asked(&client);
        });
        let take = |lease: &Lease| lease.take(&FromClient::TakeSockets, None).unwrap_err().to_string();
        let patience = std::mem::take(&mut lease.patience);
        assert!(take(&lease).contains("did not answer in time"));
        lease.patience = patience;
        assert!(take(&lease).contains("the second"));
    }
}
