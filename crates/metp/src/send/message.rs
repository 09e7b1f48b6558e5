//! A message on the sending side, and the list of its TPDUs (§5.2.1).

use qfabric_types::Instant;

use crate::blocks::{BLOCK, blocks_of};
use crate::{CarrierId, FrameKind};

/// What is known of a TPDU that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TpduState {
    InFlight,
    /// The receiver misses it, or its timeout passed: it is sent again.
    Lost,
    Acknowledged,
    /// It would arrive late if it was sent again.
    GivenUp,
}

/// A TPDU that was sent at least once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tpdu {
    /// Its place in the message, in blocks.
    pub(super) offset: u32,
    pub(super) blocks: u32,
    /// Number of the last transmission.
    pub(super) transmission: u64,
    /// Its carrier.
    pub(super) carrier: CarrierId,
    pub(super) state: TpduState,
    /// It was sent again, and no copy of this transmission followed.
    pub(super) is_copy_due: bool,
    /// How often it was sent again, without copies.
    pub(super) repetitions: u8,
}

/// Progress of the timeouts of a message (§5.2.1, item 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Timeout {
    /// No timeout since the last response.
    #[default]
    None,
    /// The first unacknowledged TPDU was sent again: the acknowledgments may have been lost.
    Optimistic,
    /// All unacknowledged TPDUs were sent again. After it, only the first one is repeated, at growing distances, because
    /// a path that is interrupted must not be flooded. The number is that of these timeouts.
    Pessimistic(u32),
}

#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) number: u64,
    pub(super) kind: FrameKind,
    pub(super) is_partial: bool,
    pub(super) deadline: Option<Instant>,
    pub(super) data: Vec<u8>,
    /// Position of the first block; `None` before the first byte is sent.
    pub(super) start: Option<u64>,
    /// Ascending, without gaps up to `cut_at`.
    pub(super) tpdus: Vec<Tpdu>,
    /// Blocks that were cut into TPDUs.
    pub(super) cut_at: u32,
    /// TPDUs in the state `Lost`.
    pub(super) lost: u32,
    /// TPDUs in flight of which a copy is due.
    pub(super) copies_due: u32,
    pub(super) acknowledged_bytes: u32,
    /// No more TPDUs are sent, because they would arrive late.
    pub(super) is_abandoned: bool,
    /// When the first TPDU was sent; `None` before.
    pub(super) first_sent: Option<Instant>,
    pub(super) last_sent: Instant,
    pub(super) timeout: Timeout,
    /// All TPDUs before this index are acknowledged or given up.
    first_open: usize,
}

impl OutgoingMessage {
    pub(super) fn new(number: u64, kind: FrameKind, data: Vec<u8>, mut tpdus: Vec<Tpdu>) -> OutgoingMessage {
        tpdus.clear();
        OutgoingMessage {
            number,
            kind,
            is_partial: false,
            deadline: None,
            data,
            start: None,
            tpdus,
            cut_at: 0,
            lost: 0,
            copies_due: 0,
            acknowledged_bytes: 0,
            is_abandoned: false,
            first_sent: None,
            last_sent: Instant::ZERO,
            timeout: Timeout::None,
            first_open: 0,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.data.len() as u32
    }

    pub(super) fn blocks(&self) -> u32 {
        blocks_of(self.size())
    }

    /// Position behind the last block; only for messages that were started.
    pub(super) fn end(&self) -> u64 {
        self.start.unwrap_or_default() + u64::from(self.blocks())
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.cut_at == self.blocks()
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged_bytes == self.size()
    }

    /// Bytes that are still to send, retransmissions included.
    pub(super) fn unsent_bytes(&self) -> u64 {
        let lost: u64 = match self.lost {
            0 => 0,
            _ => self.open().filter(|tpdu| tpdu.state == TpduState::Lost).map(|tpdu| self.bytes_of(tpdu)).sum(),
        };
        let rest = u64::from(self.size()).saturating_sub(u64::from(self.cut_at) * u64::from(BLOCK));
        lost + if self.is_abandoned { 0 } else { rest }
    }

    /// The data of a TPDU.
    pub(super) fn part(&self, offset: u32, blocks: u32) -> &[u8] {
        let [from, to] = [offset, offset + blocks].map(|block| (block as usize * BLOCK as usize).min(self.data.len()));
        &self.data[from..to]
    }

    fn bytes_of(&self, tpdu: &Tpdu) -> u64 {
        self.part(tpdu.offset, tpdu.blocks).len() as u64
    }

    fn open(&self) -> impl Iterator<Item = &Tpdu> {
        self.tpdus[self.first_open..].iter()
    }

    /// Index of the first lost TPDU, cut so that it has at most `most` blocks. A TPDU that was lost again, or whose timeout
    /// passed, may be too large for the path: it gets at most `safe` blocks.
    pub(super) fn first_lost(&mut self, most: u32, safe: u32) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let index = self.first_open + self.open().position(|tpdu| tpdu.state == TpduState::Lost)?;
        let tpdu = self.tpdus[index];
        let is_suspect = tpdu.repetitions > 0 || self.timeout != Timeout::None;
        let most = if is_suspect { most.min(safe) } else { most };
        if tpdu.blocks > most {
            self.tpdus[index].blocks = most;
            let rest = Tpdu { offset: tpdu.offset + most, blocks: tpdu.blocks - most, ..tpdu };
            self.tpdus.insert(index + 1, rest);
            self.lost += 1;
        }
        Some(index)
    }

