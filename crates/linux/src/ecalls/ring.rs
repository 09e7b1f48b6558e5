//! Reads events for steps in user space from one bounded ring for all subscriptions of a daemon.
//!
//! This is the kernel's ring buffer, read without libbpf's code for it. Positions only grow. A record begins with its
//! length and two flags. The data is mapped twice in a row, so no record is split. Source: Linux
//! `Documentation/bpf/ringbuf.rst`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_sync::{Lock, rank};

use super::delivery::RECORD_HEADER;
use crate::bpf::{Map, Mapping};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The id given with [`super::Step::Tail`].
    pub id: u64,
    /// Time of the event: nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Time until which the event is useful; 0: without limit.
    pub deadline_ns: u64,
    pub data: &'a [u8],
}

/// The ring. Handlers in the kernel write; one thread at a time reads. A full ring drops the newest event and the
/// installation counts it ([`super::Counters::dropped_ring`]). The records of one user take at most a quarter of the
/// ring: handlers add the size of a record to the user's word before they write it, and the reader subtracts it.
#[derive(Debug)]
pub struct EventRing {
    map: Map,
    bytes: u32,
    /// Page size of this machine: the data begins after the writer's page.
    page: usize,
    reader: Mapping,
    writer: Mapping,
    /// The bytes of each user's records in the ring: a word for each number.
    counts: Map,
    waiting: Mapping,
    state: Lock<State, { rank::EVENT_RING }>,
}

#[derive(Debug, Default)]
struct State {
    /// Buffer for one record.
    room: Vec<u8>,
    /// The number of each user; installations hold it, too.
    users: BTreeMap<u32, Arc<u32>>,
}

/// Users with records or handlers at the same time.
const USERS: u32 = 16_384;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes of the kernel's header of a record.
const PREFIX: usize = 8;

impl EventRing {
    /// A ring of at least `bytes`, which must be a power of two, and at least one page. A record takes 40 bytes plus
    /// the event's data.
    pub fn new(bytes: u32) -> io::Result<EventRing> {
        let page = rustix::param::page_size();
        let bytes = whole_pages(bytes, page);
        let map = Map::ring(bytes)?;
        let (reader, writer) = map.map_ring(bytes as usize)?;
        let counts = Map::array(8 * USERS, 1)?;
        let waiting = counts.map(8 * USERS as usize)?;
        Ok(EventRing { map, bytes, page, reader, writer, counts, waiting, state: Lock::default() })
    }

    /// Readable while there are records (poll, epoll).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Passes at most `most` records to `each`, oldest first. Returns their number.
    pub fn drain(&self, most: usize, each: &mut dyn FnMut(Record)) -> usize {
        let mut state = self.state.lock();
        let mut taken = 0;
        while taken < most && self.step(&mut state.room, &mut taken, each) {}
        taken
    }

    /// The number of a user, kept as long as the user has handlers or records. `None`: too many users have.
    pub(super) fn number_of(&self, user: u32) -> Option<Arc<u32>> {
        let mut state = self.state.lock();
        if let Some(number) = state.users.get(&user) {
            return Some(number.clone());
        }
        let waits = |number: u32| self.waiting_of(number).load(Ordering::Relaxed) > 0;
        state.users.retain(|_, number| Arc::strong_count(number) > 1 || waits(**number));
        let used: BTreeSet<u32> = state.users.values().map(|number| **number).collect();
        let free = Arc::new((0..USERS).find(|number| !used.contains(number))?);
        state.users.insert(user, free.clone());
        Some(free)
    }

