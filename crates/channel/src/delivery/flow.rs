//! The bytes under way to a host: whether an event would still arrive in time, and whether the network has room for frames
//! that must not be lost.
//!
//! Frames that the network has taken wait in queues that are not visible here: the engine's, the kernel's, those of routers.
//! On a narrow link events with deadlines fill these queues, and then each event comes too late. Therefore a ping follows
//! the events on their lane. Its answer, on the control lane, says when all bytes before the ping had arrived. From the
//! answers follow the bytes under way, the rate at which they arrive, and the time for which an event sent now would wait.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos};

/// Interval of pings if no queue is seen.
const SELDOM: Nanos = Nanos::from_millis(25);
/// Interval of pings if a queue is seen, or until the number of answers below has arrived.
const OFTEN: Nanos = Nanos::from_millis(5);
const KNOWN: u32 = 16;
/// An answer that takes this much longer than the quickest one has waited in a queue.
const QUEUED: Nanos = Nanos::from_millis(5);
/// A ping without an answer after this time counts as lost.
const LOST: Nanos = Nanos::from_millis(1_000);
/// While frames wait for answers, pings are sent at least at this interval, because earlier pings may be lost.
pub(super) const AGAIN: Nanos = Nanos::from_millis(20);
/// If no answer arrives for this time, all bytes under way count as lost.
const SILENT: Nanos = Nanos::from_millis(5_000);

/// For this time after an event with a deadline, events of lower priority leave room for others like it.
const RECENT: Nanos = Nanos::from_millis(1_000);

/// The bytes under way to one host.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// The limit of bytes under way for frames that must not be lost. A ping follows each quarter of the limit.
    window: u64,
    /// Bytes sent.
    sent: u64,
    /// The bytes that have arrived according to the last answer, and the time of that answer.
    arrived: u64,
    heard: Option<Instant>,
    /// Not answered yet; the oldest first.
    pings: VecDeque<Ping>,
    pinged: Option<Instant>,
    /// Bytes sent before the last ping.
    followed: u64,
    /// Bytes per second; `None`: no queue is seen.
    rate: Option<u64>,
    /// Answers since the last pause.
    answers: u32,
    quickest: Option<Nanos>,
    /// The highest recent priority of an event with a deadline, and the time of that event.
    urgent: Option<(u8, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    at: Instant,
    /// Bytes sent before the ping.
    behind: u64,
}

impl Flow {
    /// `window`: the limit of bytes under way for frames that must not be lost.
    pub(super) fn new(window: u64) -> Flow {
        Flow { window, ..Flow::default() }
    }

    /// Whether an event that is of use for `left` would arrive within three quarters of that time, behind `waiting`
    /// unsent bytes. The last quarter is a margin, because the measurements are from the past. An event of lower
    /// priority than a recent one may wait for half of this only, so behind a narrow link it leaves room for the others.
    pub(super) fn is_in_time(&mut self, waiting: usize, (left, priority): (Nanos, u8), now: Instant) -> bool {
        self.lapse(now);
        let quickest = self.quickest.unwrap_or_default();
        let ahead = self.under_way() + waiting as u64;
        let rated = self.rate.map_or(0, |rate| ahead.saturating_mul(1_000_000_000) / rate.max(1));
        let unanswered = self.pings.front().map_or(Nanos::ZERO, |oldest| now.since(oldest.at).saturating_sub(quickest));
        let waits = Nanos::new(rated).max(unanswered);
        let longest = (left.get() / 4 * 3).checked_sub(quickest.get() / 2);
        let is_lower = self.has_recent_above(priority, now);
        longest.is_some_and(|longest| waits.get() <= if is_lower { longest / 2 } else { longest })
    }

    /// Whether there was a recent event of higher priority; remembers this one otherwise.
    fn has_recent_above(&mut self, priority: u8, now: Instant) -> bool {
        let is_above = self.urgent.is_some_and(|(above, at)| above > priority && now.since(at) <= RECENT);
        if !is_above {
            self.urgent = Some((priority, now));
        }
        is_above
    }

    /// Bytes that have not been confirmed as arrived.
    pub(super) fn under_way(&self) -> u64 {
        self.sent - self.arrived
    }

