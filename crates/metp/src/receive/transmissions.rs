//! Which transmissions are missing, and when a missing one is lost and not only late.
//!
//! Every data TPDU has a new transmission number, so a gap in the numbers shows the loss of a retransmission as well. A
//! transmission is lost when it was overtaken by enough others, or when it stays missing for some time. Both limits
//! grow when a network reorders, and shrink again while it does not.

use qfabric_types::{Instant, Nanos};

use crate::blocks::extended;

#[derive(Clone, Debug)]
pub(super) struct Transmissions {
    /// One more than the highest number that arrived.
    next: u64,
    /// Bit i: number `next` − 1 − i arrived.
    arrived: u64,
    /// Bit i: number `next` − 1 − i is missing, and not yet lost.
    missing: u64,
    /// A missing number is lost if the highest one is larger by this much; 2 to 63.
    threshold: u32,
    /// A missing number is lost after this time.
    patience: Nanos,
    /// When the last gap was noticed.
    noticed: Instant,
    /// The highest number at the time when missing ones were last lost by time.
    lost_by_time: u64,
    /// Arrivals in order since the last change of the limits.
    calm: u32,
}

/// One datagram may overtake another one on most networks; two rarely do.
const LEAST_THRESHOLD: u32 = 2;
const MOST_THRESHOLD: u32 = 63;
const LEAST_PATIENCE: Nanos = Nanos::from_millis(3);
const MOST_PATIENCE: Nanos = Nanos::from_millis(50);
/// After this many arrivals in order, the limits shrink by half.
const CALM: u32 = 512;

impl Default for Transmissions {
    fn default() -> Transmissions {
        Transmissions {
            next: 0,
            arrived: 0,
            missing: 0,
            threshold: LEAST_THRESHOLD,
            patience: LEAST_PATIENCE,
            noticed: Instant::ZERO,
            lost_by_time: 0,
            calm: 0,
        }
    }
}

impl Transmissions {
    /// A TPDU with the low 24 bits of a number arrived. Returns whether a missing number has become lost.
    pub(super) fn on_arrival(&mut self, now: Instant, low: u32) -> bool {
        let number = extended(low, 24, self.next);
        match number.checked_sub(self.next) {
            Some(skipped) => self.advance(now, number, skipped),
            None => {
                self.on_overtaken(now, self.next - 1 - number);
                false
            }
        }
    }

    /// A higher number than all others arrived; `skipped` numbers in front of it did not.
    fn advance(&mut self, now: Instant, number: u64, skipped: u64) -> bool {
        self.next = number + 1;
        let Ok(shift @ 0..=62) = u32::try_from(skipped + 1) else {
            (self.arrived, self.missing) = (1, 0);
            return true;
        };
        let is_lost = self.missing >> (64 - shift) != 0;
        let gap = ((1u64 << shift) - 1) & !1;
        self.arrived = self.arrived << shift | 1;
        self.missing = self.missing << shift | gap;
        if gap != 0 {
            self.noticed = now;
        } else if self.missing == 0 {
            self.on_calm();
        }
        let lost = self.missing & (u64::MAX << self.threshold);
        self.missing &= !lost;
        is_lost || lost != 0
    }

    /// A number arrived after a higher one; `age` is their distance. A repetition of an old number changes nothing.
    fn on_overtaken(&mut self, now: Instant, age: u64) {
        if age >= 64 || self.arrived & 1 << age != 0 {
            return;
        }
        self.arrived |= 1 << age;
        self.missing &= !(1 << age);
        self.threshold = self.threshold.max(age as u32 + 1).min(MOST_THRESHOLD);
        let late = now.since(self.noticed);
        self.patience = self.patience.max(late + Nanos::new(late.get() / 4)).min(MOST_PATIENCE);
        self.calm = 0;
    }

    fn on_calm(&mut self) {
        self.calm += 1;
        if self.calm >= CALM {
            self.calm = 0;
            self.threshold = (self.threshold / 2).max(LEAST_THRESHOLD);
            self.patience = Nanos::new(self.patience.get() / 2).max(LEAST_PATIENCE);
        }
    }

    /// Missing numbers up to this one are lost.
    pub(super) fn lost_up_to(&self) -> u64 {
        let highest = self.next.saturating_sub(1);
        highest.saturating_sub(u64::from(self.threshold)).max(self.lost_by_time)
    }

    /// When the missing numbers are lost, if they do not arrive.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        (self.missing != 0).then(|| self.noticed + self.patience)
    }

    /// Returns whether missing numbers have become lost.
    pub(super) fn on_time(&mut self, now: Instant) -> bool {
        let is_due = self.next_wakeup().is_some_and(|at| at <= now);
        if is_due {
            (self.missing, self.lost_by_time) = (0, self.next.saturating_sub(1));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn a_number_that_two_others_overtook_is_lost() {
        let mut transmissions = Transmissions::default();
        assert!(![0, 1, 2].iter().any(|number| transmissions.on_arrival(at(0), *number)));
        assert!(!transmissions.on_arrival(at(1), 4), "3 may only be late");
        assert!(transmissions.on_arrival(at(1), 5));
        assert_eq!(transmissions.lost_up_to(), 3);
        assert_eq!(transmissions.next_wakeup(), None);
    }

    #[test]
    fn a_number_that_stays_missing_is_lost() {
        let mut transmissions = Transmissions::default();
        transmissions.on_arrival(at(0), 0);
        transmissions.on_arrival(at(1), 2);
        assert_eq!(transmissions.next_wakeup(), Some(at(4)));
        assert!(!transmissions.on_time(at(3)));
        assert!(transmissions.on_time(at(4)));
        assert_eq!(transmissions.lost_up_to(), 2);
    }

    #[test]
    fn a_network_that_reorders_gets_more_patience_and_loses_it_again() {
        let mut transmissions = Transmissions::default();
        [0, 1, 6, 7].iter().for_each(|number| {
            transmissions.on_arrival(at(0), *number);
        });
        transmissions.on_arrival(at(8), 2);
        assert_eq!((transmissions.threshold, transmissions.patience), (6, Nanos::from_millis(10)));
        transmissions.on_arrival(at(8), 2);
        (3..6).chain(8..3_000).for_each(|number| {
            transmissions.on_arrival(at(9), number);
        });
        assert_eq!((transmissions.threshold, transmissions.patience), (LEAST_THRESHOLD, LEAST_PATIENCE));
    }

    #[test]
    fn a_long_gap_is_lost_at_once() {
        let mut transmissions = Transmissions::default();
        transmissions.on_arrival(at(0), 0);
        assert!(transmissions.on_arrival(at(0), 500));
        assert!(!transmissions.on_arrival(at(0), 501));
    }
}
