//! Inter-sink synchronization: several hosts show the same moment of a stream at the same time.
//!
//! Every sink reports the least delay after sending at which it can show an event (path, queue, decoding). All
//! sinks show the event with the delay `common` after it was sent: the largest reported delay plus a margin. The
//! common delay rises at once (otherwise the late sink would stutter). It falls slowly, and only after all sinks
//! have needed less for a while (a sudden drop would skip content, and the next burst would raise it again). A sink
//! beyond the bound is left behind, instead of delaying all others. Source: Q-channels paper §3.3 names the
//! problem; the rule is this project's own.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

/// Limits and rates of the common delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Added to the largest reported delay.
    pub margin: Nanos,
    /// Largest common delay, margin included.
    pub bound: Nanos,
    /// Time for which all sinks must have needed less before the delay falls.
    pub hold: Nanos,
    /// Largest rate of the fall, in thousandths of the elapsed time: with 20 the sinks play 2 % faster.
    pub slew_permille: u64,
}

impl Default for Terms {
    fn default() -> Self {
        let ms = Nanos::from_millis;
        Terms { margin: ms(10), bound: ms(1_000), hold: ms(5_000), slew_permille: 20 }
    }
}

/// The policy of the source or of any member of the group: all compute the same delay from the same reports.
#[derive(Clone, Debug)]
pub struct InterSink {
    terms: Terms,
    needs: BTreeMap<u64, Nanos>,
    common: Nanos,
    /// The time since which all sinks need less than the common delay.
    lower_since: Option<Instant>,
    judged: Instant,
}

impl InterSink {
    pub fn new(terms: Terms, now: Instant) -> Self {
        InterSink { terms, needs: BTreeMap::new(), common: Nanos::ZERO, lower_since: None, judged: now }
    }

    /// The delay between sending and showing an event.
    pub fn common(&self) -> Nanos {
        self.common
    }

    /// The sinks that need more than the bound; they show events late.
    pub fn left_behind(&self) -> impl Iterator<Item = u64> + '_ {
        self.needs.iter().filter(|(_, need)| **need + self.terms.margin > self.terms.bound).map(|(sink, _)| *sink)
    }

    /// Takes a sink's least delay from sending to showing. Returns the common delay if it changed.
    pub fn on_report(&mut self, sink: u64, needs: Nanos, now: Instant) -> Option<Nanos> {
        self.needs.insert(sink, needs);
        self.judge(now)
    }

    /// Removes a sink. Returns the common delay if it changed.
    pub fn leave(&mut self, sink: u64, now: Instant) -> Option<Nanos> {
        self.needs.remove(&sink);
        self.judge(now)
    }

    fn judge(&mut self, now: Instant) -> Option<Nanos> {
        let passed = now.since(std::mem::replace(&mut self.judged, now));
        let within = self.needs.values().map(|need| *need + self.terms.margin).filter(|need| *need <= self.terms.bound);
        let wanted = within.max().unwrap_or(Nanos::ZERO);
        if wanted >= self.common {
            self.lower_since = None;
            return self.set(wanted);
        }
        let since = *self.lower_since.get_or_insert(now);
        if now.since(since) < self.terms.hold {
            return None;
        }
        let step = Nanos::new(passed.get().saturating_mul(self.terms.slew_permille) / 1_000);
        self.set(wanted.max(self.common - step))
    }

    fn set(&mut self, common: Nanos) -> Option<Nanos> {
        (common != self.common).then(|| self.common = common).map(|()| common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const AT: fn(u64) -> Instant = |ms| Instant::new(ms * 1_000_000);

    #[test]
    fn all_sinks_wait_for_the_latest_sink() {
        let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
        assert_eq!(sync.on_report(1, MS(40), AT(0)), Some(MS(50)));
        assert_eq!(sync.on_report(2, MS(90), AT(1)), Some(MS(100)));
        assert_eq!(sync.on_report(1, MS(20), AT(2)), None);
    }

    #[test]
    fn a_sink_beyond_the_bound_is_left_behind() {
        let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
        sync.on_report(1, MS(40), AT(0));
        assert_eq!(sync.on_report(2, MS(3_000), AT(1)), None);
        assert_eq!(sync.left_behind().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn the_common_delay_falls_slowly_and_only_after_a_while() {
        let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
        sync.on_report(1, MS(490), AT(0));
        for second in 1..=5 {
            assert_eq!(sync.on_report(1, MS(90), AT(second * 1_000)), None, "{second}");
        }
        assert_eq!(sync.on_report(1, MS(90), AT(6_000)), Some(MS(480)));
    }

    proptest! {
        #[test]
        fn no_sink_within_the_bound_is_ever_late(reports in proptest::collection::vec((0u64..5, 0u64..1_500, 1u64..3_000), 1..200)) {
            let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
            let mut at = 0;
            for (sink, need, later) in reports {
                at += later;
                sync.on_report(sink, MS(need), AT(at));
                prop_assert!(sync.common() <= MS(1_000));
                let late = sync.needs.iter().filter(|(_, need)| **need > sync.common()).map(|(sink, _)| *sink);
                let left: Vec<_> = sync.left_behind().collect();
                prop_assert!(late.into_iter().all(|sink| left.contains(&sink)));
            }
        }
    }
}