    /// The map with the words of the users.
    pub(super) fn counts_fd(&self) -> BorrowedFd<'_> {
        self.counts.fd()
    }

    /// Largest size of a record, and of all records of a user in the ring.
    pub(super) fn most(&self) -> u32 {
        self.bytes / 4
    }

    fn waiting_of(&self, number: u32) -> &AtomicU64 {
        &self.waiting.words(8 * number as usize)[0]
    }

    /// Reads one record; returns `false` if there is none yet.
    fn step(&self, room: &mut Vec<u8>, taken: &mut usize, each: &mut dyn FnMut(Record)) -> bool {
        let position = self.read_position().load(Ordering::Relaxed);
        if position == self.written() {
            return false;
        }
        let at = self.page + (position as usize & (self.bytes as usize - 1));
        let length = self.length(at);
        if length & BUSY != 0 {
            return false;
        }
        let bytes = (length & !DISCARDED) as usize;
        if length & DISCARDED == 0 && bytes >= RECORD_HEADER as usize {
            room.resize(bytes, 0);
            self.writer.copy_to(at + PREFIX, room);
            if let Some(number) = user_of(room).filter(|number| *number < USERS) {
                self.waiting_of(number).fetch_sub(bytes as u64, Ordering::Relaxed);
            }
            each(record(room));
            *taken += 1;
        }
        let next = position + (bytes + PREFIX).next_multiple_of(8) as u64;
        self.read_position().store(next, Ordering::Release);
        true
    }

    fn read_position(&self) -> &AtomicU64 {
        &self.reader.words(0)[0]
    }

    fn written(&self) -> u64 {
        self.writer.words(0)[0].load(Ordering::Acquire)
    }

    /// The lower half of the record's first word: length and flags.
    fn length(&self, at: usize) -> u32 {
        self.writer.words(at)[0].load(Ordering::Acquire) as u32
    }
}

/// `bytes`, but at least one page; `page` is a power of two.
pub(super) fn whole_pages(bytes: u32, page: usize) -> u32 {
    bytes.max(u32::try_from(page).unwrap_or(u32::MAX))
}

/// `bytes` has at least the size of a header.
fn record(bytes: &[u8]) -> Record<'_> {
    let data = &bytes[RECORD_HEADER as usize..];
    let length = (word(bytes, 24) as u32 as usize).min(data.len());
    Record { id: word(bytes, 0), time_ns: word(bytes, 8), deadline_ns: word(bytes, 16), data: &data[..length] }
}

/// The number of the record's user; `None`: without a bound.
fn user_of(bytes: &[u8]) -> Option<u32> {
    ((word(bytes, 24) >> 32) as u32).checked_sub(1)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_cut_to_the_bytes_it_has() {
        let words: [u64; 5] = [7, 8, 9, 1000, u64::from_le_bytes(*b"abcdefgh")];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let record = record(&bytes);
        assert_eq!((record.id, record.time_ns, record.deadline_ns, record.data), (7, 8, 9, &b"abcdefgh"[..]));
        assert_eq!(user_of(&bytes), None);
    }

    #[test]
    fn a_user_keeps_the_number_as_long_as_handlers_or_records_exist() {
        let Ok(ring) = EventRing::new(4096).map_err(crate::testing::skip) else { return };
        let (first, second) = (ring.number_of(1_000).unwrap(), ring.number_of(2_000).unwrap());
        assert_eq!((*first, *second, *ring.number_of(1_000).unwrap()), (0, 1, 0));
        ring.waiting_of(1).store(40, Ordering::Relaxed);
        drop((first, second));
        assert_eq!(*ring.number_of(3_000).unwrap(), 0, "that of the user without records");
        assert_eq!(*ring.number_of(2_000).unwrap(), 1);
    }

    #[test]
    fn an_empty_ring_has_no_records() {
        let ring = EventRing::new(4096).map_err(crate::testing::skip);
        let Ok(ring) = ring else { return };
        assert_eq!(ring.drain(10, &mut |_| panic!("nothing was written")), 0);
        assert!(EventRing::new(5000).is_err(), "not a power of two");
    }

    #[test]
    fn a_ring_is_never_smaller_than_a_page_of_any_size() {
        for page in [4096, 16_384, 65_536] {
            assert_eq!((whole_pages(4096, page), whole_pages(1 << 20, page)), (page as u32, 1 << 20));
        }
        let Ok(ring) = EventRing::new(1).map_err(crate::testing::skip) else { return };
        assert_eq!(ring.bytes() as usize, rustix::param::page_size());
    }
}
