//! The sender's clock, seen from the receiver.
//!
//! The two clocks have different origins. The receiver takes the smallest difference between its time of arrival and
//! the sender's time of sending: the offset of the clocks plus the shortest way. Half of the minimum round-trip time,
//! which the sender states, is the estimate of the shortest way. The estimate is wrong by half of the asymmetry of the
//! two ways. Two windows of 10 s let it follow the drift of the clocks.

use qfabric_types::{Instant, Nanos};

use crate::blocks::extended;

#[derive(Clone, Debug, Default)]
pub(crate) struct PeerClock {
    /// The last time of sending in µs, extended to 64 bits, and its arrival; `None` before the first TPDU.
    last: Option<(u64, Instant)>,
    since: Instant,
    current_us: i64,
    previous_us: Option<i64>,
    /// Half of the minimum round-trip time in µs.
    way_us: i64,
}

const WINDOW: Nanos = Nanos::from_millis(10_000);

impl PeerClock {
    /// A TPDU with this time of sending arrived. Returns the time of sending in µs, extended.
    pub(crate) fn on_arrival(&mut self, now: Instant, sent_us: u32) -> u64 {
        let sent = self.peek(now, sent_us);
        let difference = difference_us(now, sent);
        let is_first = self.last.is_none();
        if is_first || now.since(self.since) > WINDOW {
            self.previous_us = (!is_first).then_some(self.current_us);
            (self.since, self.current_us) = (now, difference);
        }
        self.current_us = self.current_us.min(difference);
        self.last = Some((sent, now));
        sent
    }

    /// A time of sending that arrives now, extended; without an effect on the estimate. The 32 bits wrap after 71
    /// minutes, and a session may have no messages for as long.
    pub(crate) fn peek(&self, now: Instant, sent_us: u32) -> u64 {
        let passed_us = |at| now.since(at).get() / 1_000;
        self.last.map_or(u64::from(sent_us), |(last, at)| extended(sent_us, 32, last.saturating_add(passed_us(at))))
    }

    pub(crate) fn set_min_rtt_us(&mut self, min_rtt_us: u32) {
        self.way_us = i64::from(min_rtt_us) / 2;
    }

    /// The sender's time `sent_us` + `later` on the receiver's clock.
    pub(crate) fn local(&self, sent_us: u64, later: Nanos) -> Instant {
        let shortest = self.previous_us.map_or(self.current_us, |previous| previous.min(self.current_us));
        let local = (sent_us as i64).saturating_add(shortest).saturating_sub(self.way_us).max(0);
        Instant::new((local as u64).saturating_mul(1_000)) + later
    }
}

fn difference_us(now: Instant, sent_us: u64) -> i64 {
    (now.get() / 1_000) as i64 - sent_us as i64
}

/// The low 32 bits of the time in µs, as it travels.
pub(crate) fn low_us(now: Instant) -> u32 {
    (now.get() / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_with_another_origin_is_understood_from_the_fastest_tpdu() {
        let mut clock = PeerClock::default();
        let ms = |ms: u64| Instant::ZERO + Nanos::from_millis(ms);
        // The sender's clock is 1,000 s ahead; the shortest way takes 20 ms.
        for (sent, delay) in [(0, 50), (40, 20), (80, 35)] {
            let sent_us = (1_000_000_000 + sent * 1_000) as u32;
            let extended = clock.on_arrival(ms(5_000 + sent + delay), sent_us);
            assert_eq!(extended, u64::from(sent_us));
        }
        clock.set_min_rtt_us(40_000);
        assert_eq!(clock.local(1_000_080_000, Nanos::from_millis(200)), ms(5_280));
    }

    #[test]
    fn the_times_of_sending_may_wrap() {
        let mut clock = PeerClock::default();
        let at = |us: u64| Instant::new(us * 1_000);
        assert_eq!(clock.on_arrival(at(7), u32::MAX), u64::from(u32::MAX));
        assert_eq!(clock.on_arrival(at(9), 1), u64::from(u32::MAX) + 2);
        assert_eq!(clock.local(u64::from(u32::MAX) + 2, Nanos::ZERO), at(9));
    }

    #[test]
    fn the_times_of_sending_may_wrap_while_nothing_is_sent() {
        let mut clock = PeerClock::default();
        let at = |us: u64| Instant::new(us * 1_000);
        for minutes in [10, 50, 100, 300] {
            let us = minutes * 60_000_000;
            let low = u32::try_from(us % (1 << 32)).unwrap();
            assert_eq!(clock.on_arrival(at(us + 7), low), us, "after {minutes} minutes");
            assert_eq!(clock.local(us, Nanos::ZERO), at(us + 7));
        }
    }
}
