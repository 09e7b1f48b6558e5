//! The watchdog over a granted rate: a reservation promises that the path carries the rate. When the delay of packets
//! keeps growing or loss persists, the promise does not hold, and sending on at the rate would harm other flows
//! (RFC 8085 §3.1).

use std::fmt;
use std::time::Duration;

/// A round lasts one minimum round trip, and at least this long, so that it has several packets.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);
/// Rounds in each of which the delay was larger than in the round before.
const GROWING_ROUNDS: u32 = 8;
/// The least growth over these rounds: less is the serialization of one large frame.
const LEAST_GROWTH: Duration = Duration::from_millis(40);
/// Growth is also at least this part of the shortest round trip: a long path varies more.
const LEAST_GROWTH_PART: u32 = 2;
/// Rounds with a delay that is longer by as much, of the last [`WINDOW`] rounds, that count as a queue that stays. A sender
/// whose window is full makes the delay grow in a few rounds only, and then it stays.
const SLOW_ROUNDS: u32 = 24;
/// Loss above this part of the bytes is not the random loss that METP repairs (2 to 5 % on wireless links).
const MUCH_LOSS: f64 = 0.10;
/// Rounds with much loss, of the last [`WINDOW`] rounds with enough packets, that count as persistent.
const LOSS_ROUNDS: u32 = 24;
const WINDOW: u32 = 32;
/// A round with fewer bytes says nothing about loss.
const FEWEST_BYTES: u64 = 8_000;

/// Why the watchdog revoked a granted rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Revocation {
    /// The delay grew in each of several successive rounds, by this time in total.
    DelayGrows { by_ms: u64 },
    /// The delay stayed longer than the shortest round trip, by this time.
    DelayStays { by_ms: u64 },
    /// Of the bytes of this many rounds, this part in percent was lost.
    LossPersists { percent: u64 },
    /// The reservation ended, or the daemon no longer answers.
    ReservationEnded,
    /// The packets have other addresses than the reserved flow. Reserve again for the new ones.
    OtherAddresses,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revocation::DelayGrows { by_ms } => {
                write!(f, "the delay grew by {by_ms} ms in {GROWING_ROUNDS} successive round trips")
            }
            Revocation::DelayStays { by_ms } => {
                write!(f, "the delay stayed longer by {by_ms} ms for {WINDOW} round trips")
            }
            Revocation::LossPersists { percent } => {
                write!(f, "{percent} % of the bytes were lost for {WINDOW} round trips")
            }
            Revocation::ReservationEnded => f.write_str("the reservation ended"),
            Revocation::OtherAddresses => f.write_str("the reservation is for other addresses; reserve again"),
        }
    }
}

/// Observes the acknowledgments and losses of one connection. Times are since any fixed moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    round: Round,
    /// The smallest delay of the last complete round, and how long it has grown.
    last: Option<Duration>,
    growing: u32,
    /// The delay before it began to grow.
    base: Duration,
    slow: Recent,
    lossy: Recent,
}

/// Which of the last [`WINDOW`] rounds had a property.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// One bit per round; the newest is the lowest.
    bits: u64,
    judged: u32,
}

impl Recent {
    /// Adds a round. Returns whether the window is full and `least` of its rounds had the property.
    fn add(&mut self, has_it: bool, least: u32) -> bool {
        self.bits = (self.bits << 1 | u64::from(has_it)) & ((1 << WINDOW) - 1);
        self.judged = (self.judged + 1).min(WINDOW);
        self.judged == WINDOW && self.bits.count_ones() >= least
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    ends: Duration,
    /// The smallest round trip of the packets acknowledged in this round: queues of bursts are not in it.
    least: Option<Duration>,
    acknowledged: u64,
    lost: u64,
}

impl Watch {
    /// A packet that took `trip` was acknowledged.
    pub(crate) fn acknowledged(
        &mut self,
        now: Duration,
        trip: Duration,
        bytes: u64,
        min_rtt: Duration,
    ) -> Option<Revocation> {
        let verdict = (now >= self.round.ends).then(|| self.end_round(now, min_rtt)).flatten();
        let least = self.round.least.map_or(trip, |least| least.min(trip));
        self.round.least = Some(least);
        self.round.acknowledged += bytes;
        verdict
    }

