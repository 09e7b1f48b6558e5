//! The receiving half: reassembly, delivery in order or at the deadline, group acknowledgments (§5.2.2).
//!
//! The data lies in one ring, at the place that its position in the sequence space determines. A message never wraps
//! around: the ring has room for one largest message behind its end. So the memory is allocated once, and no datagram
//! can make it grow.

mod delivery;
mod holes;
mod message;
mod reporting;
mod transmissions;

use std::collections::VecDeque;

use qfabric_types::{Bytes, Instant, Nanos};

use crate::bitmap::RingBitmap;
use crate::blocks::{BLOCK, extended};
use crate::clock::PeerClock;
use crate::statistics::DelayHistogram;
use crate::wire::{Data, HEADER_BYTES, Status};
use crate::{Config, DeliveryOrder, Statistics};
pub(crate) use delivery::Event;
pub use holes::Holes;
use message::Incoming;
use reporting::Reporting;
use transmissions::Transmissions;

/// The receiving half of a session.
#[derive(Debug)]
pub(crate) struct Receiver {
    largest_message: u32,
    messages_in_flight: usize,
    accepted_tpdu: u16,
    receive_time: Option<Nanos>,
    order: DeliveryOrder,
    is_receiving: bool,
    ring: Box<[u8]>,
    /// Which blocks of the window have arrived.
    map: RingBitmap,
    /// Messages of which a TPDU has arrived, by number.
    messages: VecDeque<Incoming>,
    /// All messages below this number are settled: delivered or given up.
    floor_number: u64,
    /// The memory of all blocks below this position is free.
    floor_block: u64,
    /// The end of the blocks that were sent, as far as this side knows.
    seen_end: u64,
    /// The message whose bytes the application reads now.
    lent: Option<Incoming>,
    clock: PeerClock,
    transmissions: Transmissions,
    reporting: Reporting,
    /// The last status of the peer.
    status: Option<Status>,
    /// Parts of the status that were put out as events.
    announced: Announcements,
    statistics: Statistics,
    delays: DelayHistogram,
}

/// Parts of a status that the caller knows from events.
#[derive(Clone, Copy, Debug, Default)]
struct Announcements {
    mode_from: u64,
    is_finished: bool,
}

/// Why a TPDU was not taken. Its counter is the only trace of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Its message is settled.
    Late,
    /// It contradicts a limit or another TPDU.
    Impossible,
}

impl Receiver {
    pub(crate) fn new(config: &Config, now: Instant) -> Receiver {
        let map = RingBitmap::new(config.receive_memory.get() / u64::from(BLOCK));
        let spill = config.largest_message.round_up(u64::from(BLOCK)).get();
        let bytes = if map.capacity() == 0 { 0 } else { map.capacity() * u64::from(BLOCK) + spill };
        Receiver {
            largest_message: if map.capacity() == 0 { 0 } else { config.largest_message.get() as u32 },
            messages_in_flight: usize::from(config.messages_in_flight),
            accepted_tpdu: config.accepted_tpdu,
            receive_time: config.receive_time,
            order: config.order,
            is_receiving: true,
            ring: vec![0; bytes as usize].into(),
            map,
            messages: VecDeque::with_capacity(usize::from(config.messages_in_flight)),
            floor_number: 0,
            floor_block: 0,
            seen_end: 0,
            lent: None,
            clock: PeerClock::default(),
            transmissions: Transmissions::default(),
            reporting: Reporting::new(now),
            status: None,
            announced: Announcements::default(),
            statistics: Statistics::default(),
            delays: DelayHistogram::new(),
        }
    }

    /// Takes a data TPDU.
    pub(crate) fn on_data(&mut self, now: Instant, data: &Data, part: &[u8]) {
        self.release();
        if part.len() + usize::from(HEADER_BYTES) > usize::from(self.accepted_tpdu) {
            self.statistics.refused += 1;
            return;
        }
        let index = match self.place(now, data) {
            Ok(index) => index,
            Err(refusal) => return self.refuse(now, data, refusal),
        };
        self.arrive(now, data);
        self.messages[index].is_behind_reliable &= data.is_behind_reliable;
        let message = self.messages[index];
        let from = message.start + u64::from(data.offset);
        let to = from + u64::from(crate::blocks::blocks_of(part.len() as u32));
        let new = self.map.set(from..to);
        self.seen_end = self.seen_end.max(if data.is_all_sent { message.end() } else { to });
        if new == 0 {
            self.statistics.duplicates += 1;
            return self.reporting.soon(now);
        }
        let at = self.place_in_ring(message.start) + data.offset as usize * BLOCK as usize;
        self.ring[at..at + part.len()].copy_from_slice(part);
        self.on_new_blocks(now, index, new, data.is_all_sent);
    }

    fn on_new_blocks(&mut self, now: Instant, index: usize, new: u32, is_all_sent: bool) {
        let message = &mut self.messages[index];
        message.arrived_blocks += new;
        message.last_at = now;
        if message.is_complete() {
            self.reporting.soon(now);
        } else if is_all_sent {
            self.reporting.at_once();
        } else {
            self.reporting.on_tpdu(now);
        }
    }

    /// What every valid TPDU tells about the network.
    fn arrive(&mut self, now: Instant, data: &Data) {
        self.clock.on_arrival(now, data.sent_us);
        self.reporting.echo(now, data.sent_us);
        if self.transmissions.on_arrival(now, data.transmission) {
            self.reporting.at_once();
        }
    }

