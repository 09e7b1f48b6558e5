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
/// installation counts it ([`super::Counters::dropped_ring`]). Each user has a share: handlers add the size of a record
/// to the user's word before they write it, and the reader subtracts it. The shares of all users together leave an
/// eighth of the ring to root, whose records have no bound.
#[derive(Debug)]
pub struct EventRing {
    map: Map,
    bytes: u32,
    /// Page size of this machine: the data begins after the writer's page.
    page: usize,
    reader: Mapping,
    writer: Mapping,
    /// Word 0: the share of each user, in bytes. The others: the bytes of a user's records, by the user's number.
    counts: Map,
    words: Mapping,
    state: Lock<State, { rank::EVENT_RING }>,
}

#[derive(Debug, Default)]
struct State {
    /// Buffer for one record.
    room: Vec<u8>,
    /// The number of each user; installations hold it, too.
    users: BTreeMap<u32, Arc<u32>>,
}

/// The shares never become smaller, in bytes: this limits the users with records or handlers at the same time.
const LEAST_SHARE: u32 = 2048;
/// Word with the share of each user, which is no user's number.
pub(super) const SHARE: u32 = 0;
/// In the header of a record whose user has no bound.
pub(super) const NO_USER: u32 = 0;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes of the kernel's header of a record.
pub(super) const PREFIX: usize = 8;

impl EventRing {
    /// A ring of at least `bytes`, which must be a power of two, and at least one page. A record takes 40 bytes plus
    /// the event's data.
    pub fn new(bytes: u32) -> io::Result<EventRing> {
        let page = rustix::param::page_size();
        let bytes = whole_pages(bytes, page);
        let map = Map::ring(bytes)?;
        let (reader, writer) = map.map_ring(bytes as usize)?;
        let size = 8 * (most_users(bytes) + 1);
        let counts = Map::array(size, 1)?;
        let words = counts.map(size as usize)?;
        Ok(EventRing { map, bytes, page, reader, writer, counts, words, state: Lock::default() })
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

    /// The number of a user, kept as long as the user has handlers or records. `None`: [`EventRing::most_users`] have.
    /// The shares follow the number of users. A user whose records exceed the new share writes again when enough of
    /// them are read.
    pub(super) fn number_of(&self, user: u32) -> Option<Arc<u32>> {
        let mut state = self.state.lock();
        if let Some(number) = state.users.get(&user) {
            return Some(number.clone());
        }
        let waits = |number: u32| self.word(number).load(Ordering::Relaxed) > 0;
        state.users.retain(|_, number| Arc::strong_count(number) > 1 || waits(**number));
        let used: BTreeSet<u32> = state.users.values().map(|number| **number).collect();
        let free = Arc::new((SHARE + 1..=self.most_users()).find(|number| !used.contains(number))?);
        state.users.insert(user, free.clone());
        let share = share(self.bytes, state.users.len() as u32);
        self.word(SHARE).store(share.into(), Ordering::Relaxed);
        Some(free)
    }

    pub(super) fn most_users(&self) -> u32 {
        most_users(self.bytes)
    }

    /// The map with the words of the users, at eight bytes for each number.
    pub(super) fn counts_fd(&self) -> BorrowedFd<'_> {
        self.counts.fd()
    }

    /// Largest size of a record.
    pub(super) fn most(&self) -> u32 {
        share(self.bytes, 1)
    }

    fn word(&self, number: u32) -> &AtomicU64 {
        &self.words.words(8 * number as usize)[0]
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
            let number = (word(room, 24) >> 32) as u32;
            if number != NO_USER && number <= self.most_users() {
                self.word(number).fetch_sub((bytes + PREFIX) as u64, Ordering::Relaxed);
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

/// The share of each user in a ring: all users together leave an eighth of it to root. One user has at most an eighth,
/// so that the next user's share is free at once, also if all others are used up.
fn share(bytes: u32, users: u32) -> u32 {
    (bytes / 8).min((bytes - bytes / 8) / users.max(1))
}

fn most_users(bytes: u32) -> u32 {
    (bytes - bytes / 8) / LEAST_SHARE
}

/// `bytes` has at least the size of a header.
fn record(bytes: &[u8]) -> Record<'_> {
    let data = &bytes[RECORD_HEADER as usize..];
    let length = (word(bytes, 24) as u32 as usize).min(data.len());
    Record { id: word(bytes, 0), time_ns: word(bytes, 8), deadline_ns: word(bytes, 16), data: &data[..length] }
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
    }

    #[test]
    fn a_user_keeps_the_number_as_long_as_handlers_or_records_exist() {
        let Ok(ring) = EventRing::new(65_536).map_err(crate::testing::skip) else { return };
        let (first, second) = (ring.number_of(1_000).unwrap(), ring.number_of(2_000).unwrap());
        assert_eq!((*first, *second, *ring.number_of(1_000).unwrap()), (1, 2, 1));
        ring.word(2).store(40, Ordering::Relaxed);
        drop((first, second));
        assert_eq!(*ring.number_of(3_000).unwrap(), 1, "that of the user without records");
        assert_eq!(*ring.number_of(2_000).unwrap(), 2);
    }

    #[test]
    fn the_shares_of_all_users_leave_an_eighth_to_root_and_room_for_the_next_user() {
        for bytes in [1 << 16, 1 << 20] {
            let root = bytes / 8;
            for users in 1..=most_users(bytes) {
                let each = share(bytes, users);
                assert!(users * each <= bytes - root && each >= LEAST_SHARE, "{users} users of {bytes} bytes");
                let before = (users - 1) * share(bytes, users - 1);
                assert!(before + each <= bytes, "the share of user {users} is free though all others are used up");
            }
        }
        assert_eq!((share(1 << 20, 1), share(1 << 20, 7), most_users(1 << 20)), (1 << 17, 1 << 17, 448));
    }

    #[test]
    fn the_share_follows_the_users_and_one_user_more_than_the_limit_is_refused() {
        let Ok(ring) = EventRing::new(65_536).map_err(crate::testing::skip) else { return };
        let mut users: Vec<_> = (0..ring.most_users()).map(|user| ring.number_of(user).unwrap()).collect();
        assert_eq!(ring.word(SHARE).load(Ordering::Relaxed), u64::from(LEAST_SHARE));
        assert!(ring.number_of(1_000).is_none());
        users.truncate(1);
        assert!(ring.number_of(1_000).is_some());
        assert_eq!(ring.word(SHARE).load(Ordering::Relaxed), 8192, "two users");
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
