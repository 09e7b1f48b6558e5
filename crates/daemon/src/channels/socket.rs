//! The thread of `channels.sock`, which waits for all descriptors at once; and the messages of connections, which the
//! network's thread reads if it can.
//!
//! One thread at a time waits for the socket of a connection:
//! ```text
//! not busy ──> the network's thread: a task for each connection, which waits for this socket alone
//! busy, or no such thread ──> the socket's thread, by its epoll
//! ```
//! So what a connection sends wakes one thread, which knows at once from which connection it is.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use qfabric_link::Attending;
use qfabric_linux::clock;
use qfabric_linux::sched_attr::{RESET_ON_FORK, SchedAttr};
use qfabric_types::ThreadId;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel_wire::MAX_MESSAGE;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::habit::Looks;
use super::mailbox::Noted;
use super::registry::Lease;
use super::{Channels, Fabric, count};
use crate::acceptor::Acceptor;
use crate::ending::Ending;

/// Numbers of the descriptors that the thread waits for, besides connections, whose numbers begin at 1.
const MAILBOX: u64 = 0;
const LISTENER: u64 = u64::MAX;
/// Largest number of event sources handled per turn; the rest follow at once in the next turn.
const SOURCES: usize = 64;
/// Each packet on the socket of a connection is an event, also while earlier ones are unread; see [`Fabric::serve_lease`].
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
/// Longest sleep if nothing is due.
const LONGEST_NS: u64 = 60_000_000_000;

thread_local! {
    /// Memory of the network's thread for the messages of all connections, which it reads one after the other.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct SocketThread {
    fabric: Arc<Fabric>,
    thread: Option<JoinHandle<()>>,
}

impl SocketThread {
    /// Starts it; `listener` is `channels.sock`, non-blocking. None, where this host has no channels.
    pub(crate) fn start(channels: &Channels, listener: OwnedFd, ending: &Ending) -> io::Result<Option<SocketThread>> {
        let Ok(fabric) = channels.on().cloned() else { return Ok(None) };
        let acceptor = Acceptor::new(listener, "channels.sock")?;
        fabric.sockets.add(&acceptor, LISTENER)?;
        fabric.sockets.add(fabric.mailbox.fd(), MAILBOX)?;
        let (buffer, noted, looks) = (vec![0; MAX_MESSAGE], Noted::default(), Looks::default());
        let turning = Turning { fabric: fabric.clone(), buffer, acceptor, noted, looks };
        let thread = Some(ending.spawn("qf-channels", move || turning.run())?);
        Ok(Some(SocketThread { fabric, thread }))
    }
}

impl Drop for SocketThread {
    fn drop(&mut self) {
        self.fabric.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported where it happened.
            let _ = thread.join();
        }
        self.fabric.end();
    }
}

/// Gives the calling thread the real-time policy of events. Threads that it starts do not inherit the policy.
pub(super) fn enter(priority: u32) {
    if priority > 0
        && let Err(error) = (SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) }).give(ThreadId(0))
    {
        tracing::warn!(%error, priority, "events between hosts have no real-time policy: they wait behind other work");
    }
}

struct Turning {
    fabric: Arc<Fabric>,
    buffer: Vec<u8>,
    acceptor: Acceptor,
    noted: Noted,
    looks: Looks,
}

impl Turning {
    fn run(mut self) {
        enter(self.fabric.config().priority);
        let mut happened = Vec::with_capacity(SOURCES);
        while !self.fabric.stopping.load(Ordering::Acquire) {
            self.sleep(&mut happened);
            let begin = clock::now();
            happened.iter().for_each(|event| self.on_ready(event.data.u64(), event.flags));
            self.look();
            self.fabric.report_handed(clock::now());
            self.fabric.answer_pings();
            // Without a lock: the receive thread delivers events meanwhile.
            self.fabric.network.rest(begin);
        }
    }

    fn sleep(&self, happened: &mut Vec<epoll::Event>) {
        happened.clear();
        let (now, fabric) = (clock::now().get(), &self.fabric);
        let due = fabric.network.wake().into_iter().chain(fabric.reports.next()).chain(self.looks.next()).min();
        let due = due.map_or(LONGEST_NS, |due| due.get().saturating_sub(now).min(LONGEST_NS));
        let timeout = Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
        // An error (a signal) counts as no event.
        let _ = epoll::wait(&fabric.sockets.epoll, rustix::buffer::spare_capacity(happened), Some(&timeout));
    }

    /// Reads busy connections that need not wake this thread.
    fn look(&mut self) {
        let Turning { fabric, buffer, looks, .. } = self;
        looks.take(clock::now()).into_iter().for_each(|id| fabric.read_messages(id, buffer, Some(looks)));
    }

