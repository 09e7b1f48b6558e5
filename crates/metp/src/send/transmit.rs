//! Chooses the next TPDU and writes it.

use qfabric_types::{Instant, Nanos};

use super::message::{OutgoingMessage, Tpdu, TpduState};
use super::{Sender, Way, block_capacity};
use crate::blocks::BLOCK;
use crate::bucket::TokenBucket;
use crate::clock::low_us;
use crate::wire::{Data, Extent, HEADER_BYTES};

/// Datagrams that leave together: QUIC passes as many to the kernel in one call.
const BATCH: u64 = 10;

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The datagram was written.
    Sent,
    /// The token bucket has the tokens at this time; `None` at rate zero.
    Wait(Option<Instant>),
    /// There is nothing to send.
    Idle,
}

/// A TPDU to send: the index of its message and of the TPDU in the message's list, which ends before a new TPDU.
#[derive(Clone, Copy, Debug)]
struct Choice {
    message: usize,
    tpdu: usize,
    offset: u32,
    blocks: u32,
}

impl Sender {
    /// Writes the next data TPDU: retransmissions first, oldest message first.
    pub(crate) fn transmit(&mut self, now: Instant, way: Way, bucket: &mut TokenBucket, out: &mut Vec<u8>) -> Step {
        self.way = way;
        let most = block_capacity(self.limit(way));
        let Some(choice) = self.choose(now, most, bucket) else { return Step::Idle };
        let data = self.queue[choice.message].part(choice.offset, choice.blocks).len() as u64;
        let datagram = data + u64::from(HEADER_BYTES);
        match bucket.take(now, datagram + u64::from(way.overhead)) {
            Err(at) => Step::Wait(at.map(|at| at.max(self.batch_at(now, bucket)))),
            Ok(()) => {
                self.write(now, choice, out);
                self.record(now, choice);
                self.statistics.sent_bytes += datagram;
                Step::Sent
            }
        }
    }

    /// When as many datagrams can leave as one system call takes, or all: fewer wake-ups, and the last byte is as early.
    fn batch_at(&self, now: Instant, bucket: &TokenBucket) -> Instant {
        let unsent = self.bytes_on_wire(self.queue.iter().map(OutgoingMessage::unsent_bytes).sum());
        bucket.batch_at(now, unsent.min(self.batch()))
    }

    /// Bytes of a batch of the largest datagrams.
    pub(super) fn batch(&self) -> u64 {
        BATCH * u64::from(self.limit(self.way) + self.way.overhead)
    }

    fn choose(&mut self, now: Instant, most: u32, bucket: &TokenBucket) -> Option<Choice> {
        for message in 0..self.started {
            if let Some(choice) = self.choose_lost(message, now, most) {
                return Some(choice);
            }
        }
        match self.started.checked_sub(1).filter(|last| !self.is_over(*last)) {
            Some(last) if !self.is_late(&self.queue[last], now) => return Some(self.next_part(last, most)),
            Some(last) => self.queue[last].is_abandoned = true,
            None => {}
        }
        if self.start_next(now, bucket) {
            return Some(self.next_part(self.started - 1, most));
        }
        (0..self.started).find_map(|message| self.choose_copy(message, now, most))
    }

    /// A TPDU to send once more, because its retransmission may be lost, too, and nothing else needs the rate.
    fn choose_copy(&self, message: usize, now: Instant, most: u32) -> Option<Choice> {
        let chosen = &self.queue[message];
        let tpdu = chosen.first_copy().filter(|_| !self.is_late(chosen, now))?;
        let Tpdu { offset, blocks, .. } = chosen.tpdus[tpdu];
        (blocks <= most).then_some(Choice { message, tpdu, offset, blocks })
    }

