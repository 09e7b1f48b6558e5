//! The sources that wake the dispatcher: readable descriptors, and nudges of other threads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qfabric_types::Nanos;
use qfabric_types::api::ecalls::SubscriptionId;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::control::{wake, wake_descriptor};

/// Sources handled per turn; the next turn handles the rest without sleep.
const SEEN: usize = 64;

/// A source that wakes the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Wake,
    Listener,
    Ring,
    Lease(u64),
    /// The end of a process to which a subscription belongs.
    Process(SubscriptionId),
}

impl Source {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Source::Wake => (0, 0),
            Source::Listener => (1, 0),
            Source::Ring => (2, 0),
            Source::Lease(id) => (3, id),
            Source::Process(id) => (4, id),
        };
        kind << 56 | number
    }

    fn of(token: u64) -> Source {
        let number = token & ((1 << 56) - 1);
        match token >> 56 {
            1 => Source::Listener,
            2 => Source::Ring,
            3 => Source::Lease(number),
            4 => Source::Process(number),
            _ => Source::Wake,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sources {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// The sources that one wait found ready.
pub(crate) struct ReadySources(Vec<epoll::Event>);

impl ReadySources {
    pub(super) fn new() -> ReadySources {
        ReadySources(Vec::with_capacity(SEEN))
    }

    /// The ready sources.
    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        self.0.iter().map(|event| Source::of(event.data.u64()))
    }
}

impl Sources {
    /// With nudges as the only source.
    pub(super) fn new() -> io::Result<Sources> {
        let sources = Sources { epoll: epoll::create(CreateFlags::CLOEXEC)?, wake: Arc::new(wake_descriptor()?) };
        sources.watch(&*sources.wake, Source::Wake)?;
        Ok(sources)
    }

    /// From now on a wait ends when `fd` is readable.
    pub(super) fn watch(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(source.token()), EventFlags::IN | EventFlags::RDHUP)?)
    }

    /// Stops watching `fd`.
    pub(super) fn forget(&self, fd: impl AsFd) {
        // Fails if the descriptor is not watched or is closed already.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// The descriptor that other threads may use to nudge the dispatcher.
    pub(super) fn wake(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    /// Ends the present wait, or the next one.
    pub(super) fn nudge(&self) {
        wake(&*self.wake);
    }

    /// Waits until a source is ready, for at most `longest`. `true`: there was a nudge, which stays until
    /// [`Sources::clear_nudge`].
    pub(super) fn wait(&self, ready: &mut ReadySources, longest: Nanos) -> bool {
        ready.0.clear();
        let ns = longest.get();
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        // An error (a signal) is handled like no event.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready.0), Some(&timeout));
        ready.sources().any(|source| source == Source::Wake)
    }

    /// Clears all nudges so far.
    pub(super) fn clear_nudge(&self) {
        // Fails only if there was no nudge.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_survives_its_token() {
        for source in [Source::Wake, Source::Listener, Source::Ring, Source::Lease(7), Source::Process(1 << 40)] {
            assert_eq!(Source::of(source.token()), source);
        }
    }

    #[test]
    fn a_nudge_ends_every_wait_until_it_is_cleared() {
        let (sources, mut ready) = (Sources::new().unwrap(), ReadySources::new());
        assert!(!sources.wait(&mut ready, Nanos::ZERO));
        sources.nudge();
        sources.nudge();
        assert!(sources.wait(&mut ready, Nanos::from_millis(60_000)));
        assert!(sources.wait(&mut ready, Nanos::from_millis(60_000)));
        sources.clear_nudge();
        assert!(!sources.wait(&mut ready, Nanos::ZERO));
    }
}
