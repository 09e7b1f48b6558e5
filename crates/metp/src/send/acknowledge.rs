//! Takes the peer's reports.

use qfabric_types::{Bytes, Instant, Nanos};

use super::message::Timeout;
use super::{Sender, partial_outcome};
use crate::blocks::extended;
use crate::clock::low_us;
use crate::wire::{MAX_TPDU, MIN_TPDU, Report};
use crate::{DropReason, Outcome};

/// The fields of a report, as positions of the whole sequence space.
struct Positions {
    settled: u64,
    base: u64,
    window_end: u64,
    lost_up_to: Option<u64>,
}

/// A longer round-trip time is a mistake or an attack.
const LONGEST_RTT: Nanos = Nanos::from_millis(10_000);

impl Sender {
    /// Takes a report. Returns whether it is possible: the peer cannot know of messages and blocks that were not sent.
    pub(crate) fn on_report(&mut self, now: Instant, report: &Report) -> bool {
        let Some(positions) = self.positions(report) else { return false };
        let end = report.runs().iter().fold(positions.base, |at, run| at + u64::from(run.missing + run.received));
        if end > self.next_block {
            return false;
        }
        self.take_limits(report, &positions);
        self.take_round_trip(now, report);
        self.settle_below(positions.settled, report);
        self.take_ranges(now, report, &positions);
        self.settle_acknowledged();
        self.on_response(report);
        true
    }

    fn positions(&self, report: &Report) -> Option<Positions> {
        let positions = Positions {
            settled: extended(report.settled, 32, self.next_number),
            base: extended(report.base, 32, self.next_block),
            window_end: extended(report.window_end, 32, self.next_block),
            lost_up_to: report.echo.map(|echo| extended(echo.lost_up_to, 24, self.next_transmission)),
        };
        let is_possible = positions.settled <= self.next_number
            && positions.base <= self.next_block
            && positions.lost_up_to.is_none_or(|number| number < self.next_transmission)
            && report.status <= self.status.version();
        is_possible.then_some(positions)
    }

    fn take_limits(&mut self, report: &Report, positions: &Positions) {
        self.status.acknowledged(report.status);
        self.peer.window_end = self.peer.window_end.max(positions.window_end);
        self.peer.settled = self.peer.settled.max(positions.settled);
        self.peer.tpdu_size = report.tpdu_size.clamp(MIN_TPDU, MAX_TPDU);
        let more = report.duplicates.wrapping_sub(self.peer.duplicates);
        // A report that was overtaken has a smaller number.
        if more < 1 << 15 {
            self.peer.duplicates = report.duplicates;
            self.statistics.peer_duplicates += u64::from(more);
        }
        if self.peer.largest_message.replace(report.largest_message) != Some(report.largest_message) {
            self.drop_too_large(report.largest_message);
        }
    }

    /// Drops messages that the peer refuses, also those whose first byte left before its limit was known: it never
    /// acknowledges them, and reliable ones would keep all later ones from delivery.
    pub(super) fn drop_too_large(&mut self, limit: u32) {
        let mut index = 0;
        while index < self.queue.len() {
            if self.queue[index].size() > limit {
                self.settle(index, Outcome::Dropped(DropReason::TooLargeForPeer));
            } else {
                index += 1;
            }
        }
    }

    fn take_round_trip(&mut self, now: Instant, report: &Report) {
        let Some(echo) = report.echo.filter(|echo| echo.held < u16::MAX) else { return };
        let passed = Nanos::from_micros(u64::from(low_us(now).wrapping_sub(echo.sent_us)));
        let held = Nanos::from_micros(u64::from(echo.held) * 4);
        if held <= passed && passed <= LONGEST_RTT {
            let before = self.round_trip.minimum();
            self.round_trip.on_sample(now, passed - held);
            self.status.announce_rtt(before, self.round_trip.minimum());
        }
    }

    /// The receiver has delivered or given up all messages below `settled`. It never gives up reliable ones, so they
    /// need no bit: one report may settle more messages than it has bits.
    fn settle_below(&mut self, settled: u64, report: &Report) {
        while let Some(message) = self.queue.front().filter(|front| front.number < settled && front.start.is_some()) {
            let bit = settled - 1 - message.number;
            let has_bit = bit < 32 && report.incomplete & 1 << bit == 0;
            let is_complete = message.is_acknowledged() || !message.is_partial || has_bit;
            let acknowledged = Bytes::new(u64::from(message.acknowledged_bytes));
            if is_complete {
                self.statistics.acknowledged_bytes += u64::from(message.size()) - acknowledged.get();
            }
            self.settle(0, if is_complete { Outcome::Delivered } else { partial_outcome(acknowledged) });
        }
    }

    fn take_ranges(&mut self, now: Instant, report: &Report, positions: &Positions) {
        self.acknowledge(0, positions.base);
        let mut at = positions.base;
        for run in report.runs() {
            let received = at + u64::from(run.missing);
            if let Some(lost_up_to) = positions.lost_up_to {
                let (safe, started) = (self.sizes.safe_blocks(), self.queue.iter_mut().take(self.started));
                self.sizes.lost(now, started.map(|message| message.reject(at, received, lost_up_to, safe)).sum());
            }
            at = received + u64::from(run.received);
            self.acknowledge(received, at);
        }
    }

    fn acknowledge(&mut self, from: u64, to: u64) {
        let safe = self.sizes.safe_blocks();
        for message in self.queue.iter_mut().take(self.started) {
            let (bytes, is_large) = message.acknowledge(from, to, safe);
            self.statistics.acknowledged_bytes += u64::from(bytes);
            self.sizes.arrived(is_large);
        }
    }

    fn settle_acknowledged(&mut self) {
        let mut index = 0;
        while index < self.started {
            if self.queue[index].is_acknowledged() {
                self.settle(index, Outcome::Delivered);
            } else {
                index += 1;
            }
        }
    }

    /// A report that was made after the last TPDU of a message arrived answers its timeout.
    fn on_response(&mut self, report: &Report) {
        let Some(echo) = report.echo else { return };
        for message in self.queue.iter_mut().take(self.started) {
            let later = echo.sent_us.wrapping_sub(low_us(message.last_sent));
            if later < 1 << 31 {
                message.timeout = Timeout::None;
            }
        }
    }
}
