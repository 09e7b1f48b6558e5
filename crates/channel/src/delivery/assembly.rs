//! Assembles the fragments of one host's events: one event at a time, up to the largest size of an event.
//!
//! ```text
//! none ── from 0 ──> growing ── all there ──> none, and the event
//!   │                   └── a gap, or another event's ──> broken: the other fragments of the event are ignored
//!   └── not from 0 ──> broken
//! ```

use qfabric_types::{Instant, Nanos};

use crate::wire::Fragment;

/// An event is given up when no fragment of it has arrived for this time.
const STALE: Nanos = Nanos::from_millis(5_000);
/// The memory that is kept for the next event, in bytes.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// The event of the last fragment: its source and its number.
    of: Option<(u32, u64)>,
    state: State,
    /// The bytes that have arrived. A frame's statement about the event's length allocates no memory.
    bytes: Vec<u8>,
    /// The time of the last fragment.
    touched: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    Growing {
        total: u32,
    },
    Broken,
}

/// The result of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// More fragments are missing; they have to arrive by this time.
    More(Instant),
    /// The event is complete.
    Whole,
    /// The fragment came twice, or belongs to an event that is lost already.
    Passed,
}

impl Assembly {
    /// Adds a fragment; returns how many events are lost by it, and its result.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>, now: Instant) -> (u64, Gathered) {
        let of = Some((fragment.source, fragment.number));
        let mut lost = 0;
        // Copies of an event for single sinks have the event's number: a fragment after a complete copy begins another
        // one.
        if self.of != of || self.state == State::Empty {
            lost += self.give_up();
            self.of = of;
            self.state = if fragment.at == 0 { State::Growing { total: fragment.total } } else { State::Broken };
            lost += u64::from(self.state == State::Broken);
        }
        let State::Growing { total } = self.state else { return (lost, Gathered::Passed) };
        let (have, at) = (self.bytes.len(), fragment.at as usize);
        if at + fragment.bytes.len() <= have {
            return (lost, Gathered::Passed);
        }
        if at != have || total != fragment.total {
            lost += self.give_up();
            (self.of, self.state) = (of, State::Broken);
            return (lost, Gathered::Passed);
        }
        self.bytes.extend_from_slice(fragment.bytes);
        self.touched = now;
        if self.bytes.len() < total as usize { (lost, Gathered::More(now + STALE)) } else { (lost, Gathered::Whole) }
    }

    /// The bytes of a complete event; the next fragment begins another event.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.state = State::Empty;
        std::mem::take(&mut self.bytes)
    }

    /// Keeps the memory for the next event.
    pub(super) fn give_back(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
        self.bytes = bytes;
    }

    /// Gives up the incomplete event; returns how many there were (0 or 1).
    pub(super) fn give_up(&mut self) -> u64 {
        let lost = u64::from(matches!(self.state, State::Growing { .. }));
        (self.of, self.state) = (None, State::Empty);
        let bytes = std::mem::take(&mut self.bytes);
        self.give_back(bytes);
        lost
    }

    /// A whole frame of this source has arrived: no more fragments of an earlier event will come. Returns how many
    /// events are lost by it.
    pub(super) fn followed_by(&mut self, source: u32, number: u64) -> u64 {
        match self.of {
            Some((of, last)) if of == source && last < number => self.give_up(),
            // The event is withdrawn: it is late, not lost.
            Some(of) if of == (source, number) => {
                self.give_up();
                0
            }
            _ => 0,
        }
    }

    /// The time at which the incomplete event is given up.
    pub(super) fn due(&self) -> Option<Instant> {
        matches!(self.state, State::Growing { .. }).then(|| self.touched + STALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::new(7);

    fn part(number: u64, at: u32, bytes: &[u8]) -> Fragment<'_> {
        Fragment { source: 1, number, total: 6, at, bytes }
    }

    fn more() -> (u64, Gathered) {
        (0, Gathered::More(NOW + STALE))
    }

    #[test]
    fn fragments_in_order_make_the_event_and_the_next_begins_anew() {
        let mut assembly = Assembly::default();
        for number in [4, 5, 5] {
            assert_eq!(assembly.add(&part(number, 0, b"ab"), NOW), more());
            assert_eq!(assembly.add(&part(number, 0, b"ab"), NOW), (0, Gathered::Passed), "it came twice");
            assert_eq!(assembly.add(&part(number, 2, b"cde"), NOW), more());
            assert_eq!(assembly.add(&part(number, 5, b"f"), NOW), (0, Gathered::Whole));
            let bytes = assembly.take();
            assert_eq!((&bytes[..], assembly.due()), (&b"abcdef"[..], None));
            assembly.give_back(bytes);
        }
    }

    #[test]
    fn an_event_with_a_gap_is_lost_once_and_the_next_one_is_not() {
        let mut assembly = Assembly::default();
        assembly.add(&part(1, 0, b"ab"), NOW);
        assert_eq!(assembly.add(&part(1, 3, b"d"), NOW), (1, Gathered::Passed));
        assert_eq!(assembly.add(&part(1, 4, b"ef"), NOW), (0, Gathered::Passed), "this loss was counted before");
        assert_eq!(assembly.add(&part(2, 2, b"cd"), NOW), (1, Gathered::Passed), "its first fragment is lost");
        assert_eq!(assembly.add(&part(3, 0, b"ab"), NOW), more());
        assert_eq!(assembly.add(&part(4, 0, b"ab"), NOW), (1, Gathered::More(NOW + STALE)), "the end of 3 is lost");
        assert_eq!(assembly.add(&Fragment { total: 7, ..part(4, 2, b"cd") }, NOW), (1, Gathered::Passed));
    }

    #[test]
    fn what_does_not_go_on_is_given_up_and_takes_no_memory() {
        let mut assembly = Assembly::default();
        assembly.add(&Fragment { total: 1 << 20, ..part(1, 0, b"ab") }, NOW);
        assert!(assembly.bytes.capacity() < 64, "the stated length allocates no memory");
        assert_eq!(assembly.due(), Some(NOW + STALE));
        assert_eq!((assembly.give_up(), assembly.due(), assembly.give_up()), (1, None, 0));
        assembly.add(&part(2, 0, b"ab"), NOW);
        assert_eq!(assembly.followed_by(2, 9), 0, "the frame is another source's");
        assert_eq!(assembly.followed_by(1, 2), 0, "it is withdrawn: late, not lost");
        assembly.add(&part(3, 0, b"ab"), NOW);
        assert_eq!((assembly.followed_by(1, 4), assembly.due()), (1, None));
    }
}