    fn on_ready(&mut self, token: u64, event: EventFlags) {
        let Turning { fabric, buffer, acceptor, noted, looks } = self;
        match token {
            MAILBOX => {
                fabric.mailbox.take(noted);
                (0..std::mem::take(&mut noted.dropped)).for_each(|_| count(&fabric.totals.notices_dropped));
                fabric.carry_out(noted);
                noted.unread.drain(..).for_each(|lease| fabric.read_messages(lease, buffer, Some(looks)));
                noted.over.drain(..).for_each(|lease| fabric.end_lease(lease));
            }
            LISTENER => acceptor.accept(|socket| fabric.take_in(socket)),
            lease => fabric.serve_lease(lease, event, buffer, Some(looks)),
        }
    }
}

/// The descriptors that the socket's thread waits for.
pub(super) struct Sockets {
    pub epoll: OwnedFd,
}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        Ok(Sockets { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
    }

    fn add_lease(&self, lease: &Lease, id: LeaseId) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, &*lease.socket, EventData::new_u64(id), ARRIVALS)?)
    }

    /// Stops waiting for messages of the connection.
    pub(super) fn unwatch(&self, lease: &mut Lease) {
        lease.attending = None;
        // A connection that the network's thread reads needs no removal.
        let _ = epoll::delete(&self.epoll, &*lease.socket);
    }
}

impl Fabric {
    /// From now on waits for messages of the connection: in the network's thread if there is one, so that a submitted
    /// event goes out without waking another thread.
    pub(super) fn watch(&self, lease: &mut Lease, id: LeaseId) -> io::Result<()> {
        lease.attending = self.attend(lease, id)?;
        if lease.attending.is_none() {
            self.sockets.add_lease(lease, id)?;
        }
        Ok(())
    }

    /// From now on the network's thread waits for messages of the connection. None: there is no such thread.
    fn attend(&self, lease: &Lease, id: LeaseId) -> io::Result<Option<Attending>> {
        // Weak: the task may outlive the service, and must not keep it.
        let Some(fabric) = self.mailbox.fabric().as_ref().map(Arc::downgrade) else { return Ok(None) };
        let mailbox = self.mailbox.clone();
        let turn = move |is_closed| fabric.upgrade().into_iter().for_each(|fabric| fabric.turn(id, is_closed));
        self.network.attend(lease.socket.clone(), turn, move |thread, message| mailbox.failed(thread, message))
    }

    /// In the network's thread: reads the connection, which has sent something or ended.
    fn turn(&self, id: LeaseId, is_closed: bool) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let event = if is_closed { EventFlags::IN | EventFlags::RDHUP } else { EventFlags::IN };
        BUFFER.with_borrow_mut(|buffer| {
            // Once in the life of the thread.
            buffer.resize(MAX_MESSAGE, 0);
            self.serve_lease(id, event, buffer, None);
        });
    }

    /// From now on another thread reads the connection. The socket's thread sends the events of a busy connection in
    /// batches; to send them one at a time, in the network's thread, costs half of the throughput.
    ///
    /// No wake-up is lost. The second thread begins to wait before the first one stops, and both the network's runtime
    /// and epoll report at the beginning the packets that are there already. For a moment both threads may read: the
    /// registry's lock lets one read after the other, and the later one finds nothing. The same holds for a last turn
    /// of an ended task.
    ///
    /// If the second thread cannot begin to wait, the connection stays where it is, and a later wake-up tries again.
    pub(super) fn move_to(&self, lease: &mut Lease, id: LeaseId) {
        if lease.habit.is_busy {
            // Without a thread of the network, nothing attends: the socket's thread reads all connections.
            if lease.attending.is_some() {
                match self.sockets.add_lease(lease, id) {
                    Ok(()) => lease.attending = None,
                    Err(_) => lease.habit.is_busy = false,
                }
            }
            return;
        }
        match self.attend(lease, id) {
            Ok(attending) if attending.is_some() => {
                lease.attending = attending;
                let _ = epoll::delete(&self.sockets.epoll, &*lease.socket);
            }
            Ok(_) => {}
            // For example, the ended task still has the descriptor; see `qfabric_link::attend`.
            Err(_) => lease.habit.is_busy = true,
        }
    }

    /// Ends a connection, with everything that was opened under it.
    pub(super) fn end_lease(&self, id: LeaseId) {
        let Some(mut lease) = self.registry().remove(id) else { return };
        self.sockets.unwatch(&mut lease);
        self.end_filters(id);
        self.network.with(|node, now| {
            // A member that has ended by itself is no error here.
            for sink in lease.sinks.keys() {
                let _ = node.leave_sink(*sink, now);
            }
            for source in &lease.sources {
                let _ = node.leave_source(*source, now);
            }
            for registration in lease.registrations.keys() {
                let _ = node.unregister(*registration, now);
            }
            for channel in &lease.opened {
                let _ = node.close(channel, now);
            }
        });
    }
}
