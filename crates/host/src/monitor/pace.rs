//! Poll periods by feedback.

use qfabric_types::Nanos;
use qfabric_types::monitor::{AdaptivePeriod, Reading};

/// Chooses how often an attribute is polled from what came out (Q-Fabric §2.2).
pub trait Pace: Send {
    /// The period from this reading on; `period` is the one in force. What is out of range is brought into it.
    fn next(&mut self, reading: &Reading, period: Nanos) -> Nanos;
}

impl<F: FnMut(&Reading, Nanos) -> Nanos + Send> Pace for F {
    fn next(&mut self, reading: &Reading, period: Nanos) -> Nanos {
        self(reading, period)
    }
}

/// Often while the value moves, seldom while it rests. The ratio makes it quick to notice and slow to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    terms: AdaptivePeriod,
    before: Option<i64>,
}

impl Adaptive {
    /// Between its periods.
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
