//! The difference between another host's clock and this host's.
//!
//! A ping is sent at t0, answered at t1 of the other clock, and the answer is back at t2: the other clock is ahead by
//! t1 − (t0 + t2)/2, with an error of half the round trip. Of the last [`SAMPLES`] samples the one with the shortest round
//! trip counts, because a longer one waited in a queue in an unknown direction. Clocks drift, so the error of a sample grows
//! with its age: by [`DRIFT`].

use qfabric_types::{Instant, Nanos};

/// Number of samples that are kept.
const SAMPLES: usize = 8;
/// The ping interval until [`SAMPLES`] samples exist; later pings are rare.
const QUICK: Nanos = Nanos::from_millis(100);
const SELDOM: Nanos = Nanos::from_millis(5_000);
/// The relative drift of two clocks in millionths: 50 for each clock, and the same again as a margin for bad crystals.
const DRIFT: u64 = 200;
/// A host from which no event has arrived for this time is not pinged.
const IDLE: Nanos = Nanos::from_millis(15_000);

/// The measured difference of another host's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The latest is last.
    samples: Vec<Sample>,
    heard: Option<Instant>,
    pub due: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The other clock less this host's, in nanoseconds.
    offset: i64,
    round_trip: Nanos,
    /// The time of the answer.
    at: Instant,
}

impl Sample {
    /// The largest error of the offset at `now`.
    fn error(&self, now: Instant) -> Nanos {
        Nanos::new(self.round_trip.get() / 2 + now.since(self.at).get() / 1_000_000 * DRIFT)
    }
}

impl Clock {
    /// An event of the host arrived, so its clock matters. Returns whether a ping is due now because of it.
    pub(super) fn heard(&mut self, now: Instant) -> bool {
        self.heard = Some(now);
        if self.due.is_none() {
            self.due = Some(now);
            return true;
        }
        false
    }

    /// A ping is sent now.
    pub(super) fn pinged(&mut self, now: Instant) {
        let wait = if self.samples.len() < SAMPLES { QUICK } else { SELDOM };
        let idle = self.heard.is_none_or(|heard| now.since(heard) > IDLE);
        self.due = if idle { None } else { Some(now + wait) };
    }

    /// The answer to the ping of `t0` arrived at `t2`; the other clock said `t1`.
    pub(super) fn answered(&mut self, t0: Instant, t1: Instant, t2: Instant) {
        if t2 < t0 {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.remove(0);
        }
        let round_trip = t2.since(t0);
        let middle = t0 + Nanos::new(round_trip.get() / 2);
        self.samples.push(Sample { offset: t1.signed_since(middle), round_trip, at: t2 });
    }

    /// The other clock less this host's in nanoseconds, and the largest error.
    pub(super) fn offset(&self) -> Option<(i64, Nanos)> {
        let latest = self.samples.last()?.at;
        let best = self.samples.iter().min_by_key(|sample| sample.error(latest))?;
        Some((best.offset, Nanos::new(best.round_trip.get() / 2)))
    }

    /// Converts a time of the other clock to this host's. Before the offset is known: `now`, as if the transfer took no
    /// time.
    pub(super) fn ours(&self, theirs: u64, now: Instant) -> Instant {
        match self.offset() {
            None => now,
            // An event cannot have been sent in the future.
            Some((offset, _)) => Instant::new((theirs as i64).wrapping_sub(offset).max(0) as u64).min(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    #[test]
    fn the_shortest_round_trip_says_how_clocks_differ() {
        let mut clock = Clock::default();
        assert_eq!(clock.ours(123, ms(7)), ms(7), "the offset is unknown");
        clock.answered(ms(10), ms(1_000_014), ms(20));
        clock.answered(ms(30), ms(1_000_031), ms(32));
        assert_eq!(clock.offset(), Some((1_000_000_000_000, Nanos::from_millis(1))));
        assert_eq!(clock.ours(1_000_050_000_000, ms(60)), ms(50));
        assert_eq!(clock.ours(1_000_090_000_000, ms(60)), ms(60), "never in the future");
    }

    #[test]
    fn samples_age() {
        let mut clock = Clock::default();
        clock.answered(ms(10), ms(10), ms(10));
        for at in 0..8 {
            clock.answered(ms(20 + at), ms(26 + at), ms(22 + at));
        }
        assert_eq!(clock.offset(), Some((5_000_000, Nanos::from_millis(1))), "the drift is followed");
    }

    #[test]
    fn an_old_sample_with_a_short_way_gives_way_to_a_new_one_with_a_longer() {
        let mut clock = Clock::default();
        clock.answered(ms(0), ms(0), ms(0));
        clock.answered(ms(4_998), ms(5_000), ms(5_000));
        assert_eq!(clock.offset(), Some((0, Nanos::ZERO)), "1 ms after 5 s is no more than the drift");
        clock.answered(ms(9_998), ms(10_001), ms(10_000));
        assert_eq!(clock.offset(), Some((2_000_000, Nanos::from_millis(1))));
    }
}
