//! The thread of `channels.sock`: one that waits for everything, and never for anybody in particular.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::ThreadId;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel_wire::MAX_MESSAGE;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::mailbox::Noted;
use super::{Channels, Fabric, count};
use crate::ending::Ending;

/// What the thread waits for beside connections, whose numbers begin at 1.
const MAILBOX: u64 = 0;
const LISTENER: u64 = u64::MAX;
/// Sources seen per turn; the rest at the next, at once.
const SOURCES: usize = 64;
/// Longest sleep, where nothing is due.
const LONGEST_NS: u64 = 60_000_000_000;

/// The running thread.
pub(crate) struct SocketThread {
    fabric: Arc<Fabric>,
    thread: Option<JoinHandle<()>>,
}

impl SocketThread {
    /// Starts it; `listener` is `channels.sock`, non-blocking. None, where this host has no channels.
    pub fn start(channels: &Channels, listener: OwnedFd, ending: &Ending) -> io::Result<Option<SocketThread>> {
        let Ok(fabric) = channels.on().cloned() else { return Ok(None) };
        fabric.add(&listener, LISTENER)?;
        fabric.add(fabric.mailbox.fd(), MAILBOX)?;
        let turning =
            Turning { fabric: fabric.clone(), listener, buffer: vec![0; MAX_MESSAGE], noted: Noted::default() };
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

/// Gives the calling thread the real-time policy of events.
pub(super) fn enter(priority: u32) {
    if priority > 0
        && let Err(error) = SchedAttr::fifo(priority).give(ThreadId(0))
    {
        tracing::warn!(%error, priority, "events between hosts have no real-time policy: they wait behind other work");
    }
}

struct Turning {
    fabric: Arc<Fabric>,
    listener: OwnedFd,
    buffer: Vec<u8>,
    noted: Noted,
}

impl Turning {
    fn run(mut self) {
        enter(self.fabric.config.priority);
        let mut happened = Vec::with_capacity(SOURCES);
        while !self.fabric.stopping.load(Ordering::Acquire) {
            self.sleep(&mut happened);
            for event in &happened {
                self.hear(event.data.u64(), event.flags);
            }
            self.fabric.report_handed(clock::now());
            self.fabric.answer_pings();
        }
    }

    fn sleep(&self, happened: &mut Vec<epoll::Event>) {
        happened.clear();
        let now = clock::now().get();
        let due = self.fabric.network.wake().into_iter().chain(self.fabric.reports.next()).min();
        let due = due.map_or(LONGEST_NS, |due| due.get().saturating_sub(now).min(LONGEST_NS));
        let timeout = Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
        // An error (a signal) is as good as nothing having happened.
        let _ = epoll::wait(&self.fabric.epoll, rustix::buffer::spare_capacity(happened), Some(&timeout));
    }

    fn hear(&mut self, token: u64, flags: EventFlags) {
        match token {
            MAILBOX => {
                self.fabric.mailbox.take(&mut self.noted);
                (0..std::mem::take(&mut self.noted.dropped)).for_each(|_| count(&self.fabric.totals.notices_dropped));
                self.fabric.carry_out(&mut self.noted);
                self.noted.unread.drain(..).for_each(|lease| self.fabric.hear_messages(lease, &mut self.buffer));
            }
            LISTENER => self.fabric.accept(&self.listener),
            lease if flags.intersects(EventFlags::HUP | EventFlags::ERR) => self.fabric.end_lease(lease),
            lease => self.fabric.serve_lease(lease, &mut self.buffer),
        }
    }
}

impl Fabric {
    fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// A new connection's words are waited for.
    pub(super) fn watch(&self, socket: impl AsFd, id: LeaseId) -> io::Result<()> {
        self.add(socket, id)
    }

    /// Ends a connection, and what was opened under it.
    pub(super) fn end_lease(&self, id: LeaseId) {
        let Some(lease) = self.registry().remove(id) else { return };
        // Never watched: then there is nothing to forget.
        let _ = epoll::delete(&self.epoll, &*lease.socket);
        self.end_filters(id);
        self.network.with(|node, now, port| {
            // What has ended by itself is no error here.
            for sink in lease.sinks.keys() {
                let _ = node.leave_sink(*sink, now, port);
            }
            for source in &lease.sources {
                let _ = node.leave_source(*source, now, port);
            }
            for registration in &lease.registrations {
                let _ = node.unregister(*registration, now, port);
            }
            for channel in &lease.opened {
                let _ = node.close(channel, now, port);
            }
        });
    }
}
