//! When the status is sent: after a change, until the peer has acknowledged it, and when a sign of life is needed.

use qfabric_types::{Instant, Nanos};

use super::Sender;
use crate::Mode;
use crate::timing::RoundTrip;
use crate::wire::Status;

/// Versions of the status.
#[derive(Clone, Debug)]
pub(super) struct StatusState {
    /// The first version is 1; a peer without one acknowledges 0.
    version: u32,
    acknowledged: u32,
    /// When this version was last sent, and how often.
    sent: Option<(Instant, u32)>,
    must_repeat: bool,
    /// All messages below this number that are not in the queue were delivered or given up; at least one of them, the
    /// last one, was given up.
    given_up: u64,
    announced: u64,
    announced_rtt: Option<Nanos>,
}

impl Default for StatusState {
    fn default() -> StatusState {
        StatusState {
            version: 1,
            acknowledged: 0,
            sent: None,
            must_repeat: false,
            given_up: 0,
            announced: 0,
            announced_rtt: None,
        }
    }
}

impl StatusState {
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged == self.version
    }

    pub(super) fn acknowledged(&mut self, version: u32) {
        self.acknowledged = self.acknowledged.max(version);
    }

    pub(super) fn change(&mut self) {
        self.version += 1;
        self.sent = None;
    }

    /// Sends the same version once more: the peer answers with a report.
    pub(super) fn repeat(&mut self) {
        self.must_repeat = true;
    }

    pub(super) fn given_up(&mut self, number: u64) {
        self.given_up = self.given_up.max(number + 1);
    }

    /// The receiver's estimate of deadlines needs the minimum; a change by a quarter matters.
    pub(super) fn announce_rtt(&mut self, before: Option<Nanos>, now: Option<Nanos>) {
        let is_near = |announced: Nanos, now: Nanos| announced.get().abs_diff(now.get()) <= announced.get() / 4;
        if before != now && !self.announced_rtt.zip(now).is_some_and(|(announced, now)| is_near(announced, now)) {
            self.announced_rtt = now;
            self.change();
        }
    }

    /// When the next repetition is due; at distances that grow.
    pub(super) fn next_wakeup(&self, round_trip: &RoundTrip) -> Option<Instant> {
        let (at, count) = self.sent.filter(|_| !self.is_acknowledged())?;
        Some(at + round_trip.timeout_after(count))
    }

    fn is_due(&self, now: Instant, round_trip: &RoundTrip) -> bool {
        let is_unsent = self.sent.is_none() && !self.is_acknowledged();
        self.must_repeat || is_unsent || self.next_wakeup(round_trip).is_some_and(|at| at <= now)
    }
}

impl Sender {
    /// The status to send now.
    pub(crate) fn due_status(&self, now: Instant) -> Option<Status> {
        self.status.is_due(now, &self.round_trip).then(|| self.status_now())
    }

    /// The status went out.
    pub(crate) fn status_sent(&mut self, now: Instant, bytes: u64) {
        let count = self.status.sent.map_or(0, |(_, count)| count + 1);
        self.status.sent = Some((now, count));
        self.status.must_repeat = false;
        self.statistics.sent_bytes += bytes;
    }

    /// A sign of life, answered by a report.
    pub(crate) fn ask_for_report(&mut self) {
        self.status.repeat();
    }

    /// The peer need not wait for messages that were given up, if no earlier message is on its way.
    pub(super) fn announce_floor(&mut self) {
        let announced = self.status.given_up.min(self.floor().0);
        if announced > self.status.announced.max(self.peer.settled) {
            self.status.announced = announced;
            self.status.change();
        }
    }

    /// Number and position of the first message without an outcome.
    fn floor(&self) -> (u64, u64) {
        let front = self.queue.front();
        let number = front.map_or(self.next_number, |message| message.number);
        (number, front.and_then(|message| message.start).unwrap_or(self.next_block))
    }

    fn status_now(&self) -> Status {
        let (floor_number, floor_block) = self.floor();
        let min_rtt = self.round_trip.minimum().unwrap_or_default();
        Status {
            version: self.status.version,
            next_number: self.next_number,
            next_block: self.next_block,
            floor_number,
            floor_block,
            mode_from: self.mode_from,
            is_partial: self.mode == Mode::PartiallyReliable,
            tpdu_size: self.tpdu_size,
            min_rtt_us: (min_rtt.get() / 1_000).min(u64::from(u32::MAX)) as u32,
            is_finished: self.is_finishing,
        }
    }
}
