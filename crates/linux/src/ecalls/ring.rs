//! Events on their way to steps in user space: one bounded ring for all subscriptions of a daemon.

use std::io;
use std::os::fd::BorrowedFd;

/// One event from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The number given with [`super::Step::Tail`].
    pub id: u64,
    /// When it happened: nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Until when it is of use; 0: always.
    pub deadline_ns: u64,
    /// The event.
    pub data: &'a [u8],
}

/// The ring. Kernel handlers write, one thread at a time reads. A full ring drops the newest event, counted by the
/// installation that had it ([`super::Counters::dropped_ring`]).
#[derive(Debug)]
pub struct EventRing {}

impl EventRing {
    /// A ring of `bytes` (a power of two, at least a page); a record takes 40 bytes and the event's data.
    pub fn new(bytes: u32) -> io::Result<EventRing> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Readable while there are records (poll, epoll).
    pub fn fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// Takes at most `most` records, oldest first; their number.
    pub fn drain(&self, most: usize, each: &mut dyn FnMut(Record)) -> usize {
        let _ = (most, each);
        0
    }
}
