//! The thread of `channels.sock`, which waits for all descriptors at once; and the messages of connections, which the
//! network's thread reads if it can.

use std::io;
use std::mem::MaybeUninit;
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
use rustix::event::epoll::{self, EventData, EventFlags};

use super::habit::Looks;
use super::mailbox::Noted;
use super::registry::Lease;
use super::{Channels, Fabric, count};
use crate::acceptor::Acceptor;
use crate::ending::Ending;

/// Numbers of the descriptors that the thread waits for, besides busy connections, whose numbers begin at 1.
const MAILBOX: u64 = 0;
const LISTENER: u64 = u64::MAX;
const LINES: u64 = u64::MAX - 1;
/// Largest number of event sources handled per turn; the rest follow at once in the next turn.
const SOURCES: usize = 64;
/// Each packet on the socket of a connection is an event, also while earlier ones are unread; see [`Fabric::serve_lease`].
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
/// Returns only events that have happened already.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Longest sleep if nothing is due.
const LONGEST_NS: u64 = 60_000_000_000;

pub(crate) struct SocketThread {
    fabric: Arc<Fabric>,
    thread: Option<JoinHandle<()>>,
    attending: Option<Attending>,
}

impl SocketThread {
    /// Starts it; `listener` is `channels.sock`, non-blocking. None, where this host has no channels.
    ///
    /// If there is a network, its thread serves the connections, so that a submitted event goes out without waking
    /// another thread.
    pub(crate) fn start(channels: &Channels, listener: OwnedFd, ending: &Ending) -> io::Result<Option<SocketThread>> {
        let Ok(fabric) = channels.on().cloned() else { return Ok(None) };
        let mut lines = Lines::new(&fabric);
        let failing = ending.clone();
        let failed = move |thread, message| failing.failed(thread, message);
        let attending = fabric.network.attend(fabric.lines.try_clone()?, move || lines.turn(), failed)?;
        if attending.is_none() {
            fabric.add(&fabric.lines, LINES)?;
        }
        let acceptor = Acceptor::new(listener, "channels.sock")?;
        fabric.add(&acceptor, LISTENER)?;
        fabric.add(fabric.mailbox.fd(), MAILBOX)?;
        let turning =
            Turning { lines: Lines::new(&fabric), acceptor, noted: Noted::default(), looks: Looks::default() };
        let thread = Some(ending.spawn("qf-channels", move || turning.run())?);
        Ok(Some(SocketThread { fabric, thread, attending }))
    }
}

impl Drop for SocketThread {
    fn drop(&mut self) {
        self.fabric.stop();
        self.attending = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported where it happened.
            let _ = thread.join();
        }
        self.fabric.end();
    }
}

/// Serves connections, in the thread that calls [`Lines::turn`].
struct Lines {
    fabric: Arc<Fabric>,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(fabric: &Arc<Fabric>) -> Lines {
        Lines { fabric: fabric.clone(), buffer: vec![0; MAX_MESSAGE] }
    }

    /// Reads the connections that have sent messages. Returns whether there may be more of them.
    fn turn(&mut self) -> bool {
        let Lines { fabric, buffer } = self;
        if fabric.stopping.load(Ordering::Acquire) {
            return false;
        }
        let mut space = [const { MaybeUninit::uninit() }; SOURCES];
        // An error (a signal) counts as no event.
        let Ok((happened, _)) = epoll::wait(&fabric.lines, &mut space[..], Some(&NOW)) else { return true };
        happened.iter().for_each(|event| fabric.serve_lease(event.data.u64(), event.flags, buffer, None));
        happened.len() == SOURCES
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
    lines: Lines,
    acceptor: Acceptor,
    noted: Noted,
    looks: Looks,
}

impl Turning {
    fn run(mut self) {
        enter(self.lines.fabric.config().priority);
        let mut happened = Vec::with_capacity(SOURCES);
        while !self.lines.fabric.stopping.load(Ordering::Acquire) {
            self.sleep(&mut happened);
            let begin = clock::now();
            happened.iter().for_each(|event| self.on_ready(event.data.u64(), event.flags));
            self.look();
            self.lines.fabric.report_handed(clock::now());
            self.lines.fabric.answer_pings();
            // Without a lock: the receive thread delivers events meanwhile.
            self.lines.fabric.network.rest(begin);
        }
    }

    fn sleep(&self, happened: &mut Vec<epoll::Event>) {
        happened.clear();
        let (now, fabric) = (clock::now().get(), &self.lines.fabric);
        let due = fabric.network.wake().into_iter().chain(fabric.reports.next()).chain(self.looks.next()).min();
        let due = due.map_or(LONGEST_NS, |due| due.get().saturating_sub(now).min(LONGEST_NS));
        let timeout = Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
        // An error (a signal) counts as no event.
        let _ = epoll::wait(&fabric.epoll, rustix::buffer::spare_capacity(happened), Some(&timeout));
    }

    /// Reads busy connections that need not wake this thread.
    fn look(&mut self) {
        let Turning { lines: Lines { fabric, buffer }, looks, .. } = self;
        looks.take(clock::now()).into_iter().for_each(|id| fabric.read_messages(id, buffer, Some(looks)));
    }

    fn on_ready(&mut self, token: u64, event: EventFlags) {
        let Turning { lines, acceptor, noted, looks } = self;
        let Lines { fabric, buffer } = &mut *lines;
        match token {
            MAILBOX => {
                fabric.mailbox.take(noted);
                (0..std::mem::take(&mut noted.dropped)).for_each(|_| count(&fabric.totals.notices_dropped));
                fabric.carry_out(noted);
                noted.unread.drain(..).for_each(|lease| fabric.read_messages(lease, buffer, Some(looks)));
                noted.over.drain(..).for_each(|lease| fabric.end_lease(lease));
            }
            LISTENER => acceptor.accept(|socket| fabric.take_in(socket)),
            LINES => _ = lines.turn(),
            busy => fabric.serve_lease(busy, event, buffer, Some(looks)),
        }
    }
}

impl Fabric {
    fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// From now on waits for messages of the connection.
    pub(super) fn watch(&self, socket: impl AsFd, id: LeaseId) -> io::Result<()> {
        Ok(epoll::add(&self.lines, socket, EventData::new_u64(id), ARRIVALS)?)
    }

    /// Stops waiting for messages of the connection.
    pub(super) fn unwatch(&self, socket: impl AsFd) {
        // A connection that was never watched needs no removal.
        let _ = epoll::delete(&self.lines, &socket);
        let _ = epoll::delete(&self.epoll, &socket);
    }

    /// From now on another thread reads the connection. The socket's thread sends the events of a busy connection in
    /// batches; to send them one at a time, in the network's thread, costs half of the throughput.
    pub(super) fn move_to(&self, lease: &Lease, id: LeaseId) {
        let (from, to) = if lease.habit.is_busy { (&self.lines, &self.epoll) } else { (&self.epoll, &self.lines) };
        // Both calls fail if the connection is ending.
        let _ = epoll::delete(from, &*lease.socket);
        let _ = epoll::add(to, &*lease.socket, EventData::new_u64(id), ARRIVALS);
    }

    /// Ends a connection, with everything that was opened under it.
    pub(super) fn end_lease(&self, id: LeaseId) {
        let Some(lease) = self.registry().remove(id) else { return };
        self.unwatch(&*lease.socket);
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
