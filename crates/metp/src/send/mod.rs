//! The sending half: queue, segmentation, acknowledgments, retransmissions, deadlines (§5.2.1, §5.2.4).
//!
//! ```text
//! queued ──first byte──> sending ──last TPDU──> sent ──all acknowledged──> Delivered
//!   │ dropped, or deadline     │ late                │ deadline + timeout
//!   v                          v                     v
//! Dropped, Expired          abandoned ───────────> Partly, Expired
//! ```

mod acknowledge;
mod dropping;
mod message;
mod sizes;
mod spare;
mod status;
mod timers;
mod transmit;

use std::collections::VecDeque;

use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::blocks::BLOCK;
use crate::bucket::TokenBucket;
use crate::carriers::Carrier;
use crate::timing::RoundTrip;
use crate::wire::{Data, HEADER_BYTES, MIN_TPDU};
use crate::{
    CarrierId, CarrierInfo, Config, DropReason, FrameKind, InvalidConfig, MessageNumber, Mode, Outcome, Outgoing,
    Output, SendRefusal, Statistics, TPDU_SIZES,
};
use dropping::Waiting;
use message::OutgoingMessage;
use sizes::Sizes;
use spare::Spare;
use status::StatusState;
pub(crate) use transmit::Step;

/// Size of datagrams until the peer has stated its limit.
pub(crate) const INITIAL_TPDU: u16 = 1_200;
/// The peer has at least this memory, in blocks, if it receives messages at all.
pub(crate) const INITIAL_WINDOW: u64 = 8_192;

/// The sending half of a session.
#[derive(Debug)]
pub(crate) struct Sender {
    tag: u16,
    largest_message: u32,
    messages_in_flight: usize,
    memory: u64,
    send_time: Option<Nanos>,
    mode: Mode,
    mode_from: u64,
    /// Messages without an outcome, by number. The first `started` ones have a position in the sequence space.
    queue: VecDeque<OutgoingMessage>,
    started: usize,
    next_number: u64,
    next_block: u64,
    next_transmission: u64,
    queued_bytes: u64,
    spare: Spare,
    /// Bounded by `messages_in_flight` together with the queue.
    outcomes: VecDeque<Output>,
    round_trip: RoundTrip,
    peer: Peer,
    tpdu_size: u16,
    /// Largest datagram and overhead of the carrier of the last TPDU; the estimates of times use them.
    way: Way,
    status: StatusState,
    sizes: Sizes,
    is_finishing: bool,
    /// The first message that waits for the peer's memory does so since this time.
    blocked_since: Option<Instant>,
    statistics: Statistics,
}

/// What the peer stated in its reports.
#[derive(Debug)]
struct Peer {
    window_end: u64,
    /// `None` before the first report.
    largest_message: Option<u32>,
    tpdu_size: u16,
    /// All messages below this number are settled.
    settled: u64,
    duplicates: u16,
}

/// The carrier of data TPDUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) carrier: CarrierId,
    pub(crate) max_datagram: u16,
    pub(crate) overhead: u16,
}

impl Way {
    pub(crate) fn of(carrier: &Carrier) -> Way {
        let CarrierInfo { max_datagram, overhead, .. } = carrier.info;
        Way { carrier: carrier.id, max_datagram, overhead }
    }
}

impl Sender {
    pub(crate) fn new(config: &Config, now: Instant) -> Sender {
        Sender {
            tag: config.tag,
            largest_message: config.largest_message.get() as u32,
            messages_in_flight: usize::from(config.messages_in_flight),
            memory: config.send_memory.get(),
            send_time: config.send_time,
            mode: config.mode,
            mode_from: 0,
            queue: VecDeque::with_capacity(usize::from(config.messages_in_flight)),
            started: 0,
            next_number: 0,
            next_block: 0,
            next_transmission: 0,
            queued_bytes: 0,
            spare: Spare::default(),
            outcomes: VecDeque::with_capacity(usize::from(config.messages_in_flight)),
            round_trip: RoundTrip::new(now, None),
            peer: Peer {
                window_end: INITIAL_WINDOW,
                largest_message: None,
                tpdu_size: INITIAL_TPDU,
                settled: 0,
                duplicates: 0,
            },
            tpdu_size: config.tpdu_size,
            way: Way { carrier: CarrierId(0), max_datagram: config.tpdu_size, overhead: 0 },
            status: StatusState::default(),
            sizes: Sizes::default(),
            is_finishing: false,
            blocked_since: None,
            statistics: Statistics::default(),
        }
    }