    fn refuse(&mut self, now: Instant, data: &Data, refusal: Refusal) {
        match refusal {
            Refusal::Late => {
                self.arrive(now, data);
                self.statistics.late_tpdus += 1;
                self.reporting.soon(now);
            }
            Refusal::Impossible => self.statistics.refused += 1,
        }
    }

    /// The index of the TPDU's message; the message is added if this is its first TPDU.
    fn place(&mut self, now: Instant, data: &Data) -> Result<usize, Refusal> {
        let extent = &data.extent;
        let incoming = Incoming {
            number: extended(u32::from(extent.number), 16, self.floor_number),
            start: extended(extent.start, 32, self.floor_block),
            size: extent.size,
            kind: extent.kind,
            is_partial: extent.is_partial,
            is_behind_reliable: data.is_behind_reliable,
            sent_us: u64::from(data.sent_us),
            remaining: data.remaining_ms.map(|ms| Nanos::from_millis(u64::from(ms))),
            first_at: now,
            last_at: now,
            arrived_blocks: 0,
            is_delivered: false,
        };
        if incoming.end() <= self.floor_block && incoming.number < self.floor_number {
            return Err(Refusal::Late);
        }
        let found = self.messages.binary_search_by_key(&incoming.start, |message| message.start);
        match found {
            Ok(index) if is_same(&self.messages[index], &incoming) => Ok(index),
            Ok(_) => Err(Refusal::Impossible),
            Err(index) if self.fits(index, &incoming) => {
                let sent_us = self.clock.peek(now, data.sent_us);
                self.messages.insert(index, Incoming { sent_us, ..incoming });
                Ok(index)
            }
            Err(_) => Err(Refusal::Impossible),
        }
    }

    /// Whether a new message fits between its neighbours, and into the memory.
    fn fits(&self, index: usize, new: &Incoming) -> bool {
        let before = index.checked_sub(1).map(|before| &self.messages[before]);
        let (first_number, first_block) =
            before.map_or((self.floor_number, self.floor_block), |before| (before.number + 1, before.end()));
        let is_behind = new.number >= first_number && new.start >= first_block;
        // Blocks between two messages belong to a message between them.
        let is_gapless = new.number > first_number || new.start == first_block;
        let is_before = self.messages.get(index).is_none_or(|next| {
            let is_gapless = next.number > new.number + 1 || next.start == new.end();
            new.number < next.number && new.end() <= next.start && is_gapless
        });
        new.size <= self.largest_message
            && new.end() <= self.floor_block + self.map.capacity()
            && self.messages.len() < self.messages_in_flight
            && is_behind
            && is_gapless
            && is_before
    }

    /// Takes the peer's status, unless a later one has arrived. Returns whether it is possible.
    pub(crate) fn on_status(&mut self, now: Instant, status: &Status) -> bool {
        self.release();
        self.reporting.soon(now);
        if self.status.is_some_and(|last| last.version > status.version) {
            return true;
        }
        let is_split = |message: &Incoming| {
            let is_below = message.number < status.floor_number;
            if is_below { message.end() > status.floor_block } else { message.start < status.floor_block }
        };
        let is_new = status.floor_number > self.floor_number;
        let is_outside = status.floor_block < self.floor_block
            || status.floor_block > self.floor_block + self.map.capacity()
            || self.messages.iter().any(is_split);
        if is_new && is_outside {
            return false;
        }
        self.clock.set_min_rtt_us(status.min_rtt_us);
        self.status = Some(*status);
        true
    }

    pub(crate) fn set_receiving(&mut self, is_receiving: bool) {
        self.is_receiving = is_receiving;
    }

    pub(crate) fn ask_for_report(&mut self) {
        self.reporting.at_once();
    }

    /// Whether the peer finished, and all its messages are settled.
    pub(crate) fn is_finished(&self) -> bool {
        self.announced.is_finished
    }

    /// The bytes of the message that is lent to the application.
    pub(crate) fn lent(&self) -> &[u8] {
        let Some(message) = &self.lent else { return &[] };
        let at = self.place_in_ring(message.start);
        &self.ring[at..at + message.size as usize]
    }

    pub(crate) fn holes(&self) -> Holes<'_> {
        Holes::of(&self.map, self.lent.as_ref())
    }

    fn place_in_ring(&self, start: u64) -> usize {
        (start % self.map.capacity().max(1)) as usize * BLOCK as usize
    }

    /// Memory of the ring and of the map; it does not change.
    pub(crate) fn memory(&self) -> Bytes {
        Bytes::new(self.ring.len() as u64 + self.map.capacity() / 8)
    }

    /// The earliest time at which [`Receiver::on_time`] or a delivery has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let front = self.messages.front().and_then(|front| front.due_at(&self.clock, self.receive_time));
        [front, self.transmissions.next_wakeup(), self.reporting.next_wakeup()].into_iter().flatten().min()
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.transmissions.on_time(now) {
            self.reporting.at_once();
        }
    }
}

/// Whether a TPDU describes its message as the first one did.
fn is_same(known: &Incoming, other: &Incoming) -> bool {
    let key = |message: &Incoming| (message.number, message.size, message.kind, message.is_partial);
    key(known) == key(other)
}
