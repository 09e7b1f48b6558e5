//! What can wake the control thread, and for how long it sleeps.
//!
//! One eventfd per ring, not one for all: the application holds it open for writing *and* reading, so with a
//! shared one any application could swallow the others' wake-ups or fill the counter until their writes
//! block. It also tells whose ring it was, so that one that floods is silenced alone. All sources are
//! edge-triggered: a wake-up needs no read to be acknowledged, which saves one system call of two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use qfabric_types::{AppId, Instant, Nanos};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Events taken per wake-up; the rest is taken at the next one, at once.
const BATCH: usize = 64;
/// Never sleep shorter: bounds how often a wrong moment in the past can turn the loop.
const SHORTEST: Nanos = Nanos::from_micros(50);
/// Never sleep longer: a lost wake-up costs at most this much.
const LONGEST: Nanos = Nanos::from_millis(60_000);
const APP_BITS: u32 = 56;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A request waits in the queue.
    Request,
    /// The process of an application ended.
    Exit(AppId),
    /// An application wants its ring looked at.
    Ring(AppId),
    /// The connection that holds an application's ring closed.
    Lease(AppId),
    /// Records of context switches are about to be lost.
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
            // What a client writes into its lease is nobody's business; only its end is.
            Source::Lease(_) => EventFlags::RDHUP,
            _ => EventFlags::IN,
        };
        wanted | EventFlags::ET
    }
}

/// Everything the control thread waits for.
pub(crate) struct Sources {
    epoll: OwnedFd,
    happened: Vec<epoll::Event>,
}

impl Sources {
    pub fn new() -> io::Result<Self> {
        Ok(Sources { epoll: epoll::create(CreateFlags::CLOEXEC)?, happened: Vec::with_capacity(BATCH) })
    }

    /// Waits for `source` through `fd` from now on, until the descriptor is closed everywhere.
    pub fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(source.token()), source.flags())?)
    }

    /// Does not wait for `source` any more, or does again.
    pub fn silence(&self, fd: impl AsFd, source: Source, silent: bool) -> io::Result<()> {
        let flags = if silent { EventFlags::empty() } else { source.flags() };
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(source.token()), flags)?)
    }

    /// Forgets a descriptor that somebody else may still hold open.
    pub fn remove(&self, fd: impl AsFd) {
        // Not registered, or closed already: then there is nothing to forget.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until something happens, or until `until`.
    pub fn wait(&mut self, until: Option<Instant>, now: Instant) {
        let sleep = until.map_or(LONGEST, |until| until.since(now)).clamp(SHORTEST, LONGEST);
        self.fetch(sleep);
    }

    /// Looks whether something happened, without sleeping.
    pub fn glance(&mut self) {
        self.fetch(Nanos::ZERO);
    }

    fn fetch(&mut self, patience: Nanos) {
        self.happened.clear();
        let ns = patience.get();
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        // An error (a signal) is as good as nothing having happened: the loop looks at everything and returns.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.happened), Some(&timeout));
    }

    /// What the last wait or glance saw, the `i`th.
    pub fn happened(&self, i: usize) -> Option<Source> {
        self.happened.get(i).map(|event| Source::of(event.data.u64()))
    }
}

/// A descriptor that wakes whoever waits for it.
pub(crate) fn wake_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes whoever waits for `fd`.
pub(crate) fn wake(fd: impl AsFd) {
    // Fails only where the counter is full, that is, where a wake-up is pending anyway.
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
            sources.glance();
            assert_eq!((sources.happened(0), sources.happened(1)), (Some(source), None));
            sources.glance();
            assert_eq!(sources.happened(0), None);
        }
    }

    #[test]
    fn what_is_silenced_wakes_nobody_until_it_may_again() {
        let mut sources = Sources::new().unwrap();
        let fd = wake_descriptor().unwrap();
        let source = Source::Ring(AppId(3));
        sources.add(&fd, source).unwrap();
        sources.silence(&fd, source, true).unwrap();
        wake(&fd);
        sources.glance();
        assert_eq!(sources.happened(0), None);
        sources.silence(&fd, source, false).unwrap();
        sources.glance();
        assert_eq!(sources.happened(0), Some(source));
    }

    #[test]
    fn a_moment_in_the_past_does_not_turn_the_loop_faster_than_the_bound() {
        let mut sources = Sources::new().unwrap();
        let now = qfabric_linux::clock::now();
        sources.wait(Some(Instant::new(1)), now);
        assert!(qfabric_linux::clock::now().since(now) >= SHORTEST);
    }

    #[test]
    fn a_closed_lease_is_seen_and_what_it_says_is_not() {
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
        sources.glance();
        assert_eq!(sources.happened(0), None);
        drop(theirs);
        sources.glance();
        assert_eq!(sources.happened(0), Some(Source::Lease(AppId(1))));
    }
}
