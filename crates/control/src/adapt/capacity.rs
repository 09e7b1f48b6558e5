//! Estimates the capacity of a path from the events that arrive, without measuring the network.
//!
//! ```text
//!            short `CONFIRM` times                       whole for `patience`
//!   Steady ─────────────────────> (capacity falls)  Steady ─────────────────> Probing (capacity rises)
//!     ^                                                                         │ whole: go on
//!     └─────────────────────────────────────────────────────────────────────────┘ short: old capacity, patience ×2
//! ```
//!
//! If all requested events arrive (*whole*), the capacity is at least that large. If fewer arrive (*short*), the
//! arrived amount is the capacity. Only a try shows whether there is more, and a failed try costs quality. So each
//! failure doubles the time to the next try: a lasting limit is rarely touched, and a limit that has gone is found
//! within [`Terms::most_patience`]; after that the tries are frequent again. Amounts are in bits per second, or in
//! another unit that the caller chooses.

use qfabric_types::{Instant, Nanos};

/// Consecutive short judgements needed before the capacity falls: a single one may come from a frame on the border
/// of two reports.
const CONFIRM: u32 = 2;

/// Thresholds and waiting times of the estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Fraction of the requested amount; if less arrives, the judgement is short.
    pub tolerance: f64,
    /// Fraction of the arrived amount that stays unused, so that a queue at the bottleneck drains.
    pub reserve: f64,
    /// First waiting time between a change and the next try for more.
    pub patience: Nanos,
    /// Longest waiting time.
    pub most_patience: Nanos,
    /// Time after a change during which reports still describe the time before the change.
    pub settle: Nanos,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            tolerance: 0.96,
            reserve: 0.02,
            patience: Nanos::from_millis(2_000),
            most_patience: Nanos::from_millis(16_000),
            settle: Nanos::from_millis(600),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Regime {
    Steady { shorts: u32 },
    Probing { from: f64, shorts: u32 },
}

/// The estimate of one path's capacity.
#[derive(Clone, Debug)]
pub struct Capacity {
    terms: Terms,
    estimate: f64,
    regime: Regime,
    patience: Nanos,
    /// The limit that the last failed try found, including the tolerated loss. A try that gets more than this limit shows
    /// that the limit has risen. The amount which the failed try requested would not do: it may have been far above the
    /// limit, and a later successful try may request less.
    failed: f64,
    changed: Instant,
}

impl Capacity {
    /// Starts with the amount `hoped`; the first reports correct it.
    pub fn new(hoped: f64, terms: Terms, now: Instant) -> Self {
        let regime = Regime::Steady { shorts: 0 };
        Capacity { terms, estimate: hoped.max(0.0), regime, patience: terms.patience, failed: 0.0, changed: now }
    }

    pub fn estimate(&self) -> f64 {
        self.estimate
    }

    /// Whether a try for more is under way.
    pub fn is_trying(&self) -> bool {
        matches!(self.regime, Regime::Probing { .. })
    }

    /// The time from which reports describe the amount requested now.
    pub fn settled_at(&self) -> Instant {
        self.changed + self.terms.settle
    }

    /// The time of the next try, for a caller that receives no reports.
    pub fn next_wakeup(&self) -> Instant {
        self.changed + self.patience.max(self.terms.settle)
    }

    /// Records the requested and the arrived amount. `step` is the smallest increase worth a try; `None` means that
    /// no more is wanted. Returns the new estimate if it changed. Ignored before [`Capacity::settled_at`].
    pub fn on_report(&mut self, asked: f64, arrived: f64, step: Option<f64>, now: Instant) -> Option<f64> {
        if now < self.settled_at() {
            return None;
        }
        if arrived < asked * self.terms.tolerance { self.short(arrived, now) } else { self.whole(asked, step, now) }
    }

    fn short(&mut self, arrived: f64, now: Instant) -> Option<f64> {
        let (shorts, from) = match self.regime {
            Regime::Steady { shorts } => (shorts + 1, None),
            Regime::Probing { shorts, from } => (shorts + 1, Some(from)),
        };
        if shorts < CONFIRM {
            self.regime = from.map_or(Regime::Steady { shorts }, |from| Regime::Probing { from, shorts });
            return None;
        }
        let limit = arrived / self.terms.tolerance;
        // A failed try returns to the amount that worked before, or to the arrived amount if that is smaller.
        let arrived = arrived * (1.0 - self.terms.reserve);
        if let Some(from) = from {
            self.failed = limit;
            self.patience = self.patience.saturating_mul(2).min(self.terms.most_patience);
            return self.change(from.min(self.estimate).min(arrived.max(from * self.terms.tolerance)), now);
        }
        self.change(arrived.min(self.estimate), now)
    }

