//! Late jobs keep the clock high, and let it down in steps.
//!
//! ```text
//!            late                      HOLD looks on time              each further look on time
//!   steady ────────▶ held at highest ─────────────────────▶ stepping ──────────────────────────▶ one step lower
//!     ▲                    ▲                                  │  │
//!     │                    └──── late: holds twice as long ───┘  │ the sufficient clock is reached
//!     └──────────────────────────────────────────────────────────┘
//! ```
//! Without the hold the clock would alternate between the one that makes jobs late and the highest one. The load that
//! made jobs late at a clock often does so again there, so each hold after another is twice as long, up to
//! [`LONGEST`]. [`HOLD`] looks at a steady clock without late jobs end the series.

/// Looks for which the highest clock is held.
const HOLD: u32 = 6;
/// Longest hold, in looks.
const LONGEST: u32 = 96;

#[derive(Debug)]
pub(super) struct Lateness {
    /// Looks on time that are left of the hold.
    held: u32,
    /// Length of the next hold.
    next_hold: u32,
    /// The clock is not lower than this part while it steps down. Zero: steady.
    floor: f64,
    /// The look that was counted last allows a step.
    may_step: bool,
    /// Looks on time since the clock is steady.
    steady: u32,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { held: 0, next_hold: HOLD, floor: 0.0, may_step: false, steady: 0 }
    }
}

impl Lateness {
    /// Counts one look of the daemon's thread.
    pub(super) fn count(&mut self, late: bool) {
        if late {
            (self.held, self.floor, self.may_step, self.steady) = (self.next_hold, 1.0, false, 0);
            self.next_hold = (self.next_hold * 2).min(LONGEST);
            return;
        }
        self.may_step = self.held == 0 && self.floor > 0.0;
        self.held = self.held.saturating_sub(1);
        if self.floor == 0.0 {
            self.steady = self.steady.saturating_add(1);
            if self.steady >= HOLD {
                self.next_hold = HOLD;
            }
        }
    }

    /// The clock if `suffices` is enough for the reservations. `below`: one step below a clock.
    pub(super) fn bound(&mut self, suffices: f64, below: impl Fn(f64) -> f64) -> f64 {
        if std::mem::take(&mut self.may_step) {
            self.floor = below(self.floor);
        }
        if self.floor <= suffices && self.held == 0 {
            self.floor = 0.0;
        }
        suffices.max(self.floor)
    }
}
