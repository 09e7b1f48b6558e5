//! The event sources that wake the control thread, and its sleep time.
//!
//! Each ring has its own eventfd. The application holds it open for writing *and* reading: with a shared eventfd,
//! any application could consume the wake-ups of others, or fill the counter until the writes of others block. A
//! separate eventfd also identifies the ring, so that only the ring that floods is silenced. All sources are
//! edge-triggered: a wake-up needs no read to be acknowledged, which saves one of two system calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use qfabric_types::{AppId, Instant, Nanos};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Events taken per wake-up; the next turn takes the rest without sleep.
const BATCH: usize = 64;
/// Shortest sleep: bounds how often a wrong time in the past can turn the loop.
const SHORTEST: Nanos = Nanos::from_micros(50);
/// Longest sleep: bounds the delay after a lost wake-up.
const LONGEST: Nanos = Nanos::from_millis(60_000);
const APP_BITS: u32 = 56;

/// An event that wakes the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A request waits in the queue.
    Request,
    /// The process of an application ended.
    Exit(AppId),
    /// An application requests a look at its ring.
    Ring(AppId),
    /// The connection that holds an application's ring closed.
    Lease(AppId),
    /// A buffer of context switch records is nearly full.
    Records,
}

impl Source {
    fn token(self) -> u64 {
        let (kind, app) = match self {
            Source::Request => (0, 0),
            Source::Exit(app) => (1, app.0),
            Source::Ring(app) => (2, app.0),
            Source::Lease(app) => (3, app.0),
            Source::Records => (4, 0),
        };
        debug_assert!(app < 1 << APP_BITS, "applications are numbered from 1");
        kind << APP_BITS | app
    }

    fn of(token: u64) -> Source {
        let app = AppId(token & ((1 << APP_BITS) - 1));
        match token >> APP_BITS {
            1 => Source::Exit(app),
            2 => Source::Ring(app),
            3 => Source::Lease(app),
            4 => Source::Records,
            _ => Source::Request,
        }
    }

    fn flags(self) -> EventFlags {
        let wanted = match self {
            // Data that a client writes into its lease is ignored; only the closing counts.
            Source::Lease(_) => EventFlags::RDHUP,
            _ => EventFlags::IN,
        };
        wanted | EventFlags::ET
    }
}

/// All descriptors that the control thread waits for.
pub(crate) struct Sources {
    epoll: OwnedFd,
    event: Vec<epoll::Event>,
}

impl Sources {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Sources { epoll: epoll::create(CreateFlags::CLOEXEC)?, event: Vec::with_capacity(BATCH) })
    }

    /// Waits for `source` through `fd` from now on, until all copies of the descriptor are closed.
    pub(super) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(source.token()), source.flags())?)
    }

    /// Stops waiting for `source`, or starts again.
    pub(super) fn silence(&self, fd: impl AsFd, source: Source, silent: bool) -> io::Result<()> {
        let flags = if silent { EventFlags::empty() } else { source.flags() };
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(source.token()), flags)?)
    }

    /// Removes a descriptor of which another process may hold a copy.
    pub(super) fn remove(&self, fd: impl AsFd) {
        // Fails only if the descriptor is not registered or already closed.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until something happens, or until `until`.
    pub(super) fn wait(&mut self, until: Option<Instant>, now: Instant) {
        let sleep = until.map_or(LONGEST, |until| until.since(now)).clamp(SHORTEST, LONGEST);
        self.fetch(sleep);
    }

    /// Fetches pending events without sleeping.
    pub(super) fn poll(&mut self) {
        self.fetch(Nanos::ZERO);
    }

    fn fetch(&mut self, timeout_ns: Nanos) {
        self.event.clear();
        let ns = timeout_ns.get();
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        // An error (a signal) is handled like no event: the loop checks everything anyway and comes back.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.event), Some(&timeout));
    }

    /// The `i`th event of the last wait or poll.
    pub(super) fn event(&self, i: usize) -> Option<Source> {
        self.event.get(i).map(|event| Source::of(event.data.u64()))
    }
}

/// A descriptor that wakes the thread that waits for it.
pub(crate) fn wake_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes the thread that waits for `fd`.
pub(crate) fn wake(fd: impl AsFd) {
    // Fails only if the counter is full; then a wake-up is pending anyway.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_reads_back_from_its_token() {
        let app = AppId(u64::from(u32::MAX) + 7);
        for source in [Source::Request, Source::Exit(app), Source::Ring(app), Source::Lease(app), Source::Records] {
            assert_eq!(Source::of(source.token()), source);
        }
    }

    #[test]
    fn each_wake_up_is_seen_once_without_a_read() {
        let mut sources = Sources::new().unwrap();
        let fd = wake_descriptor().unwrap();
        let source = Source::Ring(AppId(3));
        sources.add(&fd, source).unwrap();
        for _ in 0..3 {
            wake(&fd);
            sources.poll();
            assert_eq!((sources.event(0), sources.event(1)), (Some(source), None));
            sources.poll();
            assert_eq!(sources.event(0), None);
        }
    }

    #[test]
    fn a_silenced_source_does_not_wake_the_thread() {
        let mut sources = Sources::new().unwrap();
        let fd = wake_descriptor().unwrap();
        let source = Source::Ring(AppId(3));
        sources.add(&fd, source).unwrap();
        sources.silence(&fd, source, true).unwrap();
        wake(&fd);
        sources.poll();
        assert_eq!(sources.event(0), None);
        sources.silence(&fd, source, false).unwrap();
        sources.poll();
        assert_eq!(sources.event(0), Some(source));
    }

    #[test]
    fn a_time_in_the_past_turns_the_loop_no_faster_than_the_bound() {
        let mut sources = Sources::new().unwrap();
        let now = qfabric_linux::clock::now();
        sources.wait(Some(Instant::new(1)), now);
        assert!(qfabric_linux::clock::now().since(now) >= SHORTEST);
    }

    #[test]
    fn the_closing_of_a_lease_is_an_event_and_its_data_are_not() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut sources = Sources::new().unwrap();
        sources.add(&ours, Source::Lease(AppId(1))).unwrap();
        rustix::io::write(&theirs, b"hello").unwrap();
        sources.poll();
        assert_eq!(sources.event(0), None);
        drop(theirs);
        sources.poll();
        assert_eq!(sources.event(0), Some(Source::Lease(AppId(1))));
    }
}