    /// Whether the network has room for this number of bytes more.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.under_way() == 0 || self.under_way() + bytes as u64 <= self.window
    }

    /// Discards pings whose answers are overdue, and bytes under way after a long silence.
    pub(super) fn lapse(&mut self, now: Instant) {
        let silent = |oldest: &Ping| now.since(self.heard.map_or(oldest.at, |heard| heard.max(oldest.at))) > SILENT;
        if self.pings.back().is_some_and(|last| now.since(last.at) > LOST) || self.pings.front().is_some_and(silent) {
            self.pings.clear();
            self.arrived = self.sent;
            self.rate = None;
        }
    }

    /// Bytes that must not be lost were sent. Returns whether the caller has to send a ping behind them now.
    pub(super) fn sent_safely(&mut self, bytes: usize, now: Instant) -> bool {
        self.sent += bytes as u64;
        let due = self.sent - self.followed >= self.window / 4;
        if due {
            self.ping(now);
        }
        due
    }

    /// Frames wait for room. Returns whether the caller has to send a ping now.
    pub(super) fn is_asked_again(&mut self, now: Instant) -> bool {
        let due = self.under_way() > 0 && self.pinged.is_none_or(|last| now.since(last) >= AGAIN);
        if due {
            self.ping(now);
        }
        due
    }

    fn ping(&mut self, now: Instant) {
        self.pinged = Some(now);
        self.followed = self.sent;
        self.pings.push_back(Ping { at: now, behind: self.sent });
    }

    /// An event of this size with a deadline was sent. Returns whether the caller has to send a ping behind it now.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) -> bool {
        self.sent += bytes as u64;
        let since = self.pinged.map_or(LOST, |last| now.since(last));
        if since >= LOST {
            self.answers = 0;
        }
        let is_quiet = self.rate.is_none() && self.answers >= KNOWN;
        let due = since >= if is_quiet { SELDOM } else { OFTEN };
        if due {
            self.ping(now);
        }
        due
    }

    /// An answer to the ping of `at` has arrived. Returns false if this flow has no such ping.
    pub(super) fn answered(&mut self, at: Instant, now: Instant) -> bool {
        let Some(place) = self.pings.iter().position(|ping| ping.at == at) else { return false };
        let ping = self.pings[place];
        self.pings.drain(..=place);
        self.answers = self.answers.saturating_add(1);
        let took = now.since(ping.at);
        let quickest = self.quickest.map_or(took, |quickest| quickest.min(took));
        let drained = ping.behind - self.arrived;
        // If the ping was sent before the previous answer arrived, the bytes between the two answers came without a
        // pause.
        let busy = self.heard.filter(|heard| ping.at < *heard && *heard < now).map(|heard| now.since(heard));
        self.rate = match busy {
            _ if took < quickest + QUEUED => None,
            Some(time) => Some(mixed(self.rate, drained.saturating_mul(1_000_000_000) / time.get())),
            None => self.rate,
        };
        (self.arrived, self.heard, self.quickest) = (ping.behind, Some(now), Some(quickest));
        true
    }
}

