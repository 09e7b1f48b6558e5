//! How much is on its way to a host: whether an event would still arrive in time, and whether the network has room for what must
//! not be lost.
//!
//! What the network has taken waits in queues that are not seen here: the engine's, the kernel's, those of routers. On a narrow
//! link events with deadlines fill them, and each comes too late. So a ping goes behind the events, on their lane, and its
//! answer, on the other lane, says when all before it had arrived: how much is under way, how quickly it gets there, and how
//! long what is sent now would wait.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos};

/// Between pings, where nothing waits.
const SELDOM: Nanos = Nanos::from_millis(25);
/// And where something does, or nothing is known yet: until so many answers have come.
const OFTEN: Nanos = Nanos::from_millis(5);
const KNOWN: u32 = 16;
/// An answer that takes so much longer than the quickest comes from behind a queue.
const QUEUED: Nanos = Nanos::from_millis(5);
/// A ping that is not answered by then was lost.
const LOST: Nanos = Nanos::from_millis(1_000);
/// Where something waits for answers, pings go at least so often: those before may be lost.
pub(super) const AGAIN: Nanos = Nanos::from_millis(20);
/// And when nothing was heard for so long, all that was under way is taken for lost.
const SILENT: Nanos = Nanos::from_millis(5_000);

/// What is under way to one host.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Most bytes under way of what must not be lost. It is followed by a ping after each quarter of that.
    window: u64,
    /// Bytes sent.
    sent: u64,
    /// Those that have arrived, as the last answer says, and when it came.
    arrived: u64,
    heard: Option<Instant>,
    /// Not answered yet; the oldest first.
    pings: VecDeque<Ping>,
    pinged: Option<Instant>,
    /// Bytes sent before the last one.
    followed: u64,
    /// Bytes per second; none: nothing waits.
    rate: Option<u64>,
    /// Answers since there was a pause.
    answers: u32,
    quickest: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    at: Instant,
    /// Sent before it.
    behind: u64,
}

impl Flow {
    /// With so many bytes under way of what must not be lost.
    pub fn new(window: u64) -> Flow {
        Flow { window, ..Flow::default() }
    }

    /// Whether an event that is of use for `left` would arrive within three quarters of that, behind `waiting` bytes that are not
    /// sent yet: what is measured is past.
    pub fn is_in_time(&mut self, waiting: usize, left: Nanos, now: Instant) -> bool {
        self.lapse(now);
        let quickest = self.quickest.unwrap_or_default();
        let ahead = self.under_way() + waiting as u64;
        let rated = self.rate.map_or(0, |rate| ahead.saturating_mul(1_000_000_000) / rate.max(1));
        let unanswered = self.pings.front().map_or(Nanos::ZERO, |oldest| now.since(oldest.at).saturating_sub(quickest));
        let waits = Nanos::new(rated).max(unanswered);
        waits.get().saturating_add(quickest.get() / 2) <= left.get() / 4 * 3
    }

    /// Bytes of which it is not known that they have arrived.
    pub fn under_way(&self) -> u64 {
        self.sent - self.arrived
    }

