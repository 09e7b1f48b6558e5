//! How much of the control thread one application may take: a budget per window, and what is over it.
//!
//! An honest application sends at most two records and one wake-up a job. Four times that is allowed, and a
//! whole ring on top, so that a backlog after a pause is no flood. Beyond, the ring is not read and wake-ups are
//! not listened to until the window ends; both are counted.

use qfabric_types::{Instant, Nanos, ring};

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
const PER_JOB: u64 = 4;
/// Wake-ups on top: an application that was starved catches up job by job.
const SPARE_WAKES: u64 = 64;

/// What one application has used of its window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    ends: Instant,
    records: u64,
    wakes: u64,
    records_allowed: u64,
    wakes_allowed: u64,
}

impl Flood {
    /// For jobs every `period`.
    pub fn new(period: Nanos) -> Self {
        let jobs = WINDOW.get() / period.get().max(1) + 1;
        Flood {
            ends: Instant::ZERO,
            records: 0,
            wakes: 0,
            records_allowed: ring::CAPACITY as u64 + PER_JOB * jobs,
            wakes_allowed: SPARE_WAKES + PER_JOB * jobs,
        }
    }

    /// Begins the next window where the last one is over; whether it did.
    pub fn turn(&mut self, now: Instant) -> bool {
        if now < self.ends {
            return false;
        }
        *self = Flood { ends: now + WINDOW, records: 0, wakes: 0, ..*self };
        true
    }

    /// Counts records that were looked at, whether they made sense or not; whether the next one may be read.
    pub fn records(&mut self, looked_at: u64) -> bool {
        self.records = self.records.saturating_add(looked_at);
        self.records < self.records_allowed
    }

    /// Counts a wake-up; whether the next one is to be listened to.
    pub fn wake(&mut self) -> bool {
        self.wakes += 1;
        self.wakes < self.wakes_allowed
    }

    /// When the window ends.
    pub fn ends(&self) -> Instant {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos::from_millis(40);

    #[test]
    fn an_honest_application_with_a_full_ring_behind_it_is_no_flood() {
        let mut flood = Flood::new(T);
        flood.turn(Instant::new(1));
        let honest = ring::CAPACITY + 2 * 3;
        assert!((0..honest).all(|_| flood.records(1)));
        assert!((0..3).all(|_| flood.wake()));
    }

    #[test]
    fn what_is_over_the_window_is_refused_until_the_next() {
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
