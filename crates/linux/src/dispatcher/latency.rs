//! Times of each dispatch, and the CPU time of the thread that dispatches.
//!
//! ```text
//!   timer      running        threads placed      boundary     the next group may run
//!     |---wake---|------work------|~~~ waits ~~~~~~~|----late----|
//!     |<------------------- lead ------------------>|
//! ```

use qfabric_sched::dispatch::GroupId;
use qfabric_types::{Instant, Nanos};

/// Number of dispatches that are kept.
const KEPT: usize = 4_096;
/// The aim for a dispatch latency.
const AIM: Nanos = Nanos::from_micros(50);

/// The times of one dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchTimes {
    /// The boundary, at which a slot begins.
    pub boundary: Instant,
    /// The group that runs from now on and did not run before.
    pub group: Option<GroupId>,
    /// From the expiry of the timer until the thread ran.
    pub wake: Nanos,
    /// From there until all threads had the priorities of the next slot.
    pub work: Nanos,
    /// The dispatch latency: from the boundary until the threads of the next slot may run (004 §3.3). The thread holds
    /// the CPU until the boundary, so it is never negative.
    pub late: Nanos,
}

/// The latest dispatches in a ring.
#[derive(Debug)]
pub(super) struct Latencies {
    ring: Vec<DispatchTimes>,
    sums: LateSums,
}

/// The latencies of all dispatches so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LateSums {
    /// Number of dispatches.
    pub count: u64,
    /// Number of dispatches that were later than [`AIM`].
    pub late: u64,
    pub total: Nanos,
    pub most: Nanos,
}

/// Costs of the dispatcher of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchCost {
    /// CPU time of its thread.
    pub used: Nanos,
    /// Number of dispatches so far.
    pub count: u64,
    /// The latest dispatches, at most 4,096, oldest first.
    pub latest: Vec<DispatchTimes>,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies { ring: Vec::with_capacity(KEPT), sums: LateSums::default() }
    }

    /// Allocates nothing.
    pub(super) fn add(&mut self, times: DispatchTimes) {
        let at = self.sums.count as usize % KEPT;
        match self.ring.get_mut(at) {
            Some(old) => *old = times,
            None => self.ring.push(times),
        }
        let LateSums { count, late, total, most } = self.sums;
        let late = late + u64::from(times.late > AIM);
        self.sums = LateSums { count: count + 1, late, total: total + times.late, most: most.max(times.late) };
    }

    pub(super) fn sums(&self) -> LateSums {
        self.sums
    }

    /// Oldest first.
    pub(super) fn all(&self) -> Vec<DispatchTimes> {
        let oldest = if self.ring.len() < KEPT { 0 } else { self.sums.count as usize % KEPT };
        [&self.ring[oldest..], &self.ring[..oldest]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(ns: u64) -> DispatchTimes {
        DispatchTimes { late: Nanos::new(ns), ..DispatchTimes::default() }
    }

    #[test]
    fn the_oldest_dispatch_gives_way_and_the_rest_stay_in_order() {
        let mut latencies = Latencies::new();
        (0..KEPT as u64 + 2).for_each(|ns| latencies.add(late(ns)));
        let all = latencies.all();
        assert_eq!((all.len(), latencies.sums().count), (KEPT, KEPT as u64 + 2));
        assert!(all.iter().zip(2..).all(|(times, ns)| *times == late(ns)));
    }

    #[test]
    fn a_dispatch_is_late_beyond_50_microseconds() {
        let mut latencies = Latencies::new();
        [0, 50_000, 50_001, 9_000_000].map(late).into_iter().for_each(|times| latencies.add(times));
        let total = Nanos::new(9_100_001);
        assert_eq!(latencies.sums, LateSums { count: 4, late: 2, total, most: Nanos::from_millis(9) });
    }
}
