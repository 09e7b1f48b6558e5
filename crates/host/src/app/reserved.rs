//! The reservations of an application over time: the sum over its threads, weighted by duration.
//!
//! A mean per job of the lead thread is wrong for a program with several threads, and for one that gives its
//! reservation back between jobs. Shares are fractions of one CPU, times are in nanoseconds.

use qfabric_types::api::ReservedTime;
use qfabric_types::{Instant, Nanos};

/// Mean and standard deviation of a value that changes in steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverTime {
    /// `None` before the first value.
    since: Option<Instant>,
    value: f64,
    length: f64,
    sum: f64,
    squares: f64,
}

impl OverTime {
    /// Sets the value from `now` on.
    pub(super) fn set(&mut self, value: f64, now: Instant) {
        *self = OverTime { since: Some(now), value, ..self.until(now) };
    }

    /// Mean and population standard deviation up to `now`; without any duration the value itself, and 0.
    pub(super) fn mean_and_sd(&self, now: Instant) -> (f64, f64) {
        let all = self.until(now);
        if all.length == 0.0 {
            return (self.value, 0.0);
        }
        let mean = all.sum / all.length;
        (mean, (all.squares / all.length - mean * mean).max(0.0).sqrt())
    }

    /// The integral of the value up to `now`, and its duration.
    pub(super) fn so_far(&self, now: Instant) -> ReservedTime {
        let all = self.until(now);
        ReservedTime { cpu_time: Nanos::from_f64(all.sum), over: Nanos::from_f64(all.length) }
    }

    /// With the time up to `now` added at the present value.
    fn until(&self, now: Instant) -> OverTime {
        let step = self.since.map_or(0.0, |since| now.since(since).as_f64());
        OverTime {
            length: self.length + step,
            sum: self.sum + step * self.value,
            squares: self.squares + step * self.value * self.value,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_as_long_as_it_holds() {
        let mut held = OverTime::default();
        assert_eq!(held.mean_and_sd(Instant::new(50)), (0.0, 0.0));
        held.set(0.2, Instant::new(100));
        held.set(1.0, Instant::new(400));
        let (mean, sd) = held.mean_and_sd(Instant::new(500));
        assert!((mean - 0.4).abs() < 1e-12 && (sd - 0.12_f64.sqrt()).abs() < 1e-12, "{mean} {sd}");
        let reading = |at| held.so_far(Instant::new(at));
        let (first, second) = (reading(500), reading(900));
        assert_eq!((first.cpu_time, first.over), (Nanos::new(160), Nanos::new(400)));
        assert_eq!(
            (second.mean_since(first), first.mean_since(first)),
            (Some(1.0), None),
            "the time before the earlier reading is left out"
        );
        assert_eq!(OverTime { since: Some(Instant::new(7)), value: 0.5, ..held }.until(Instant::new(7)).sum, held.sum);
    }
}