    /// The first lost TPDU of a message. Retransmissions that would arrive late are refused.
    fn choose_lost(&mut self, message: usize, now: Instant, most: u32) -> Option<Choice> {
        if self.queue[message].lost == 0 {
            return None;
        }
        if self.is_late(&self.queue[message], now) {
            self.statistics.refused_late += u64::from(self.queue[message].give_up_lost());
            return None;
        }
        let tpdu = self.queue[message].first_lost(most, self.sizes.safe_blocks())?;
        let Tpdu { offset, blocks, .. } = self.queue[message].tpdus[tpdu];
        Some(Choice { message, tpdu, offset, blocks })
    }

    /// Whether nothing of a started message is left to send for the first time.
    fn is_over(&self, message: usize) -> bool {
        self.queue[message].is_all_sent() || self.queue[message].is_abandoned
    }

    fn next_part(&self, message: usize, most: u32) -> Choice {
        let chosen = &self.queue[message];
        Choice {
            message,
            tpdu: chosen.tpdus.len(),
            offset: chosen.cut_at,
            blocks: most.min(chosen.blocks() - chosen.cut_at),
        }
    }

    /// Gives the next message its place in the sequence space, if the peer has memory for all of it.
    fn start_next(&mut self, now: Instant, bucket: &TokenBucket) -> bool {
        self.drop_late(now, bucket);
        let Some(next) = self.queue.get_mut(self.started) else {
            self.blocked_since = None;
            return false;
        };
        if self.next_block + u64::from(next.blocks()) > self.peer.window_end {
            self.blocked_since.get_or_insert(now);
            return false;
        }
        self.blocked_since = None;
        next.start = Some(self.next_block);
        self.next_block = next.end();
        self.started += 1;
        true
    }

    fn write(&mut self, now: Instant, choice: Choice, out: &mut Vec<u8>) {
        let message = &self.queue[choice.message];
        let extent = Extent {
            start: message.start.unwrap_or_default() as u32,
            number: message.number as u16,
            size: message.size(),
            kind: message.kind,
            is_partial: message.is_partial,
        };
        let header = Data {
            extent,
            transmission: (self.next_transmission & 0xff_ffff) as u32,
            sent_us: low_us(now),
            offset: choice.offset,
            remaining_ms: message.deadline.map(|deadline| whole_ms(deadline.since(now))),
            is_retransmission: choice.tpdu < message.tpdus.len(),
            is_behind_reliable: self.queue.range(..choice.message).any(|earlier| !earlier.is_partial),
            is_all_sent: message.is_all_sent() || choice.offset + choice.blocks == message.blocks(),
        };
        header.write(self.tag, out);
        out.extend_from_slice(message.part(choice.offset, choice.blocks));
    }

    fn record(&mut self, now: Instant, choice: Choice) {
        let (transmission, carrier) = (self.next_transmission, self.way.carrier);
        let message = &mut self.queue[choice.message];
        self.next_transmission += 1;
        self.statistics.tpdus += 1;
        message.first_sent.get_or_insert(now);
        message.last_sent = now;
        if choice.tpdu < message.tpdus.len() {
            let tpdu = &mut message.tpdus[choice.tpdu];
            let is_copy = tpdu.is_copy_due;
            tpdu.repetitions = tpdu.repetitions.saturating_add(u8::from(!is_copy));
            (tpdu.transmission, tpdu.carrier) = (transmission, carrier);
            message.set_state(choice.tpdu, TpduState::InFlight);
            message.set_copy_due(choice.tpdu, !is_copy && message.is_partial && message.deadline.is_some());
            self.statistics.retransmissions += 1;
            self.statistics.copies += u64::from(is_copy);
            return;
        }
        let Choice { offset, blocks, .. } = choice;
        let state = TpduState::InFlight;
        message.tpdus.push(Tpdu { offset, blocks, transmission, carrier, state, is_copy_due: false, repetitions: 0 });
        message.cut_at += blocks;
        debug_assert!(u64::from(message.cut_at) * u64::from(BLOCK) < u64::from(message.size() + BLOCK));
    }
}

/// Rounded up, at most what can travel.
fn whole_ms(time: Nanos) -> u16 {
    time.get().div_ceil(1_000_000).min(u64::from(Data::MOST_REMAINING_MS)) as u16
}