fn mixed(before: Option<u64>, now: u64) -> u64 {
    before.map_or(now, |before| (before / 4).saturating_mul(3).saturating_add(now / 4)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    /// A link with a rate in bytes per second, half of `round_trip` away, with an unlimited queue.
    struct Narrow {
        rate: u64,
        round_trip: Nanos,
        free: Instant,
        answers: VecDeque<(Instant, Instant)>,
    }

    impl Narrow {
        /// The time at which bytes that are sent now arrive.
        fn carry(&mut self, bytes: u64, now: Instant) -> Instant {
            self.free = self.free.max(now) + Nanos::new(bytes * 1_000_000_000 / self.rate);
            self.free + Nanos::new(self.round_trip.get() / 2)
        }
    }

    /// Sends events of 1 KB, `per_second` for 2 s, each of use for `deadline`. Returns how many were sent, and how many
    /// arrived in time.
    fn run(rate: u64, per_second: u64, deadline: Nanos) -> (u64, u64) {
        let [all, none] = run_with(rate, per_second, deadline, 0);
        assert_eq!(none, (0, 0));
        all
    }

    /// The same; of 10 events, `high` have the highest priority and the others the lowest. The first pair of numbers is
    /// of the lowest, the second of the highest.
    fn run_with(rate: u64, per_second: u64, deadline: Nanos, high: u64) -> [(u64, u64); 2] {
        let round_trip = Nanos::from_millis(4);
        let mut link = Narrow { rate, round_trip, free: Instant::ZERO, answers: VecDeque::new() };
        let (mut flow, mut counts) = (Flow::default(), [(0, 0); 2]);
        for event in 0..2 * per_second {
            let now = Instant::new(1 + event * 1_000_000_000 / per_second);
            while let Some((comes, at)) = link.answers.pop_front_if(|(comes, _)| *comes <= now) {
                assert!(flow.answered(at, comes));
            }
            let is_high = event % 10 < high;
            if !flow.is_in_time(0, (deadline, if is_high { 7 } else { 0 }), now) {
                continue;
            }
            let (sent, in_time) = &mut counts[usize::from(is_high)];
            *sent += 1;
            let arrives = link.carry(1_000, now);
            *in_time += u64::from(arrives.since(now) <= deadline);
            if flow.sent(1_000, now) {
                let arrives = link.carry(40, now);
                link.answers.push_back((arrives + Nanos::new(round_trip.get() / 2), now));
            }
        }
        counts
    }

    #[test]
    fn what_a_wide_link_carries_is_all_sent() {
        let (sent, in_time) = run(10_000_000, 200, Nanos::from_millis(150));
        assert_eq!((sent, in_time), (400, 400));
    }

    #[test]
    fn on_a_narrow_link_few_are_sent_that_come_too_late() {
        // The link carries 37 of the 200 events per second.
        let (sent, in_time) = run(37_500, 200, Nanos::from_millis(150));
        println!("{sent} sent, {in_time} in time");
        assert!(in_time >= 45 && in_time * 10 >= sent * 6, "{sent} sent, {in_time} in time");
    }

    #[test]
    fn on_a_narrow_link_a_high_priority_wins() {
        // The link carries 37 of the 200 events per second; 20 have the highest priority.
        let [(low_sent, low), (high_sent, high)] = run_with(37_500, 200, Nanos::from_millis(150), 1);
        println!("high: {high_sent} of 40 sent, {high} in time; low: {low_sent} of 360 sent, {low} in time");
        assert!(high >= 30 && low > 0, "{high} of 40 and {low} of 360 in time");
    }

    #[test]
    fn without_a_queue_a_lower_priority_may_use_its_whole_time() {
        let (mut flow, begin) = (Flow::default(), Instant::new(1));
        assert!(flow.is_in_time(0, (Nanos::from_millis(10), 7), begin));
        let answered = begin + Nanos::from_millis(14);
        assert!(flow.sent(100, begin) && flow.answered(begin, answered));
        assert!(flow.is_in_time(0, (Nanos::from_millis(10), 0), answered));
        assert!(!flow.is_in_time(0, (Nanos::from_millis(9), 0), answered));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_another_ones_and_lost_pings_block_nobody_for_long() {
        let (mut flow, second) = (Flow::default(), Nanos::from_millis(1_000));
        assert!(!flow.answered(Instant::new(5), Instant::new(9)));
        assert!(flow.is_in_time(0, (Nanos::from_millis(100), 0), Instant::new(1)) && flow.sent(100, Instant::new(1)));
        assert!(!flow.is_in_time(0, (Nanos::from_millis(100), 0), Instant::new(1) + Nanos::from_millis(500)));
        assert!(flow.is_in_time(0, (Nanos::from_millis(100), 0), Instant::new(2) + second));
    }

    #[test]
    fn what_must_not_be_lost_is_followed_by_a_ping_in_each_quarter_and_finds_room_as_answers_come() {
        let (mut flow, part, begin) = (Flow::new(Limits::UNDER_WAY), Limits::UNDER_WAY as usize / 8, Instant::new(1));
        let due: Vec<bool> = (0..8).map(|at| flow.sent_safely(part, begin + Nanos::new(at))).collect();
        assert_eq!(due, [false, true, false, true, false, true, false, true]);
        assert!(!flow.has_room(1));
        assert!(flow.answered(begin + Nanos::new(1), begin + Nanos::new(9)));
        assert!(flow.has_room(2 * part) && !flow.has_room(2 * part + 1));
        assert!(!flow.is_asked_again(begin + Nanos::new(9)) && flow.is_asked_again(begin + AGAIN + Nanos::new(9)));
        assert!(
            flow.answered(begin + AGAIN + Nanos::new(9), begin + AGAIN + Nanos::new(20)),
            "the answer covers earlier pings"
        );
        assert_eq!(flow.under_way(), 0);
        assert!(flow.has_room(usize::MAX / 2), "a frame larger than the window is sent alone");
    }

    #[test]
    fn what_there_is_no_word_of_is_given_up_in_the_end() {
        let (mut flow, mut now) = (Flow::new(Limits::UNDER_WAY), Instant::new(1));
        flow.sent_safely(Limits::UNDER_WAY as usize, now);
        for _ in 0..SILENT.get() / AGAIN.get() {
            now = now + AGAIN;
            assert!(flow.is_asked_again(now));
            flow.lapse(now);
            assert!(!flow.has_room(1));
        }
        flow.lapse(now + AGAIN);
        assert!(flow.has_room(1));
    }
}