    /// A range of positions was received. Returns the bytes that were not acknowledged before, and whether a TPDU with
    /// more than `safe` blocks is among them.
    pub(super) fn acknowledge(&mut self, from: u64, to: u64, safe: u32) -> (u32, bool) {
        let Some(start) = self.start.filter(|start| from < to && *start < to) else { return (0, false) };
        let (from, to) = (from.saturating_sub(start) as u32, (to - start).min(u64::from(self.blocks())) as u32);
        let first = self.first_open.max(self.tpdus.partition_point(|tpdu| tpdu.offset < from));
        let (mut bytes, mut is_large) = (0, false);
        for index in first..self.tpdus.len() {
            let tpdu = self.tpdus[index];
            if tpdu.offset + tpdu.blocks > to {
                break;
            }
            if tpdu.state != TpduState::Acknowledged {
                is_large |= tpdu.blocks > safe;
                bytes += self.bytes_of(&tpdu) as u32;
                self.set_state(index, TpduState::Acknowledged);
            }
        }
        self.acknowledged_bytes += bytes;
        self.skip_closed();
        (bytes, is_large)
    }

    /// A range of positions is missing. TPDUs of it whose last transmission is at most `lost_up_to` are lost. Returns how
    /// many of them have more than `safe` blocks.
    pub(super) fn reject(&mut self, from: u64, to: u64, lost_up_to: u64, safe: u32) -> u32 {
        let Some(start) = self.start.filter(|start| from < to && *start < to) else { return 0 };
        let mut large = 0;
        let (from, to) = (from.saturating_sub(start) as u32, (to - start).min(u64::from(self.blocks())) as u32);
        let first = self.first_open.max(self.tpdus.partition_point(|tpdu| tpdu.offset + tpdu.blocks <= from));
        for index in first..self.tpdus.len() {
            let tpdu = self.tpdus[index];
            if tpdu.offset >= to {
                break;
            }
            if tpdu.state == TpduState::InFlight && tpdu.transmission <= lost_up_to {
                large += u32::from(tpdu.blocks > safe);
                self.set_state(index, TpduState::Lost);
            }
        }
        large
    }

    /// All TPDUs in flight that meet the condition are lost.
    pub(super) fn lose(&mut self, mut condition: impl FnMut(&Tpdu) -> bool) {
        for index in self.first_open..self.tpdus.len() {
            if self.tpdus[index].state == TpduState::InFlight && condition(&self.tpdus[index]) {
                self.set_state(index, TpduState::Lost);
            }
        }
    }

    /// Lost TPDUs are not sent again. Returns their number.
    pub(super) fn give_up_lost(&mut self) -> u32 {
        let lost = self.lost;
        for index in self.first_open..self.tpdus.len() {
            if self.tpdus[index].state == TpduState::Lost {
                self.set_state(index, TpduState::GivenUp);
            }
        }
        self.skip_closed();
        lost
    }

    /// Index of the first TPDU of which a copy is due.
    pub(super) fn first_copy(&self) -> Option<usize> {
        if self.copies_due == 0 {
            return None;
        }
        Some(self.first_open + self.open().position(|tpdu| tpdu.is_copy_due)?)
    }

    pub(super) fn set_copy_due(&mut self, index: usize, is_due: bool) {
        let before = std::mem::replace(&mut self.tpdus[index].is_copy_due, is_due);
        self.copies_due -= u32::from(before);
        self.copies_due += u32::from(is_due);
    }

    pub(super) fn set_state(&mut self, index: usize, state: TpduState) {
        self.set_copy_due(index, false);
        let before = std::mem::replace(&mut self.tpdus[index].state, state);
        self.lost -= u32::from(before == TpduState::Lost);
        self.lost += u32::from(state == TpduState::Lost);
    }

    fn skip_closed(&mut self) {
        let is_open = |tpdu: &&Tpdu| !matches!(tpdu.state, TpduState::Acknowledged | TpduState::GivenUp);
        let closed = self.open().position(|tpdu| is_open(&tpdu)).unwrap_or(self.tpdus.len() - self.first_open);
        self.first_open += closed;
    }

    /// Whether a TPDU is in flight.
    pub(super) fn has_open(&self) -> bool {
        self.first_open < self.tpdus.len()
    }
}
