//! The frames that wait to be sent to one host: large events, and later frames of their sources.
//!
//! A large event would fill every queue between two hosts at once, and the network would drop most of its fragments.
//! Therefore each host has a pipe: fragments are sent as long as [`Flow`](super::flow::Flow) has room, and the others wait
//! until earlier ones have arrived. Pieces are sent one after the other in the order of their submission, so the receiver
//! assembles one event at a time. When a pipe is full, the channel's back-pressure decides: the source waits, or the event
//! is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_types::Instant;

use crate::Limits;
use crate::wire::{Fragment, PREFIX, withdraw};

/// A frame that waits, or the unsent part of one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub source: u32,
    /// The event's number.
    pub number: u64,
    /// The frame in its unfragmented form; hosts that get the same frame share it.
    pub frame: Arc<Vec<u8>>,
    /// The event is of no use after this time.
    pub deadline: Option<Instant>,
    /// The length of the frame's head, which remains if the event is withdrawn.
    pub head: usize,
    /// Bytes of the body that were sent.
    pub sent: usize,
}

/// The next frame to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A whole frame.
    Frame(&'a Arc<Vec<u8>>),
    /// A fragment of a frame.
    Part(Fragment<'a>),
    /// The frame of a withdrawn event: its deadline has passed.
    Late(Vec<u8>),
}

/// The pieces for one host.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pieces: VecDeque<Piece>,
    /// The unsent bytes of all pieces.
    bytes: usize,
}

impl Piece {
    /// An unsent frame, of an event or of a mark.
    pub(super) fn new(source: u32, frame: Arc<Vec<u8>>) -> Piece {
        Piece { source, number: 0, frame, deadline: None, head: 0, sent: 0 }
    }

    fn body(&self) -> &[u8] {
        &self.frame[PREFIX..]
    }

    fn left(&self) -> usize {
        self.body().len() - self.sent
    }

    fn is_large(&self) -> bool {
        self.body().len() > Limits::FRAGMENT
    }

    /// The next frame of this piece at `now`.
    fn next(&self, now: Instant) -> Next<'_> {
        if self.deadline.is_some_and(|deadline| deadline < now) {
            let mut frame = self.frame[..self.head].to_vec();
            withdraw(&mut frame, self.head);
            return Next::Late(frame);
        }
        if !self.is_large() {
            return Next::Frame(&self.frame);
        }
        let (total, at) = (self.body().len(), self.sent);
        let bytes = &self.body()[at..total.min(at + Limits::FRAGMENT)];
        Next::Part(Fragment { source: self.source, number: self.number, total: total as u32, at: at as u32, bytes })
    }
}

impl Pipe {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Unsent bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a source of a channel that blocks has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= Limits::WAITING_BLOCKS
    }

    /// Whether a waiting source may go on: half of the room has to be free, otherwise the source would wait again at
    /// once.
    pub(super) fn is_drained(&self) -> bool {
        self.bytes <= Limits::WAITING_BLOCKS / 2
    }

    /// Whether the pipe has room for this number of bytes more.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= Limits::WAITING
    }

    /// Whether a frame of this source waits.
    pub(super) fn has(&self, source: u32) -> bool {
        self.pieces.iter().any(|piece| piece.source == source)
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.bytes += piece.left();
        self.pieces.push_back(piece);
    }

    /// The next frame to send, if `has_room` accepts its size.
    pub(super) fn next(&self, now: Instant, has_room: impl FnOnce(usize) -> bool) -> Option<Next<'_>> {
        let next = self.pieces.front()?.next(now);
        let bytes = match &next {
            Next::Frame(frame) => frame.len(),
            Next::Part(part) => part.bytes.len(),
            Next::Late(frame) => frame.len(),
        };
        has_room(bytes).then_some(next)
    }

    /// The frame of [`Pipe::next`] was sent. Returns the source of a piece that is now complete.
    pub(super) fn sent(&mut self, now: Instant) -> Option<u32> {
        let piece = self.pieces.front_mut()?;
        let part = match piece.next(now) {
            Next::Part(part) => part.bytes.len(),
            Next::Frame(_) | Next::Late(_) => piece.left(),
        };
        piece.sent += part;
        self.bytes -= part;
        let (left, source) = (piece.left(), piece.source);
        (left == 0).then(|| {
            self.pieces.pop_front();
            source
        })
    }

    /// The host is gone: discards all pieces and returns their sources.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = u32> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces).into_iter().map(|piece| piece.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(body: usize) -> Piece {
        let frame = (0..PREFIX + body).map(|at| at as u8).collect();
        Piece { number: 9, head: PREFIX + 4, ..Piece::new(3, Arc::new(frame)) }
    }

    /// Sends all frames for which `room` has space.
    fn run(pipe: &mut Pipe, now: Instant) -> (Vec<usize>, Vec<u32>) {
        let (mut lengths, mut done) = (Vec::new(), Vec::new());
        while let Some(next) = pipe.next(now, |_| true) {
            lengths.push(match next {
                Next::Frame(frame) => frame.len(),
                Next::Part(part) => part.bytes.len(),
                Next::Late(frame) => frame.len(),
            });
            done.extend(pipe.sent(now));
        }
        (lengths, done)
    }

    #[test]
    fn a_large_piece_goes_in_fragments_and_a_small_one_behind_it_as_it_is() {
        let mut pipe = Pipe::default();
        pipe.push(piece(2 * Limits::FRAGMENT + 5));
        pipe.push(piece(40));
        assert!(pipe.has(3) && !pipe.has(4) && pipe.bytes() == 2 * Limits::FRAGMENT + 45);
        let (lengths, done) = run(&mut pipe, Instant::ZERO);
        assert_eq!(lengths, [Limits::FRAGMENT, Limits::FRAGMENT, 5, PREFIX + 40]);
        assert_eq!((done, pipe.bytes(), pipe.is_empty()), (vec![3, 3], 0, true));
    }

    #[test]
    fn a_piece_whose_time_passes_is_withdrawn_in_the_middle() {
        let (mut pipe, late) = (Pipe::default(), Instant::new(5));
        pipe.push(Piece { deadline: Some(late), ..piece(2 * Limits::FRAGMENT) });
        let Some(Next::Part(first)) = pipe.next(late, |_| true) else { panic!("its deadline has not passed") };
        assert_eq!((first.at, first.number, first.total as usize), (0, 9, 2 * Limits::FRAGMENT));
        assert_eq!(pipe.sent(late), None);
        let (lengths, done) = run(&mut pipe, Instant::new(6));
        assert_eq!((lengths, done, pipe.bytes()), (vec![PREFIX + 4], vec![3], 0));
    }

    #[test]
    fn nothing_goes_where_there_is_no_room_and_a_host_that_is_gone_leaves_nothing() {
        let mut pipe = Pipe::default();
        pipe.push(piece(Limits::WAITING_BLOCKS));
        assert!(pipe.is_full() && !pipe.is_drained() && pipe.has_room(Limits::WAITING - Limits::WAITING_BLOCKS));
        assert!(!pipe.has_room(Limits::WAITING - Limits::WAITING_BLOCKS + 1));
        assert_eq!(pipe.next(Instant::ZERO, |_| false), None);
        assert_eq!((pipe.clear().collect::<Vec<_>>(), pipe.bytes()), (vec![3], 0));
    }
}
