//! Converts raw numbers into values.

use qfabric_types::monitor::Shape;
use qfabric_types::{Instant, Nanos};

/// Shortest time for a rate: over a shorter time, one packet would look like a flood.
const MIN_OVER: Nanos = Nanos::new(500_000);

/// The raw reading from which the next value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub raw: i64,
    pub at: Instant,
}

impl Base {
    /// The value since the base and its duration; the base stays.
    pub(super) fn value(self, shape: Shape, raw: i64, now: Instant) -> (i64, Nanos) {
        let over = now.since(self.at);
        (shape.value(self.raw, raw, over), if shape.is_total() { over } else { Nanos::ZERO })
    }
}

/// Converts a sequence of looks into values. A total has no value before the second look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    base: Option<Base>,
    last: Option<(i64, Nanos)>,
}

impl Steps {
    /// Takes a raw reading. Returns the value since the one before; if that is too recent, returns the last value
    /// again.
    pub(super) fn step(&mut self, shape: Shape, raw: i64, now: Instant) -> Option<(i64, Nanos)> {
        let too_soon = shape.is_total() && self.base.is_some_and(|base| now.since(base.at) < MIN_OVER);
        if too_soon {
            return self.last;
        }
        let before = self.base.replace(Base { raw, at: now });
        self.last = match before {
            Some(base) => Some(base.value(shape, raw, now)),
            None => (!shape.is_total()).then_some((raw, Nanos::ZERO)),
        };
        self.last
    }

    /// The last value.
    pub(super) fn last(&self) -> Option<i64> {
        self.last.map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_has_a_value_from_the_second_look_on_and_a_level_from_the_first() {
        let ms = |ms: u64| Instant::new(ms * 1_000_000);
        let mut steps = Steps::default();
        assert_eq!(steps.step(Shape::Sum, 1_000, ms(10)), None);
        assert_eq!(steps.step(Shape::Sum, 1_005, ms(20)), Some((5, Nanos::from_millis(10))));
        assert_eq!(Steps::default().step(Shape::Level, 7, ms(10)), Some((7, Nanos::ZERO)));
    }

    #[test]
    fn no_rate_is_computed_over_a_very_short_time() {
        let mut steps = Steps::default();
        steps.step(Shape::PerSecond, 0, Instant::new(0));
        let before = steps.step(Shape::PerSecond, 100, Instant::new(100_000_000));
        assert_eq!(
            steps.step(Shape::PerSecond, 101, Instant::new(100_000_001)),
            before,
            "one event in a nanosecond is no rate of a thousand million"
        );
    }
}
