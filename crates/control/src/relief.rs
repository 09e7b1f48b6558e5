//! Relief: shows by the delay of events that the way to the sinks has become wider.
//!
//! ```text
//!   a narrow way:  |‹── event ──›|‹── event ──›|      an event occupies the way for most of its period
//!   a wider one:   |‹─ev─›|      |‹─ev─›|             it occupies a smaller part: the delay falls by the difference
//! ```
//! A stream that was lowered does not fill its way any more, so its rate does not show whether the limit is still there.
//! Its delay does: at the rung that a way just carries, an event takes between a half and the whole of a period, and
//! half of that at twice the bandwidth. Reports state the least delay since the last report, so short queues count
//! little. Only differences count, so the clocks of the hosts may differ; their slow drift is followed.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

/// Weight of the newest report in the usual delay.
const SMOOTHING: f64 = 0.2;
/// Reports in a row that must show a shorter delay.
const CONFIRM: u32 = 2;
/// Relief counts for this time.
const FRESH: Nanos = Nanos::from_millis(10_000);
/// Limit of the sinks; reports of further sinks are ignored.
const MOST: usize = 1_024;

/// The delays of a stream at its sinks, at one level of quality.
#[derive(Clone, Debug)]
pub struct Relief<K> {
    /// A delay that is shorter by this has become shorter, in nanoseconds.
    least: f64,
    sinks: BTreeMap<K, Sink>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sink {
    last: Option<f64>,
    /// The delay once it was steady, in nanoseconds: after a change of the level the queues drain first.
    usual: Option<f64>,
    shorter: u32,
    relieved: Option<Instant>,
}

impl<K: Ord + Clone> Relief<K> {
    /// For a stream with an event in every `period`: a delay that falls by an eighth of it is relief.
    pub fn new(period: Nanos) -> Relief<K> {
        Relief { least: period.get() as f64 / 8.0, sinks: BTreeMap::new() }
    }

    /// The size of events has changed: all delays change, too.
    pub fn reset(&mut self) {
        self.sinks.clear();
    }

    /// Forgets all sinks but those that `is_there` says.
    pub fn retain(&mut self, is_there: impl Fn(&K) -> bool) {
        self.sinks.retain(|sink, _| is_there(sink));
    }

    pub fn forget(&mut self, sink: &K) {
        self.sinks.remove(sink);
    }

    /// The least delay since the last report of a sink, in nanoseconds, with any constant error. A number that is not
    /// finite is ignored.
    pub fn on_delay(&mut self, sink: &K, delay_ns: f64, now: Instant) {
        let is_new = !self.sinks.contains_key(sink);
        if !delay_ns.is_finite() || is_new && self.sinks.len() >= MOST {
            return;
        }
        let least = self.least;
        self.sinks.entry(sink.clone()).or_default().on_delay(delay_ns, least, now);
    }

    /// Whether half of the sinks have had a shorter delay lately.
    pub fn is_there(&self, now: Instant) -> bool {
        let is_fresh = |sink: &&Sink| sink.relieved.is_some_and(|at| now.since(at) <= FRESH);
        let relieved = self.sinks.values().filter(is_fresh).count();
        relieved > 0 && 2 * relieved >= self.sinks.len()
    }
}

impl Sink {
    fn on_delay(&mut self, delay: f64, least: f64, now: Instant) {
        let last = self.last.replace(delay);
        let Some(usual) = self.usual else {
            self.usual = last.filter(|last| (last - delay).abs() < least / 2.0).map(|last| last.min(delay));
            return;
        };
        if delay >= usual - least {
            self.shorter = 0;
            self.usual = Some(usual + SMOOTHING * (delay - usual));
            return;
        }
        self.shorter += 1;
        if self.shorter >= CONFIRM {
            *self = Sink { relieved: Some(now), ..Sink::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: f64 = 1e6;

    fn at(half: usize) -> Instant {
        Instant::new(half as u64 * 500_000_000)
    }

    /// Whether there is relief after each of these delays in ms, twice a second.
    fn seen(delays: &[f64]) -> Vec<bool> {
        let mut relief = Relief::new(Nanos::from_millis(50));
        let step = |(half, delay): (usize, &f64)| {
            relief.on_delay(&"b", delay * MS, at(half));
            relief.is_there(at(half))
        };
        delays.iter().enumerate().map(step).collect()
    }

    #[test]
    fn a_delay_that_falls_by_an_eighth_of_the_period_twice_is_relief() {
        assert_eq!(seen(&[40.0, 41.0, 39.0, 20.0, 20.0]), [false, false, false, false, true]);
        assert!(!seen(&[40.0, 41.0, 20.0, 40.0, 20.0, 40.0]).contains(&true), "single reports");
        assert!(!seen(&[40.0, 41.0, 38.0, 36.0, 36.0, 35.0]).contains(&true), "less than an eighth");
        assert!(seen(&[-900.0, -901.0, -920.0, -920.0]).contains(&true), "the clocks differ by a second");
    }

    #[test]
    fn a_queue_that_drains_and_clocks_that_drift_are_no_relief() {
        let drains: Vec<f64> = (0..20).map(|half| (400.0 - 30.0 * f64::from(half)).max(40.0)).collect();
        assert!(!seen(&drains).contains(&true), "{drains:?}");
        let drifts: Vec<f64> = (0..600).map(|half| 40.0 - 0.05 * f64::from(half)).collect();
        assert!(!seen(&drifts).contains(&true), "100 µs per second");
    }

    #[test]
    fn half_of_the_sinks_must_see_it_and_it_is_forgotten_after_ten_seconds() {
        let mut relief = Relief::new(Nanos::from_millis(50));
        for half in 0..6 {
            relief.on_delay(&"b", if half < 3 { 40.0 } else { 10.0 } * MS, at(half));
            relief.on_delay(&"c", 40.0 * MS, at(half));
            relief.on_delay(&"d", 40.0 * MS, at(half));
        }
        assert!(!relief.is_there(at(6)), "one of three");
        relief.forget(&"d");
        assert!(relief.is_there(at(6)) && !relief.is_there(at(30)));
        relief.reset();
        assert!(!relief.is_there(at(6)));
    }

    proptest! {
        #[test]
        fn noise_below_half_of_the_threshold_is_never_relief(delays in prop::collection::vec(40.0f64..43.0, 0..200)) {
            prop_assert!(!seen(&delays).contains(&true));
        }
    }
}
