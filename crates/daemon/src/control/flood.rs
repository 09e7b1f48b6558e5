//! Limits the time of the control thread that one application may take: a number of records and wake-ups per window.
//!
//! A correct application sends at most two records and one wake-up per job. Each checkpoint of a late job, and its end,
//! is one record and one wake-up more. The limit is four of each per job, plus the size of a ring, so that a backlog
//! after a pause is not a flood. Beyond the limit, the ring is not read and wake-ups are ignored until the window ends.
//! Both are counted.

use qfabric_types::{Instant, Nanos, ring};
/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
const PER_JOB: u64 = 4;
/// Additional wake-ups per window: an application that was starved catches up job by job.
const SPARE_WAKES: u64 = 64;

/// The use of one application in the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    ends: Instant,
    records: u64,
    wakes: u64,
    records_allowed: u64,
    wakes_allowed: u64,
}

impl Flood {
    /// For an application with one job per `period`.
    pub(super) fn new(period: Nanos) -> Self {
        let jobs = WINDOW.get() / period.get().max(1) + 1;
        Flood {
            ends: Instant::ZERO,
            records: 0,
            wakes: 0,
            records_allowed: ring::CAPACITY as u64 + PER_JOB * jobs,
            wakes_allowed: SPARE_WAKES + PER_JOB * jobs,
        }
    }

    /// Begins the next window if the present one is over. Returns whether it did.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        if now < self.ends {
            return false;
        }
        *self = Flood { ends: now + WINDOW, records: 0, wakes: 0, ..*self };
        true
    }

    /// Counts records that were read, valid or not. Returns whether the next one may be read.
    pub(super) fn records(&mut self, looked_at: u64) -> bool {
        self.records = self.records.saturating_add(looked_at);
        self.records < self.records_allowed
    }

    /// Counts a wake-up. Returns whether the next one is accepted.
    pub(super) fn wake(&mut self) -> bool {
        self.wakes += 1;
        self.wakes < self.wakes_allowed
    }

    pub(super) fn ends(&self) -> Instant {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos::from_millis(40);

    #[test]
    fn a_correct_application_with_a_full_ring_is_within_the_limit() {
        let mut flood = Flood::new(T);
        flood.turn(Instant::new(1));
        let honest = ring::CAPACITY + 2 * 3;
        assert!((0..honest).all(|_| flood.records(1)));
        assert!((0..3).all(|_| flood.wake()));
    }

    #[test]
    fn records_beyond_the_limit_wait_for_the_next_window() {
        let mut flood = Flood::new(T);
        let start = Instant::new(5);
        assert!(flood.turn(start));
        let taken = (0..10_000).filter(|_| flood.records(1)).count();
        assert_eq!(taken + 1, ring::CAPACITY + 4 * 3);
        assert!(!flood.turn(start + Nanos::from_millis(99)) && !flood.records(1));
        assert!(flood.turn(start + Nanos::from_millis(100)) && flood.records(1));
    }

    #[test]
    fn the_shortest_period_has_room_for_its_jobs() {
        let mut flood = Flood::new(Nanos::from_micros(100));
        flood.turn(Instant::new(1));
        assert!((0..2_000).all(|_| flood.records(1)));
        assert!((0..1_000).all(|_| flood.wake()));
    }
}
