//! CPU time of a policy: at most a share of each window. All times in nanoseconds.

use qfabric_types::{Instant, Nanos};

/// Length of a window. A window begins with the first call after the window before has ended.
pub(super) const WINDOW: Nanos = Nanos::from_millis(1_000);

/// CPU time that a policy has used, and its limit.
#[derive(Debug)]
pub(super) struct Budget {
    /// CPU time per window; none: the time is counted, not limited.
    pub most: Option<Nanos>,
    window_end: Instant,
    used: Nanos,
    is_suspended: bool,
    /// Since the start of the policy.
    pub total: Nanos,
    /// Number of windows in which the policy used more than its share.
    pub suspensions: u64,
}

impl Budget {
    pub(super) fn new(most: Option<Nanos>) -> Budget {
        let (window_end, used, total) = (Instant::ZERO, Nanos::ZERO, Nanos::ZERO);
        Budget { most, window_end, used, is_suspended: false, total, suspensions: 0 }
    }

    /// End of the suspension; none: the policy may be called now.
    pub(super) fn suspended_until(&self, now: Instant) -> Option<Instant> {
        (self.is_suspended && now < self.window_end).then_some(self.window_end)
    }

    /// Charges a call that ends now. `true`: the policy is suspended for the rest of the window. A call that is longer
    /// than the window counts in the window that begins at its end, so that its policy is suspended, too.
    pub(super) fn charge(&mut self, cost: Nanos, now: Instant) -> bool {
        if now >= self.window_end {
            (self.window_end, self.used, self.is_suspended) = (now + WINDOW, Nanos::ZERO, false);
        }
        self.used += cost;
        self.total += cost;
        let is_over = !self.is_suspended && self.most.is_some_and(|most| self.used > most);
        self.is_suspended |= is_over;
        self.suspensions += u64::from(is_over);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn more_than_the_share_suspends_for_the_rest_of_the_window() {
        let (mut budget, start) = (Budget::new(Some(MS(10))), Instant::new(5_000_000_000));
        assert!(!budget.charge(MS(10), start), "the share itself may be used");
        assert!(budget.charge(MS(1), start + MS(400)));
        assert_eq!(budget.suspended_until(start + MS(400)), Some(start + WINDOW));
        assert_eq!(budget.suspended_until(start + WINDOW), None);
        assert!(!budget.charge(MS(10), start + WINDOW), "the next window has its own share");
        assert_eq!((budget.total, budget.suspensions), (MS(21), 1));
    }

    #[test]
    fn a_call_longer_than_a_window_is_followed_by_a_rest() {
        let (mut budget, start) = (Budget::new(Some(MS(10))), Instant::new(5_000_000_000));
        budget.charge(MS(1), start);
        let end = start + MS(3_000);
        assert!(budget.charge(MS(3_000), end));
        assert_eq!(budget.suspended_until(end), Some(end + WINDOW));
    }

    #[test]
    fn without_a_limit_time_is_only_counted() {
        let mut budget = Budget::new(None);
        assert!(!budget.charge(MS(900), Instant::new(1)));
        assert_eq!((budget.total, budget.suspended_until(Instant::new(1))), (MS(900), None));
    }
}
