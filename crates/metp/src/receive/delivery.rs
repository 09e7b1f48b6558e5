//! Which message is delivered next, and when one is given up.

use qfabric_types::{Bytes, Instant, Nanos};

use super::Receiver;
use super::message::Incoming;
use crate::blocks::BLOCK;
use crate::{DeliveryOrder, MessageNumber, Mode, Received};

/// A step of the delivery, for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Received(Received),
    Skipped { first: MessageNumber, count: u64 },
    ModeChanged { mode: Mode, from: MessageNumber },
    Finished,
}

/// What happens to the first message that is not settled.
enum Front {
    Deliver,
    GiveUp,
    Wait,
}

impl Receiver {
    /// The next event at this time.
    pub(crate) fn next_event(&mut self, now: Instant) -> Option<Event> {
        self.release();
        if let Some(event) = self.mode_event() {
            return Some(event);
        }
        loop {
            if let Some(event) = self.skip(now) {
                return Some(event);
            }
            match self.front(now) {
                Front::Deliver => return Some(Event::Received(self.deliver(0, now))),
                Front::GiveUp => self.settle_front(now),
                Front::Wait => return self.deliver_complete(now).or_else(|| self.finish_event()),
            }
        }
    }

    fn mode_event(&mut self) -> Option<Event> {
        let status = self.status.filter(|status| status.mode_from > self.announced.mode_from)?;
        self.announced.mode_from = status.mode_from;
        let mode = if status.is_partial { Mode::PartiallyReliable } else { Mode::TotallyReliable };
        Some(Event::ModeChanged { mode, from: MessageNumber::new(status.mode_from) })
    }

    /// Messages in front of the first one that no TPDU will arrive of: the sender has dropped them, or they are later
    /// than the first message's own deadline.
    fn skip(&mut self, now: Instant) -> Option<Event> {
        let (number, block) = match self.messages.front() {
            Some(front) if self.are_missing_before(front, now) => (front.number, front.start),
            Some(_) => return None,
            None => self.sender_floor(),
        };
        let (first, count) = (self.floor_number, number.checked_sub(self.floor_number)?);
        if count == 0 {
            return None;
        }
        (self.floor_number, self.floor_block) = (number, self.floor_block.max(block));
        self.seen_end = self.seen_end.max(self.floor_block);
        self.reporting.settled(count, false);
        self.statistics.skipped += count;
        self.reporting.soon(now);
        Some(Event::Skipped { first: MessageNumber::new(first), count })
    }

    fn are_missing_before(&self, front: &Incoming, now: Instant) -> bool {
        let is_unsent = front.start == self.floor_block;
        is_unsent || self.sender_floor().0 >= front.number || (self.is_due(front, now) && !front.is_behind_reliable)
    }

    /// Number and position below which the sender sends nothing more.
    fn sender_floor(&self) -> (u64, u64) {
        self.status.map_or((0, 0), |status| (status.floor_number, status.floor_block))
    }

    fn is_due(&self, message: &Incoming, now: Instant) -> bool {
        message.due_at(&self.clock, self.receive_time).is_some_and(|at| at <= now)
    }

    /// The decision about the first message.
    fn front(&self, now: Instant) -> Front {
        let Some(front) = self.messages.front().filter(|front| front.number == self.floor_number) else {
            return Front::Wait;
        };
        let is_over = self.is_due(front, now) || self.sender_floor().0 > front.number;
        match (front.is_delivered, self.is_receiving) {
            (true, _) => Front::GiveUp,
            (false, true) if front.is_complete() || is_over => Front::Deliver,
            (false, false) if is_over && front.is_partial => Front::GiveUp,
            _ => Front::Wait,
        }
    }

    /// Lends a message to the application. The first message leaves the list; its memory is free after the next call.
    fn deliver(&mut self, index: usize, now: Instant) -> Received {
        let message = self.messages[index];
        self.clear_holes(&message);
        if index == 0 && message.number == self.floor_number {
            self.messages.pop_front();
            self.floor_number += 1;
            self.reporting.settled(1, message.is_complete());
            if !message.is_complete() {
                self.reporting.soon(now);
            }
        } else {
            self.messages[index].is_delivered = true;
        }
        self.lent = Some(message);
        let received = self.received(&message, now);
        self.count(&received);
        received
    }

    fn received(&self, message: &Incoming, now: Instant) -> Received {
        let late_by = message.deadline(&self.clock).map_or(Nanos::ZERO, |deadline| now.since(deadline));
        Received {
            number: MessageNumber::new(message.number),
            kind: message.kind,
            size: Bytes::new(u64::from(message.size)),
            arrived: Bytes::new(u64::from(message.arrived_bytes(&self.map))),
            late_by,
            delay: message.last_at.since(self.clock.local(message.sent_us, Nanos::ZERO)),
        }
    }

    fn count(&mut self, received: &Received) {
        let counts = &mut self.statistics;
        counts.received += 1;
        counts.received_bytes += received.arrived.get();
        counts.with_holes += u64::from(!received.is_complete());
        counts.in_time += u64::from(received.is_complete() && received.late_by == Nanos::ZERO);
        if received.is_complete() {
            self.delays.record(received.delay);
        }
    }

    /// Old data must not show through the holes.
    fn clear_holes(&mut self, message: &Incoming) {
        if message.is_complete() {
            return;
        }
        let at = self.place_in_ring(message.start);
        let mut hole = self.map.find(message.range(), false);
        while hole < message.end() {
            let end = self.map.find(hole..message.end(), true);
            let [from, to] = [hole, end].map(|block| at + (block - message.start) as usize * BLOCK as usize);
            self.ring[from..to].fill(0);
            hole = self.map.find(end..message.end(), false);
        }
    }

    /// The first message is settled without a delivery: it was delivered before, or the application did not take it.
    fn settle_front(&mut self, now: Instant) {
        let Some(front) = self.messages.pop_front() else { return };
        self.floor_number += 1;
        self.free(&front);
        self.reporting.settled(1, front.is_delivered);
        if !front.is_delivered {
            self.statistics.not_taken += 1;
            self.reporting.soon(now);
        }
    }

    /// Without an order, a complete message need not wait for earlier ones.
    fn deliver_complete(&mut self, now: Instant) -> Option<Event> {
        if self.order == DeliveryOrder::InOrder || !self.is_receiving {
            return None;
        }
        let index = self.messages.iter().position(|message| message.is_complete() && !message.is_delivered)?;
        Some(Event::Received(self.deliver(index, now)))
    }

    fn finish_event(&mut self) -> Option<Event> {
        let status = self.status.filter(|status| status.is_finished && !self.announced.is_finished)?;
        if self.floor_number < status.next_number {
            return None;
        }
        self.announced.is_finished = true;
        Some(Event::Finished)
    }

    /// Takes the lent message back.
    pub(super) fn release(&mut self) {
        let Some(message) = self.lent.take() else { return };
        if message.number < self.floor_number {
            self.free(&message);
        }
    }

    /// Frees the memory of a settled message.
    fn free(&mut self, message: &Incoming) {
        self.map.clear(message.range());
        self.floor_block = message.end();
        self.seen_end = self.seen_end.max(self.floor_block);
    }
}