    pub(crate) fn lost(&mut self, bytes: u64) {
        self.round.lost += bytes;
    }

    fn end_round(&mut self, now: Duration, min_rtt: Duration) -> Option<Revocation> {
        let round = std::mem::take(&mut self.round);
        self.round.ends = now + min_rtt.max(SHORTEST_ROUND);
        let delay = round.least.and_then(|least| self.delay(least, min_rtt));
        delay.or_else(|| self.loss(&round))
    }

    fn delay(&mut self, least: Duration, min_rtt: Duration) -> Option<Revocation> {
        match self.last.replace(least) {
            Some(last) if least > last => {
                if self.growing == 0 {
                    self.base = last;
                }
                self.growing += 1;
            }
            _ => self.growing = 0,
        }
        let much = LEAST_GROWTH.max(min_rtt / LEAST_GROWTH_PART);
        let (by, above) = (least.saturating_sub(self.base), least.saturating_sub(min_rtt));
        let stays = self.slow.add(above >= much, SLOW_ROUNDS);
        if self.growing >= GROWING_ROUNDS && by >= much {
            return Some(Revocation::DelayGrows { by_ms: by.as_millis() as u64 });
        }
        stays.then_some(Revocation::DelayStays { by_ms: above.as_millis() as u64 })
    }

    fn loss(&mut self, round: &Round) -> Option<Revocation> {
        let bytes = round.acknowledged + round.lost;
        if bytes < FEWEST_BYTES {
            return None;
        }
        let part = round.lost as f64 / bytes as f64;
        let much = self.lossy.add(part > MUCH_LOSS, LOSS_ROUNDS);
        much.then_some(Revocation::LossPersists { percent: (part * 100.0).round() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    /// Passes rounds of ten packets in; `trip` and `lost` of each round.
    fn rounds(count: u64, trip: impl Fn(u64) -> Duration, lost: impl Fn(u64) -> u64) -> Option<Revocation> {
        let mut watch = Watch::default();
        (0..count).find_map(|round| {
            let now = RTT * round as u32;
            let verdict = (0..10).find_map(|_| watch.acknowledged(now, trip(round), 1_400, RTT));
            watch.lost(lost(round) * 1_400);
            verdict
        })
    }

    #[test]
    fn a_delay_that_keeps_growing_revokes_the_rate() {
        let verdict = rounds(20, |round| RTT + Duration::from_millis(10) * round as u32, |_| 0);
        assert!(matches!(verdict, Some(Revocation::DelayGrows { by_ms: 80.. })), "{verdict:?}");
    }

    #[test]
    fn a_delay_that_stays_revokes_the_rate() {
        let queue = |round: u64| RTT + Duration::from_millis(100) * u32::from(round > 4);
        assert_eq!(rounds(60, queue, |_| 0), Some(Revocation::DelayStays { by_ms: 100 }));
    }

    #[test]
    fn bursts_jitter_and_random_loss_do_not() {
        let saw_tooth = |round: u64| RTT + Duration::from_millis(15) * (round % 6) as u32;
        assert_eq!(rounds(400, saw_tooth, |round| u64::from(round % 4 == 0)), None);
        let creeping = |round: u64| RTT + Duration::from_micros(100) * round as u32;
        assert_eq!(rounds(200, creeping, |_| 0), None, "less than the growth that counts");
    }

    #[test]
    fn loss_that_persists_revokes_the_rate_and_a_short_fade_does_not() {
        assert!(matches!(rounds(60, |_| RTT, |_| 2), Some(Revocation::LossPersists { percent: 17 })));
        assert_eq!(rounds(400, |_| RTT, |round| if round % 64 < 20 { 3 } else { 0 }), None);
    }
}
