//! Inter-sink synchronization: several hosts show the same moment of a stream at the same time.
//!
//! Every sink reports how long after its sending it could show an event at the earliest (way, queue, decoding). All
//! show it `common` after its sending: as late as the latest sink needs, plus a margin. The common delay rises at once
//! (the late sink would stutter) and falls slowly, after everybody has been earlier for a while (a jump back would
//! skip, and come back with the next burst). A sink beyond the bound is left behind rather than delay all others.
//! Source: Q-channels paper §3.3 names the need; the rule is ours.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

/// How much delay is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Added to what the latest sink needs.
    pub margin: Nanos,
    /// No more than this, margin included.
    pub bound: Nanos,
    /// For how long all must have needed less before it falls.
    pub hold: Nanos,
    /// Falls by no more than this part of the time that passes, in thousandths: 20 plays 2 % faster.
    pub slew_permille: u64,
}

impl Default for Terms {
    fn default() -> Self {
        let ms = Nanos::from_millis;
        Terms { margin: ms(10), bound: ms(1_000), hold: ms(5_000), slew_permille: 20 }
    }
}

/// The policy at the source, or at any member of the group: all come to the same answer from the same reports.
#[derive(Clone, Debug)]
pub struct InterSink {
    terms: Terms,
    needs: BTreeMap<u64, Nanos>,
    common: Nanos,
    /// Since when everybody needs less than the common delay.
    lower_since: Option<Instant>,
    judged: Instant,
}

impl InterSink {
    /// Without sinks and without delay.
    pub fn new(terms: Terms, now: Instant) -> Self {
        InterSink { terms, needs: BTreeMap::new(), common: Nanos::ZERO, lower_since: None, judged: now }
    }

    /// Every event is shown this long after it was sent.
    pub fn common(&self) -> Nanos {
        self.common
    }

    /// Sinks that need more than the bound: their events come late.
    pub fn left_behind(&self) -> impl Iterator<Item = u64> + '_ {
        self.needs.iter().filter(|(_, need)| **need + self.terms.margin > self.terms.bound).map(|(sink, _)| *sink)
    }

    /// What a sink needs at least, from sending to showing. The new common delay where it changes.
    pub fn on_report(&mut self, sink: u64, needs: Nanos, now: Instant) -> Option<Nanos> {
        self.needs.insert(sink, needs);
        self.judge(now)
    }

    /// A sink left.
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
    fn all_wait_for_the_latest() {
        let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
        assert_eq!(sync.on_report(1, MS(40), AT(0)), Some(MS(50)));
        assert_eq!(sync.on_report(2, MS(90), AT(1)), Some(MS(100)));
        assert_eq!(sync.on_report(1, MS(20), AT(2)), None);
    }

    #[test]
    fn one_that_is_hopeless_is_left_behind() {
        let mut sync = InterSink::new(Terms::default(), Instant::ZERO);
        sync.on_report(1, MS(40), AT(0));
        assert_eq!(sync.on_report(2, MS(3_000), AT(1)), None);
        assert_eq!(sync.left_behind().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn it_falls_slowly_and_only_after_a_while() {
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
