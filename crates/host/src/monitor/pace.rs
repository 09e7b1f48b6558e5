//! Poll periods that follow the readings.

use qfabric_types::Nanos;
use qfabric_types::monitor::{AdaptivePeriod, Reading};

/// Chooses the poll period of an attribute from its readings (Q-Fabric §2.2).
pub trait Pace: Send {
    /// The period after this reading; `period` is the present one. A result out of range is clamped.
    fn next(&mut self, reading: &Reading, period: Nanos) -> Nanos;
}

impl<F: FnMut(&Reading, Nanos) -> Nanos + Send> Pace for F {
    fn next(&mut self, reading: &Reading, period: Nanos) -> Nanos {
        self(reading, period)
    }
}

/// Polls often while the value moves and seldom while it rests. The ratio makes it fast to react and slow to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    terms: AdaptivePeriod,
    before: Option<i64>,
}

impl Adaptive {
    /// With the given bounds.
    pub const fn new(terms: AdaptivePeriod) -> Adaptive {
        Adaptive { terms, before: None }
    }
}

impl Pace for Adaptive {
    fn next(&mut self, reading: &Reading, period: Nanos) -> Nanos {
        let before = self.before.replace(reading.value).unwrap_or(reading.value);
        let moves = reading.value.abs_diff(before) > self.terms.tolerance;
        let ns = if moves { period.get() / 2 } else { period.get().saturating_add(period.get() / 4) };
        Nanos::new(ns).min(self.terms.most_ns).max(self.terms.least_ns)
    }
}
