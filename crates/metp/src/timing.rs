//! The timeout of retransmissions, and the shortest round-trip time.
//!
//! The paper sets the timeout to the average of the timeout and the last round-trip time (§5.2.4). That average alone
//! follows single samples, and approaches the round-trip time itself, so that half of all timeouts would come too
//! early. Departures: a sample counts at most twice the average; the timeout is never below the minimum round-trip
//! time; and a margin of four mean deviations, at least an eighth of the minimum, is added. The timer itself starts
//! when the last TPDU of a message was sent, so the timeout contains no serialization of the message.

use qfabric_types::{Instant, Nanos};

#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// The paper's average; `None` before the first sample.
    average: Option<Nanos>,
    deviation: Nanos,
    last: Nanos,
    minimum: Minimum,
    /// The carrier's statement, until the first sample.
    hint: Option<Nanos>,
}

/// The minimum of the current and the previous window.
#[derive(Clone, Debug)]
struct Minimum {
    since: Instant,
    current: Option<Nanos>,
    previous: Option<Nanos>,
}

/// Timeout before the first measurement.
const INITIAL: Nanos = Nanos::from_millis(200);
/// Scheduling delays of both hosts are of this order.
const LEAST_MARGIN: Nanos = Nanos::from_millis(2);
/// A path that comes back is used within this time.
const LONGEST_REPETITION: Nanos = Nanos::from_millis(1_000);
const LONGEST: Nanos = Nanos::from_millis(2_000);
/// A longer route is noticed after one to two windows. BBR uses 10 s for the same purpose.
const WINDOW: Nanos = Nanos::from_millis(10_000);

impl RoundTrip {
    pub(crate) fn new(now: Instant, hint: Option<Nanos>) -> RoundTrip {
        let minimum = Minimum { since: now, current: None, previous: None };
        RoundTrip { average: None, deviation: Nanos::ZERO, last: Nanos::ZERO, minimum, hint }
    }

    pub(crate) fn on_sample(&mut self, now: Instant, rtt: Nanos) {
        self.last = rtt;
        self.minimum.on_sample(now, rtt);
        let Some(average) = self.average else {
            (self.average, self.deviation) = (Some(rtt), Nanos::new(rtt.get() / 8));
            return;
        };
        let bounded = rtt.min(average.saturating_mul(2));
        let distance = bounded.saturating_sub(average) + average.saturating_sub(bounded);
        self.deviation = Nanos::new((self.deviation.get() * 3 + distance.get()) / 4);
        self.average = Some(Nanos::new((average.get() + bounded.get()) / 2));
    }

    /// Time from the sending of a TPDU after which its acknowledgment is overdue.
    pub(crate) fn timeout(&self) -> Nanos {
        let Some(average) = self.average.or(self.hint) else { return INITIAL };
        let minimum = self.minimum().unwrap_or(average);
        let margin = self.deviation.saturating_mul(4).max(Nanos::new(minimum.get() / 8)).max(LEAST_MARGIN);
        (average.max(minimum) + margin).min(LONGEST)
    }

    /// The timeout of a repetition: it doubles `count` times, at most to one second.
    pub(crate) fn timeout_after(&self, count: u32) -> Nanos {
        let timeout = self.timeout();
        timeout.saturating_mul(1 << count.min(5)).min(timeout.max(LONGEST_REPETITION))
    }

    pub(crate) fn minimum(&self) -> Option<Nanos> {
        self.minimum.get().or(self.hint)
    }

    /// `E_N`: the network's part of the delay. Half of the minimum, because an average contains the queues that this
    /// stream's own bursts fill.
    pub(crate) fn one_way(&self) -> Nanos {
        Nanos::new(self.minimum().unwrap_or_default().get() / 2)
    }

    pub(crate) fn set_hint(&mut self, hint: Nanos) {
        self.hint = Some(hint);
    }

    pub(crate) fn last(&self) -> Nanos {
        self.last
    }
}

impl Minimum {
    fn on_sample(&mut self, now: Instant, rtt: Nanos) {
        if now.since(self.since) > WINDOW {
            *self = Minimum { since: now, current: None, previous: self.current };
        }
        self.current = Some(self.current.map_or(rtt, |current| current.min(rtt)));
    }

    fn get(&self) -> Option<Nanos> {
        self.current.into_iter().chain(self.previous).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn the_timeout_exceeds_a_steady_round_trip_by_the_margin() {
        let mut trip = RoundTrip::new(at(0), None);
        assert_eq!(trip.timeout(), INITIAL);
        (0..50).for_each(|ms| trip.on_sample(at(ms), Nanos::from_millis(40)));
        assert_eq!(trip.timeout(), Nanos::from_millis(45));
        assert_eq!(trip.one_way(), Nanos::from_millis(20));
    }

    #[test]
    fn one_late_sample_does_not_make_the_timeout_jump_and_the_minimum_follows_a_longer_route() {
        let mut trip = RoundTrip::new(at(0), None);
        (0..50).for_each(|ms| trip.on_sample(at(ms), Nanos::from_millis(40)));
        trip.on_sample(at(50), Nanos::from_millis(4_000));
        assert!(trip.timeout() <= Nanos::from_millis(110), "{}", trip.timeout());
        (0..300).for_each(|tenth| trip.on_sample(at(100 + tenth * 100), Nanos::from_millis(60)));
        assert_eq!(trip.minimum(), Some(Nanos::from_millis(60)));
    }
}