    /// Whether so many bytes more will find room in the network.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.under_way() == 0 || self.under_way() + bytes as u64 <= self.window
    }

    /// Gives up what there will be no word of.
    pub fn lapse(&mut self, now: Instant) {
        let silent = |oldest: &Ping| now.since(self.heard.map_or(oldest.at, |heard| heard.max(oldest.at))) > SILENT;
        if self.pings.back().is_some_and(|last| now.since(last.at) > LOST) || self.pings.front().is_some_and(silent) {
            self.pings.clear();
            self.arrived = self.sent;
            self.rate = None;
        }
    }

    /// So many bytes were sent that must not be lost. True: a ping is to be sent behind them, at this moment.
    pub fn sent_safely(&mut self, bytes: usize, now: Instant) -> bool {
        self.sent += bytes as u64;
        let due = self.sent - self.followed >= self.window / 4;
        if due {
            self.ping(now);
        }
        due
    }

    /// Something waits until there is room. True: a ping is to be sent, at this moment.
    pub fn is_asked_again(&mut self, now: Instant) -> bool {
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

    /// An event of so many bytes, with a deadline, was sent. True: a ping is to be sent behind it, at this moment.
    pub fn sent(&mut self, bytes: usize, now: Instant) -> bool {
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

    /// An answer to the ping of `at`. False: there was none of this flow.
    pub fn answered(&mut self, at: Instant, now: Instant) -> bool {
        let Some(place) = self.pings.iter().position(|ping| ping.at == at) else { return false };
        let ping = self.pings[place];
        self.pings.drain(..=place);
        self.answers = self.answers.saturating_add(1);
        let took = now.since(ping.at);
        let quickest = self.quickest.map_or(took, |quickest| quickest.min(took));
        let drained = ping.behind - self.arrived;
        // Whatever was sent before the last answer and has come after it came without a pause.
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

    /// A link of so many bytes a second, half of `round_trip` away, with a queue that never ends.
    struct Narrow {
        rate: u64,
        round_trip: Nanos,
        free: Instant,
        answers: VecDeque<(Instant, Instant)>,
    }

    impl Narrow {
        /// When what is sent now arrives.
        fn carry(&mut self, bytes: u64, now: Instant) -> Instant {
            self.free = self.free.max(now) + Nanos::new(bytes * 1_000_000_000 / self.rate);
            self.free + Nanos::new(self.round_trip.get() / 2)
        }
    }

    /// Events of 1 KB, `per_second` for 2 s, of use for `deadline`: how many were sent, and how many came in time.
    fn run(rate: u64, per_second: u64, deadline: Nanos) -> (u64, u64) {
        let round_trip = Nanos::from_millis(4);
        let mut link = Narrow { rate, round_trip, free: Instant::ZERO, answers: VecDeque::new() };
        let (mut flow, mut sent, mut in_time) = (Flow::default(), 0, 0);
        for event in 0..2 * per_second {
            let now = Instant::new(1 + event * 1_000_000_000 / per_second);
            while let Some((comes, at)) = link.answers.pop_front_if(|(comes, _)| *comes <= now) {
                assert!(flow.answered(at, comes));
            }
            if !flow.is_in_time(0, deadline, now) {
                continue;
            }
            sent += 1;
            let arrives = link.carry(1_000, now);
            in_time += u64::from(arrives.since(now) <= deadline);
            if flow.sent(1_000, now) {
                let arrives = link.carry(40, now);
                link.answers.push_back((arrives + Nanos::new(round_trip.get() / 2), now));
            }
        }
        (sent, in_time)
    }

    #[test]
    fn what_a_wide_link_carries_is_all_sent() {
        let (sent, in_time) = run(10_000_000, 200, Nanos::from_millis(150));
        assert_eq!((sent, in_time), (400, 400));
    }

    #[test]
    fn on_a_narrow_link_few_are_sent_that_come_too_late() {
        // 37 of 200 events a second fit.
        let (sent, in_time) = run(37_500, 200, Nanos::from_millis(150));
        println!("{sent} sent, {in_time} in time");
        assert!(in_time >= 45 && in_time * 10 >= sent * 6, "{sent} sent, {in_time} in time");
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_another_ones_and_lost_pings_block_nobody_for_long() {
        let (mut flow, second) = (Flow::default(), Nanos::from_millis(1_000));
        assert!(!flow.answered(Instant::new(5), Instant::new(9)));
        assert!(flow.is_in_time(0, Nanos::from_millis(100), Instant::new(1)) && flow.sent(100, Instant::new(1)));
        assert!(!flow.is_in_time(0, Nanos::from_millis(100), Instant::new(1) + Nanos::from_millis(500)));
        assert!(flow.is_in_time(0, Nanos::from_millis(100), Instant::new(2) + second));
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
        assert!(flow.answered(begin + AGAIN + Nanos::new(9), begin + AGAIN + Nanos::new(20)), "it covers those before");
        assert_eq!(flow.under_way(), 0);
        assert!(flow.has_room(usize::MAX / 2), "one that is larger than the window goes alone");
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
