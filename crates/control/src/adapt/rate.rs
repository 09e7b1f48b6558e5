//! Intra-media synchronization, also called rate control: the sender of one stream keeps the arriving rate at a
//! target.
//!
//! An unknown fraction of the sent events arrives (queues, losses, a busy sink): `y = η·u`. So `u` is multiplied by
//! `(target / y)^gain`, which is the same correction for any `η`, limited to `most` per report because one report
//! may be wrong. A report that mostly covers the time before the last change is ignored; otherwise the same error
//! would be corrected twice. Source: thesis §5.1.3 (Figures 34, 36); Q-channels paper §3.3.

use qfabric_types::{Instant, Nanos};

/// Target, limits and gain of the control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Wanted arrival rate, in events per second.
    pub target: f64,
    /// An error below this, in events per second, is not corrected.
    pub tolerance: f64,
    /// 1 corrects the whole error at once; a smaller value damps noise.
    pub gain: f64,
    /// Largest change by one report, as a fraction of the rate.
    pub most: f64,
    /// Least sending rate, in events per second. Must be above 0, because without events the sender cannot notice
    /// an improvement.
    pub min: f64,
    /// Largest sending rate, in events per second.
    pub max: f64,
}

impl Terms {
    /// Default terms for a target: tolerance one event per second, half of the error per report, at most a tenth of
    /// the rate.
    pub fn new(target: f64) -> Self {
        Terms { target, tolerance: 1.0, gain: 0.5, most: 0.1, min: target / 10.0, max: target * 10.0 }
    }
}

/// The policy of the sender.
#[derive(Clone, Debug)]
pub struct RateControl {
    terms: Terms,
    rate: f64,
    changed: Option<Instant>,
}

impl RateControl {
    /// Begins by sending `rate` events per second.
    pub fn new(rate: f64, terms: Terms) -> Self {
        RateControl { terms, rate: rate.clamp(terms.min, terms.max), changed: None }
    }

    /// The sending rate, in events per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Sets another target, on behalf of the role's manager.
    pub fn aim(&mut self, target: f64) {
        self.terms.target = target;
    }

    /// Takes the arrival rate, in events per second, during the `window` that ended at `end`. Returns the new
    /// sending rate if it changed.
    pub fn on_report(&mut self, achieved: f64, window: Nanos, end: Instant) -> Option<f64> {
        let middle = end - Nanos::new(window.get() / 2);
        let stale = self.changed.is_some_and(|changed| middle < changed);
        if stale || !achieved.is_finite() || (self.terms.target - achieved).abs() <= self.terms.tolerance {
            return None;
        }
        let Terms { target, gain, most, min, max, .. } = self.terms;
        let wanted = if achieved > 0.0 { (target / achieved).powf(gain) } else { 1.0 + most };
        let rate = (self.rate * wanted.clamp(1.0 - most, 1.0 + most)).clamp(min, max);
        if rate == self.rate {
            return None;
        }
        (self.rate, self.changed) = (rate, Some(end));
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Nanos = Nanos::from_millis(250);

    proptest! {
        #[test]
        fn the_target_is_reached_for_any_arriving_fraction(part in 0.3f64..1.0, begin in 5.0f64..40.0) {
            let mut control = RateControl::new(begin, Terms::new(10.0));
            let mut now = Instant::ZERO;
            for _ in 0..60 {
                now = now + WINDOW;
                control.on_report(control.rate() * part, WINDOW, now);
            }
            prop_assert!((control.rate() * part - 10.0).abs() <= 1.0, "{}", control.rate() * part);
        }

        #[test]
        fn one_report_changes_the_rate_by_no_more_than_a_tenth(achieved in 0.0f64..1e3) {
            let mut control = RateControl::new(20.0, Terms::new(10.0));
            control.on_report(achieved, WINDOW, Instant::new(1_000_000_000));
            prop_assert!((18.0 - 1e-9..=22.0 + 1e-9).contains(&control.rate()));
        }
    }

    #[test]
    fn an_error_within_the_tolerance_is_not_corrected() {
        let mut control = RateControl::new(10.0, Terms::new(10.0));
        assert_eq!(control.on_report(9.2, WINDOW, Instant::new(1_000_000_000)), None);
    }

    #[test]
    fn a_report_from_before_a_change_is_ignored() {
        let mut control = RateControl::new(20.0, Terms::new(10.0));
        assert!(control.on_report(20.0, WINDOW, Instant::new(1_000_000_000)).is_some());
        assert_eq!(control.on_report(20.0, WINDOW, Instant::new(1_100_000_000)), None);
        assert!(control.on_report(20.0, WINDOW, Instant::new(1_250_000_000)).is_some());
    }

    #[test]
    fn without_arrivals_the_rate_rises_to_its_maximum() {
        let mut control = RateControl::new(20.0, Terms::new(10.0));
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            now = now + WINDOW;
            control.on_report(0.0, WINDOW, now);
        }
        assert_eq!(control.rate(), 100.0);
    }
}
