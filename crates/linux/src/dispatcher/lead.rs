//! How long before a boundary the dispatching thread wakes up.
//!
//! Problem: an idle CPU needs some ten microseconds to leave its sleep, and the system calls for the threads of a group
//! need about as many. If the timer expired at the boundary, every slot would begin that much late. Approach: the timer
//! expires earlier by a *lead*. The thread prepares all priorities and holds the CPU until the boundary. The lead follows
//! the 99th percentile of the time that was needed: a dispatch that needed more makes it longer by [`UP`], each other one
//! shorter by a 99th of that.
//!
//! The time that the thread waits for the boundary is a cost, so a lead is at most a hundredth of a slot.

use qfabric_types::{Instant, Nanos};

/// Longest lead, whatever the slot.
const MOST: Nanos = Nanos::from_micros(100);
/// Longest lead for the shortest slots: the system calls alone need it.
const LEAST_BOUND: Nanos = Nanos::from_micros(20);
/// Steps up: parts of the longest lead.
const UP: u64 = 8;
/// Dispatches per one that may need more than the lead.
const PER_LATE: u64 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    now: Nanos,
    most: Nanos,
}

impl Lead {
    pub(super) fn new(slot: Nanos) -> Lead {
        let most = Nanos::new(slot.get() / 100).clamp(LEAST_BOUND, MOST);
        Lead { now: Nanos::new(most.get() / 2), most }
    }

    pub(super) fn time(&self) -> Nanos {
        self.now
    }

    /// When the timer of a boundary expires.
    pub(super) fn before(&self, boundary: Instant) -> Instant {
        boundary - self.now
    }

    /// A dispatch needed this time from the expiry of its timer until all threads were placed.
    pub(super) fn learn(&mut self, needed: Nanos) {
        let up = self.most.get() / UP;
        let next =
            if needed > self.now { self.now.get() + up } else { self.now.get().saturating_sub(up / (PER_LATE - 1)) };
        self.now = Nanos::new(next).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::RandomNumbers;

    use super::*;

    #[test]
    fn one_of_a_hundred_dispatches_needs_more_than_the_lead() {
        let (mut random, mut lead) = (RandomNumbers::new(7), Lead::new(Nanos::from_millis(10)));
        let mut needed = || Nanos::from_micros(20 + random.draw() % 41);
        (0..20_000).for_each(|_| lead.learn(needed()));
        let late = (0..20_000)
            .filter(|_| {
                let needed = needed();
                let is_late = needed > lead.time();
                lead.learn(needed);
                is_late
            })
            .count();
        assert!((100..=300).contains(&late), "{late} of 20,000");
    }

    #[test]
    fn a_lead_is_at_most_a_hundredth_of_a_slot_and_100_microseconds() {
        for (slot_ms, most_us) in [(1, 20), (5, 50), (10, 100), (100, 100)] {
            let mut lead = Lead::new(Nanos::from_millis(slot_ms));
            (0..100).for_each(|_| lead.learn(Nanos::from_millis(5)));
            assert_eq!(lead.time(), Nanos::from_micros(most_us));
            (0..10_000).for_each(|_| lead.learn(Nanos::ZERO));
            assert!(lead.time() < Nanos::from_micros(1), "{:?}", lead.time());
        }
    }
}
