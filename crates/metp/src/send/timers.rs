//! Timeouts and deadlines of messages.

use qfabric_types::{Bytes, Instant, Nanos};

use super::message::{OutgoingMessage, Timeout};
use super::{Sender, partial_outcome};

impl Sender {
    /// When an unacknowledged message has its next timeout.
    fn timeout_at(&self, message: &OutgoingMessage) -> Option<Instant> {
        if message.lost > 0 || !message.has_open() || !(message.is_all_sent() || message.is_abandoned) {
            return None;
        }
        let repetitions = match message.timeout {
            Timeout::None | Timeout::Optimistic => 0,
            Timeout::Pessimistic(count) => count,
        };
        Some(message.last_sent + self.round_trip.timeout_after(repetitions))
    }

    /// When a message that has a deadline ends. The last acknowledgments come one timeout after the deadline.
    fn expires_at(&self, message: &OutgoingMessage) -> Option<Instant> {
        let deadline = message.deadline.filter(|_| message.is_partial)?;
        Some(match message.start {
            Some(_) => deadline + self.round_trip.timeout(),
            None => deadline.max(Instant::ZERO + self.round_trip.one_way()) - self.round_trip.one_way(),
        })
    }

    /// The earliest time at which [`Sender::on_time`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let times = |message| [self.timeout_at(message), self.expires_at(message)];
        let blocked = self.blocked_since.map(|since| since + self.blocked_limit());
        let status = self.status.next_wakeup(&self.round_trip);
        self.queue.iter().flat_map(times).chain([blocked, status]).flatten().min()
    }

    /// A message that waits for the peer's memory asks for a report after this time.
    fn blocked_limit(&self) -> Nanos {
        self.round_trip.timeout().saturating_mul(4)
    }

    /// Timeouts and deadlines that have come.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.sizes.on_time(now);
        let mut index = 0;
        while index < self.queue.len() {
            let message = &self.queue[index];
            if self.expires_at(message).is_some_and(|at| at <= now) {
                let acknowledged = Bytes::new(u64::from(message.acknowledged_bytes));
                self.settle(index, partial_outcome(acknowledged));
                continue;
            }
            if self.timeout_at(message).is_some_and(|at| at <= now) {
                self.on_timeout(index, now);
            }
            index += 1;
        }
        if self.blocked_since.is_some_and(|since| since + self.blocked_limit() <= now) {
            self.blocked_since = Some(now);
            self.status.repeat();
        }
    }

    /// §5.2.1, item 3: first only the first unacknowledged TPDU, then all.
    fn on_timeout(&mut self, index: usize, now: Instant) {
        if self.is_late(&self.queue[index], now) {
            // `expires_at` ends the message; its TPDUs are no longer worth a timeout.
            let message = &mut self.queue[index];
            message.lose(|_| true);
            self.statistics.refused_late += u64::from(message.give_up_lost());
            return;
        }
        let message = &mut self.queue[index];
        let is_all = message.timeout == Timeout::Optimistic;
        let mut is_first = true;
        message.lose(|_| is_all || std::mem::take(&mut is_first));
        self.statistics.pessimistic += u64::from(is_all);
        self.statistics.optimistic += u64::from(!is_all);
        message.timeout = match message.timeout {
            Timeout::None => Timeout::Optimistic,
            Timeout::Optimistic => Timeout::Pessimistic(1),
            Timeout::Pessimistic(count) => Timeout::Pessimistic(count + 1),
        };
    }
}
