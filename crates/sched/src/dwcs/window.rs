//! Windows x/y, and the rules a and b of 000 §2.4.1 that relax and tighten them.

use qfabric_types::Window;

/// Upper bound of y', which grows while a task is violated again and again.
const Y_BOUND: u16 = u16::MAX;

/// x/y of a task, or of the task server, whose y may be one above the largest y that a user may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub x: u16,
    pub y: u16,
}

impl From<Window> for Span {
    fn from(window: Window) -> Self {
        Span { x: window.x().into(), y: window.y().into() }
    }
}

/// x'/y': the rest of the current window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Allowed losses left; never above y'.
    pub x: u16,
    /// Periods left; above y after losses beyond the window, which make the task more urgent.
    pub y: u16,
}

impl Progress {
    /// The state at the beginning of `window`.
    pub fn of(window: Window) -> Self {
        Progress::start(Span::from(window))
    }

    /// Rule a: a period or a packet was served in time.
    pub fn on_served(&mut self, window: Window) {
        self.served(Span::from(window));
    }

    /// Rule b: a period or a packet was lost. Returns whether the loss violates `window`.
    pub fn on_lost(&mut self, window: Window) -> bool {
        self.lost(Span::from(window))
    }

    /// The state at the beginning of a window.
    pub(super) const fn start(window: Span) -> Self {
        Progress { x: window.x, y: window.y }
    }

    /// Rule a: the period was served.
    pub(super) fn served(&mut self, window: Span) {
        if self.y > self.x {
            self.y -= 1;
        } else {
            self.x -= 1;
            self.y -= 1;
        }
        self.restart_at_end(window);
    }

    /// Rule b: the period was lost. Returns whether the loss violates the window.
    pub(super) fn lost(&mut self, window: Span) -> bool {
        if self.x == 0 {
            self.y = self.y.saturating_add(1);
            return true;
        }
        self.x -= 1;
        self.y -= 1;
        self.restart_at_end(window);
        false
    }

    fn restart_at_end(&mut self, window: Span) {
        if self.x == 0 && self.y == 0 {
            *self = Progress::start(window);
        }
    }

    /// Table 1 below the deadline as one number, lower first: x'/y', then higher y' if x' is zero, and lower x' if
    /// it is not. Two ratios of numbers up to 255 differ by more than 2^-17, so these bits suffice to tell them
    /// apart; y' exceeds 255 only if x' is zero.
    pub fn urgency(self) -> u64 {
        match self.x {
            0 => u64::from(Y_BOUND - self.y),
            x => (u64::from((u32::from(x) << 17) / u32::from(self.y)) << 16) | u64::from(x),
        }
    }
}

/// Bits of [`Progress::urgency`].
pub(super) const URGENCY_BITS: u32 = 34;

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use proptest::prelude::*;

    fn window(x: u16, y: u16) -> Span {
        Span { x, y }
    }

    #[test]
    fn rule_a_relaxes_until_the_window_is_over() {
        let w = window(1, 3);
        let mut p = Progress::start(w);
        let mut seen = Vec::new();
        for _ in 0..4 {
            p.served(w);
            seen.push((p.x, p.y));
        }
        assert_eq!(seen, [(1, 2), (1, 1), (1, 3), (1, 2)]);
    }

    #[test]
    fn rule_b_tightens_and_beyond_the_window_violates() {
        let w = window(1, 3);
        let mut p = Progress::start(w);
        assert!(!p.lost(w));
        assert_eq!((p.x, p.y), (0, 2));
        assert!(p.lost(w) && p.lost(w));
        assert_eq!((p.x, p.y), (0, 4));
    }

    #[test]
    fn a_window_whose_last_period_may_be_lost_restarts() {
        let w = window(1, 2);
        let mut p = Progress::start(w);
        p.served(w);
        assert_eq!((p.x, p.y), (1, 1));
        assert!(!p.lost(w));
        assert_eq!(p, Progress::start(w));
    }

    #[test]
    fn the_bound_of_y_holds_through_a_hundred_thousand_violations() {
        let w = window(0, 1);
        let mut p = Progress::start(w);
        (0..100_000).for_each(|_| assert!(p.lost(w)));
        assert_eq!(p.y, u16::MAX);
    }

    /// Table 1 as printed, with cross products.
    fn printed(a: Progress, b: Progress) -> Ordering {
        let crossed = (u32::from(a.x) * u32::from(b.y)).cmp(&(u32::from(b.x) * u32::from(a.y)));
        crossed.then_with(|| if a.x == 0 { b.y.cmp(&a.y) } else { a.x.cmp(&b.x) })
    }

    fn progress() -> impl Strategy<Value = Progress> {
        let losing = (1u16..=255).prop_flat_map(|y| (1..=y, Just(y)));
        prop_oneof![losing, (Just(0), 1..=u16::MAX)].prop_map(|(x, y)| Progress { x, y })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn one_number_orders_windows_as_the_table_does(a in progress(), b in progress()) {
            prop_assert_eq!(a.urgency().cmp(&b.urgency()), printed(a, b));
            prop_assert!(a.urgency() >> URGENCY_BITS == 0);
        }
    }
}
