//! The rates that the sinks of a data channel reported last, and the sink in the middle.

use std::collections::BTreeMap;

use qfabric_types::channel::Name;
use qfabric_types::monitor::Reading;
use qfabric_types::{Instant, Nanos};

/// A report older than this no longer counts: the sink has closed, or its host is away.
pub(super) const FRESH: Nanos = Nanos::from_millis(3_000);
/// Limit of the sinks; reports of further hosts are ignored.
const MOST_SINKS: usize = 1_024;

/// The last rate of each sink, in events per second, with its time.
#[derive(Debug, Default)]
pub(super) struct SinkRates(BTreeMap<Name, (f64, Instant)>);

impl SinkRates {
    /// Takes a reading in thousandths of an event per second. Returns whether it counts.
    pub(super) fn reported(&mut self, host: &Name, reading: &Reading, now: Instant) -> bool {
        let counts = self.0.len() < MOST_SINKS || self.0.contains_key(host);
        if counts {
            self.0.insert(host.clone(), (reading.value.max(0) as f64 / 1e3, now));
        }
        counts
    }

    pub(super) fn forget(&mut self, host: &Name) {
        self.0.remove(host);
    }

    pub(super) fn keep_fresh(&mut self, now: Instant) {
        self.0.retain(|_, (_, at)| now.since(*at) <= FRESH);
    }

    /// The rate of the sink in the middle; the lower one of two.
    pub(super) fn median(&self) -> Option<(&Name, f64)> {
        let mut all: Vec<(&Name, f64)> = self.0.iter().map(|(host, (rate, _))| (host, *rate)).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all.get(all.len().checked_sub(1)? / 2).copied()
    }

    pub(super) fn has(&self, host: &Name) -> bool {
        self.0.contains_key(host)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
