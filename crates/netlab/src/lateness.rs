//! How late the emulator itself is: for each packet, the time from the moment at which the link was to deliver it until
//! its delivery. A run whose emulator is late measures the machine instead of the link.

use hdrhistogram::Histogram;
use qfabric_types::Nanos;
use serde::Serialize;

/// A run with a later 99th percentile is invalid.
pub const LATE_MAX: Nanos = Nanos::from_millis(2);
/// Longer lateness counts as this.
const MOST: u64 = 60_000_000_000;

/// The lateness of all deliveries.
#[derive(Clone, Debug)]
pub struct Lateness {
    histogram: Histogram<u64>,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { histogram: Histogram::new_with_bounds(1, MOST, 2).expect("two digits up to one minute") }
    }
}

/// Lateness in numbers. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatenessSummary {
    pub deliveries: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Pairs of an upper bound in ms and the number of deliveries up to it, and above the bound before.
    pub histogram: Vec<(f64, u64)>,
}

impl Lateness {
    pub fn record(&mut self, late: Nanos) {
        self.histogram.saturating_record(late.get().clamp(1, MOST));
    }

    pub fn p99(&self) -> Nanos {
        Nanos::new(if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(0.99) })
    }

    pub fn summary(&self) -> LatenessSummary {
        if self.histogram.is_empty() {
            return LatenessSummary::default();
        }
        let at = |quantile| in_ms(self.histogram.value_at_quantile(quantile));
        LatenessSummary {
            deliveries: self.histogram.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: in_ms(self.histogram.max()),
            histogram: self.bins(),
        }
    }

    /// Bins whose bounds double from 1 µs.
    fn bins(&self) -> Vec<(f64, u64)> {
        let counted = self.histogram.iter_log(1_000, 2.0);
        counted.map(|bin| (in_ms(bin.value_iterated_to() + 1), bin.count_since_last_iteration())).collect()
    }
}

/// Milliseconds with three decimals.
fn in_ms(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_bins_count_all_deliveries() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.p99(), lateness.summary()), (Nanos::ZERO, LatenessSummary::default()));
        (0..98).for_each(|_| lateness.record(Nanos::from_micros(50)));
        lateness.record(Nanos::from_millis(3));
        lateness.record(Nanos::MAX);
        let summary = lateness.summary();
        assert!((summary.p50_ms - 0.05).abs() < 0.001 && (summary.p99_ms - 3.0).abs() < 0.05, "{summary:?}");
        assert!(lateness.p99() > LATE_MAX && (summary.max_ms / 60_000.0 - 1.0).abs() < 0.01);
        assert_eq!(summary.histogram.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert!(summary.histogram.contains(&(0.064, 98)), "{:?}", summary.histogram);
    }
}