    /// Queues a message that has been there since `since`.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        since: Instant,
        outgoing: Outgoing<'_>,
        bucket: &TokenBucket,
    ) -> Result<MessageNumber, SendRefusal> {
        self.check(outgoing.data)?;
        let number = self.next_number;
        self.next_number += 1;
        let (mut data, tpdus) = self.spare.take(outgoing.data.len());
        data.extend_from_slice(outgoing.data);
        let mut message = OutgoingMessage::new(number, outgoing.kind, data, tpdus);
        message.is_partial = self.mode == Mode::PartiallyReliable;
        let limit = outgoing.deadline.or(self.send_time.filter(|_| message.is_partial));
        let longest = Nanos::from_millis(u64::from(Data::MOST_REMAINING_MS));
        message.deadline = limit.map(|limit| since + limit.min(longest));
        self.queued_bytes += u64::from(message.size());
        self.queue.push_back(message);
        self.statistics.messages += 1;
        if let Some(limit) = self.peer.largest_message {
            self.drop_too_large(limit);
        }
        self.drop_late(now, bucket);
        Ok(MessageNumber::new(number))
    }

    fn check(&self, data: &[u8]) -> Result<(), SendRefusal> {
        let size = Bytes::new(data.len() as u64);
        let limit = Bytes::new(u64::from(self.largest_message));
        let (waiting, memory) = (Bytes::new(self.queued_bytes), Bytes::new(self.memory));
        let messages = self.queue.len() + self.outcomes.len();
        if self.is_finishing {
            Err(SendRefusal::Finished)
        } else if data.is_empty() {
            Err(SendRefusal::Empty)
        } else if size > limit {
            Err(SendRefusal::TooLarge { size, limit })
        } else if messages >= self.messages_in_flight {
            let (messages, limit) = (messages as u16, self.messages_in_flight as u16);
            Err(SendRefusal::TooManyMessages { messages, limit })
        } else if size.get() > memory.saturating_sub(waiting).get() {
            Err(SendRefusal::NoMemory { waiting, size, limit: memory })
        } else {
            Ok(())
        }
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        if mode != self.mode {
            (self.mode, self.mode_from) = (mode, self.next_number);
            self.status.change();
        }
    }

    pub(crate) fn set_tpdu_size(&mut self, size: u16) -> Result<(), InvalidConfig> {
        if !TPDU_SIZES.contains(&size) {
            return Err(InvalidConfig::TpduSize { size });
        }
        if size != self.tpdu_size {
            self.tpdu_size = size;
            self.status.change();
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) {
        if !self.is_finishing {
            self.is_finishing = true;
            self.status.change();
        }
    }

    /// Whether all messages have an outcome and the peer knows that no more will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finishing && self.queue.is_empty() && self.status.is_acknowledged()
    }

    /// Ends all messages.
    pub(crate) fn abort(&mut self) {
        while !self.queue.is_empty() {
            self.settle(0, Outcome::Unknown);
        }
        self.is_finishing = true;
    }

    /// The carrier of data is another one, or has other properties. TPDUs that are too large for it did not arrive.
    pub(crate) fn carrier_changed(&mut self, now: Instant, max_datagram: u16, hint: Option<Nanos>, is_other: bool) {
        if is_other {
            self.sizes = Sizes::default();
            self.round_trip = RoundTrip::new(now, hint);
        } else if let Some(hint) = hint {
            self.round_trip.set_hint(hint);
        }
        let most = block_capacity(max_datagram);
        self.queue.iter_mut().take(self.started).for_each(|message| message.lose(|tpdu| tpdu.blocks > most));
    }

    /// A carrier is gone: what is in flight on it is sent again.
    pub(crate) fn carrier_lost(&mut self, carrier: CarrierId) {
        let started = self.queue.iter_mut().take(self.started);
        started.for_each(|message| message.lose(|tpdu| tpdu.carrier == carrier));
    }

    pub(crate) fn next_outcome(&mut self) -> Option<Output> {
        self.outcomes.pop_front()
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Memory for messages, of settled ones too.
    pub(crate) fn memory(&self) -> Bytes {
        Bytes::new(self.queue_capacity() + self.spare.bytes() as u64)
    }

    fn queue_capacity(&self) -> u64 {
        self.queue.iter().map(|message| message.data.capacity() as u64).sum()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let trip = &self.round_trip;
        let (timeout, rtt, min_rtt) = (trip.timeout(), trip.last(), self.min_rtt());
        let largest_datagram = self.limit(self.way);
        Statistics { largest_datagram, timeout, rtt, min_rtt, ..self.statistics }
    }

    pub(crate) fn next_number(&self) -> MessageNumber {
        MessageNumber::new(self.next_number)
    }

    pub(crate) fn min_rtt(&self) -> Nanos {
        self.round_trip.minimum().unwrap_or_default()
    }

    /// Ends a message with its outcome.
    fn settle(&mut self, index: usize, outcome: Outcome) {
        let Some(message) = self.queue.remove(index) else { return };
        self.started -= usize::from(index < self.started);
        self.queued_bytes -= u64::from(message.size());
        if outcome != Outcome::Delivered {
            self.status.given_up(message.number);
        }
        self.count(message.kind, outcome);
        let (number, kind, first_sent) = (MessageNumber::new(message.number), message.kind, message.first_sent);
        let size = Bytes::new(u64::from(message.size()));
        self.outcomes.push_back(Output::Outcome { number, kind, size, first_sent, outcome });
        let most = self.memory.saturating_sub(self.queue_capacity());
        self.spare.keep(message, most, self.messages_in_flight);
        self.announce_floor();
    }

    fn count(&mut self, kind: FrameKind, outcome: Outcome) {
        let counts = &mut self.statistics;
        match outcome {
            Outcome::Delivered => counts.delivered += 1,
            Outcome::Dropped(reason) => {
                counts.dropped[kind.index()] += 1;
                counts.dropped_late += u64::from(reason == DropReason::WouldBeLate);
                counts.dropped_to_make_room += u64::from(reason == DropReason::MadeRoom);
                counts.dropped_too_large += u64::from(reason == DropReason::TooLargeForPeer);
            }
            Outcome::Expired => counts.expired += 1,
            Outcome::Partly { .. } => counts.partly += 1,
            Outcome::Unknown => {}
        }
    }

    /// Whether data of this message that is sent now would arrive after its deadline.
    fn is_late(&self, message: &OutgoingMessage, now: Instant) -> bool {
        message.is_partial && message.deadline.is_some_and(|deadline| now + self.round_trip.one_way() > deadline)
    }

    /// Drops messages that wait for their first byte, until all others can arrive in time.
    fn drop_late(&mut self, now: Instant, bucket: &TokenBucket) {
        // A paused rate is no forecast. Messages then end at their deadlines.
        if bucket.rate() == BitRate::ZERO {
            return;
        }
        while let Some((index, reason)) = self.next_drop(now, bucket) {
            self.settle(self.started + index, Outcome::Dropped(reason));
        }
    }

    fn next_drop(&self, now: Instant, bucket: &TokenBucket) -> Option<(usize, DropReason)> {
        let waiting = self.queue.range(self.started..).map(|message| Waiting {
            kind: message.kind,
            bytes: self.bytes_on_wire(u64::from(message.size())),
            left: message.deadline.filter(|_| message.is_partial).map(|deadline| deadline.since(now)),
        });
        let backlog = self.bytes_on_wire(self.queue.range(..self.started).map(OutgoingMessage::unsent_bytes).sum());
        let way = self.round_trip.one_way() + bucket.gathering(self.batch());
        let arrives_after = |bytes| bucket.time_until_sent(now, bytes) + way;
        dropping::next_drop(waiting, backlog, arrives_after)
    }

    /// Data with the headers of METP and of the layers below.
    fn bytes_on_wire(&self, data: u64) -> u64 {
        let capacity = u64::from(block_capacity(self.limit(self.way)) * BLOCK);
        data + data.div_ceil(capacity) * u64::from(HEADER_BYTES + self.way.overhead)
    }

    /// The largest datagram that carrier and peer take.
    fn limit(&self, way: Way) -> u16 {
        self.sizes.bounded(way.max_datagram.min(self.tpdu_size).min(self.peer.tpdu_size)).max(MIN_TPDU)
    }
}

/// Blocks of data in a datagram of this size.
fn block_capacity(datagram: u16) -> u32 {
    u32::from(datagram.max(MIN_TPDU) - HEADER_BYTES) / BLOCK
}

/// The outcome of a message that was given up.
fn partial_outcome(acknowledged: Bytes) -> Outcome {
    if acknowledged == Bytes::ZERO { Outcome::Expired } else { Outcome::Partly { acknowledged } }
}
