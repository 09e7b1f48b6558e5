//! Intra-media synchronization, also called rate control: the sender of one stream keeps the rate that arrives.
//!
//! What arrives is some unknown part of what is sent (queues, losses, a busy sink): `y = η·u`. So `u` is multiplied by
//! `(target / y)^gain`, which is the same correction whatever `η` is, and by no more than `most` per report: one report
//! may be wrong. A report that speaks mostly of the time before the last change is not listened to: it would be
//! corrected twice. Source: thesis §5.1.3 (Figures 34, 36); Q-channels paper §3.3.

use qfabric_types::{Instant, Nanos};

/// What is to be held, and how hard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Events per second that are to arrive.
    pub target: f64,
    /// Nearer than this, in events per second, nothing is done.
    pub tolerance: f64,
    /// 1 corrects all of the error at once; below, noise is damped.
    pub gain: f64,
    /// Largest change by one report, as a part of the rate.
    pub most: f64,
    /// Never send less, in events per second; above 0, or nobody would learn of a better day.
    pub min: f64,
    /// Never send more.
    pub max: f64,
}

impl Terms {
    /// For a target: within one event per second, half of the error per report, at most a tenth of the rate.
    pub fn new(target: f64) -> Self {
        Terms { target, tolerance: 1.0, gain: 0.5, most: 0.1, min: target / 10.0, max: target * 10.0 }
    }
}

/// The policy at the sender.
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

    /// Events per second to send.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Another target, by the role's manager.
    pub fn aim(&mut self, target: f64) {
        self.terms.target = target;
    }

    /// What arrived per second during the `window` that ended at `end`. The new rate where it changes.
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
        fn it_finds_the_target_whatever_part_arrives(part in 0.3f64..1.0, begin in 5.0f64..40.0) {
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
    fn within_the_tolerance_nothing_moves() {
        let mut control = RateControl::new(10.0, Terms::new(10.0));
        assert_eq!(control.on_report(9.2, WINDOW, Instant::new(1_000_000_000)), None);
    }

    #[test]
    fn a_report_of_the_time_before_the_change_is_not_corrected_twice() {
        let mut control = RateControl::new(20.0, Terms::new(10.0));
        assert!(control.on_report(20.0, WINDOW, Instant::new(1_000_000_000)).is_some());
        assert_eq!(control.on_report(20.0, WINDOW, Instant::new(1_100_000_000)), None);
        assert!(control.on_report(20.0, WINDOW, Instant::new(1_250_000_000)).is_some());
    }

    #[test]
    fn where_nothing_arrives_it_sends_more_until_its_maximum() {
        let mut control = RateControl::new(20.0, Terms::new(10.0));
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            now = now + WINDOW;
            control.on_report(0.0, WINDOW, now);
        }
        assert_eq!(control.rate(), 100.0);
    }
}
