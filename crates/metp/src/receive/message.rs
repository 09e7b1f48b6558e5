//! A message that is being received.

use std::ops::Range;

use qfabric_types::{Instant, Nanos};

use crate::FrameKind;
use crate::bitmap::RingBitmap;
use crate::blocks::{BLOCK, blocks_of};
use crate::clock::PeerClock;

#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) number: u64,
    /// Position of the first block.
    pub(super) start: u64,
    pub(super) size: u32,
    pub(super) kind: FrameKind,
    pub(super) is_partial: bool,
    /// All TPDUs of the message so far were sent while an earlier reliable message had no outcome.
    pub(super) is_behind_reliable: bool,
    /// Time of sending of the first TPDU that arrived, in µs of the sender's clock.
    pub(super) sent_us: u64,
    /// Time from `sent_us` to the deadline.
    pub(super) remaining: Option<Nanos>,
    pub(super) first_at: Instant,
    /// Arrival of the last TPDU that brought something new.
    pub(super) last_at: Instant,
    pub(super) arrived_blocks: u32,
    /// Delivered before an earlier message.
    pub(super) is_delivered: bool,
}

impl Incoming {
    pub(super) fn blocks(&self) -> u32 {
        blocks_of(self.size)
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.blocks())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrived_blocks == self.blocks()
    }

    /// The deadline on this host's clock.
    pub(super) fn deadline(&self, clock: &PeerClock) -> Option<Instant> {
        self.remaining.map(|remaining| clock.local(self.sent_us, remaining))
    }

    /// When the message is delivered with what has arrived: at its deadline, or after the maximum time for a receive.
    pub(super) fn due_at(&self, clock: &PeerClock, receive_time: Option<Nanos>) -> Option<Instant> {
        let limit = receive_time.map(|time| self.first_at + time);
        self.deadline(clock).into_iter().chain(limit).min().filter(|_| self.is_partial)
    }

    /// Bytes that arrived. The last block may have fewer than eight.
    pub(super) fn arrived_bytes(&self, map: &RingBitmap) -> u32 {
        let has_last = map.find(self.end() - 1..self.end(), true) < self.end();
        let padding = if has_last { self.blocks() * BLOCK - self.size } else { 0 };
        self.arrived_blocks * BLOCK - padding
    }
}