    fn whole(&mut self, asked: f64, step: Option<f64>, now: Instant) -> Option<f64> {
        if self.is_trying() && asked > self.failed {
            (self.patience, self.failed) = (self.terms.patience, 0.0);
        }
        self.regime = Regime::Steady { shorts: 0 };
        let step = step.filter(|step| *step > 0.0 && now >= self.next_wakeup())?;
        let from = self.estimate;
        self.change(from + step, now);
        self.regime = Regime::Probing { from, shorts: 0 };
        Some(self.estimate)
    }

    fn change(&mut self, to: f64, now: Instant) -> Option<f64> {
        self.regime = Regime::Steady { shorts: 0 };
        self.estimate = to.max(0.0);
        self.changed = now;
        Some(self.estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: Nanos = Nanos::from_millis(250);

    /// Requests the whole estimate, up to `wanted`, from a limit that may change over time.
    fn driven(limit: impl Fn(u64) -> f64, wanted: f64, reports: u64) -> Vec<f64> {
        let mut capacity = Capacity::new(wanted, Terms::default(), Instant::ZERO);
        let mut now = Instant::ZERO;
        let mut judged = |i: u64, now: &mut Instant| {
            *now = *now + REPORT;
            let asked = capacity.estimate().min(wanted);
            let step = (capacity.estimate() < wanted).then_some(wanted * 0.04);
            capacity.on_report(asked, asked.min(limit(i)), step, *now);
            capacity.estimate()
        };
        (0..reports).map(|i| judged(i, &mut now)).collect()
    }

    #[test]
    fn the_arrived_amount_becomes_the_capacity() {
        let seen = driven(|_| 50.0, 100.0, 40);
        assert!((45.0..=55.0).contains(seen.last().unwrap()), "{seen:?}");
    }

    #[test]
    fn one_short_report_changes_nothing() {
        assert!(driven(|i| if i == 10 { 50.0 } else { 200.0 }, 100.0, 30).iter().all(|seen| *seen >= 100.0));
    }

    #[test]
    fn a_lasting_limit_is_tried_less_and_less_often() {
        let seen = driven(|_| 50.0, 100.0, 1_200);
        let tries = |part: &[f64]| part.windows(2).filter(|pair| pair[1] > pair[0]).count();
        let (early, late) = (tries(&seen[..240]), tries(&seen[960..]));
        assert!(late <= 6 && late <= early, "{early} tries early, {late} late");
    }

    #[test]
    fn a_limit_that_disappears_is_noticed() {
        let seen = driven(|i| if i < 400 { 50.0 } else { 1e9 }, 100.0, 1_200);
        assert!(*seen.last().unwrap() >= 100.0, "{:?}", seen.last());
    }

    /// Of 23 that are asked for 6 arrive, again and again; later a try that asks for less than those did succeeds.
    #[test]
    fn a_try_below_earlier_ones_that_brings_more_than_their_limit_makes_tries_quick_again() {
        let mut capacity = Capacity::new(0.0, Terms::default(), Instant::ZERO);
        let mut now = Instant::ZERO;
        // How many reports it takes until the estimate is another one, which is tried to be `wanted`.
        let mut reports = |asked, arrived, wanted: f64| {
            let mut report = || {
                now = now + REPORT;
                let step = Some(wanted - capacity.estimate());
                capacity.on_report(asked, arrived, step, now)
            };
            (1..).find(|_| report().is_some()).unwrap_or(u64::MAX)
        };
        for _ in 0..6 {
            reports(0.0, 0.0, 23.0);
            reports(23.0, 6.0, 23.0);
        }
        reports(0.0, 0.0, 20.0);
        let waited = reports(20.0, 20.0, 25.0);
        assert!(REPORT.saturating_mul(waited) <= Terms::default().patience, "{waited} reports until the next try");
    }

    #[test]
    fn the_estimate_recovers_from_zero() {
        let seen = driven(|i| if i < 100 { 0.0 } else { 1e9 }, 100.0, 1_600);
        assert!(seen[99] < 10.0 && *seen.last().unwrap() >= 100.0, "{} {:?}", seen[99], seen.last());
    }

    proptest! {
        #[test]
        fn the_estimate_is_never_negative_and_rises_by_at_most_a_step(
            reports in proptest::collection::vec((0.0f64..1e6, 0.0f64..1.2), 1..200)
        ) {
            let mut capacity = Capacity::new(1e6, Terms::default(), Instant::ZERO);
            let mut now = Instant::ZERO;
            for (asked, part) in reports {
                now = now + REPORT;
                let before = capacity.estimate();
                capacity.on_report(asked, asked * part, Some(1e3), now);
                prop_assert!(capacity.estimate() >= 0.0 && capacity.estimate() <= before + 1e3 + 1e-6);
            }
        }
    }
}
