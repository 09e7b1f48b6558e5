//! At what rate events came by: from the last one of the report before to the last one of this, so that no part of an
//! interval is counted wrong; after a pause from the first one on.

use qfabric_types::{Instant, Nanos};

/// Counts what comes by between two reports.
#[derive(Clone, Copy, Debug)]
pub(in crate::channels) struct RateMeter {
    events: u32,
    first: Instant,
    last: Instant,
    /// The last event of the report before; none: there was none.
    before: Option<Instant>,
    reported: Instant,
}

impl RateMeter {
    /// Begins a report now.
    pub fn new(now: Instant) -> RateMeter {
        RateMeter { events: 0, first: now, last: now, before: None, reported: now }
    }

    /// An event came by.
    pub fn hit(&mut self, now: Instant) {
        self.first = if self.events == 0 { now } else { self.first };
        self.last = now;
        self.events = self.events.saturating_add(1);
    }

    /// Thousandths of an event per second since the report before, and over which time; the next report begins.
    pub fn report(&mut self, now: Instant) -> (i64, Nanos) {
        let over = now.since(self.reported);
        let milli = (self.per_second(over) * 1e3).round() as i64;
        self.before = if self.events > 0 { Some(self.last) } else { self.before };
        (self.events, self.reported) = (0, now);
        (milli, over)
    }

    fn per_second(&self, over: Nanos) -> f64 {
        // What came before a pause begins no interval.
        let recent = self.before.filter(|before| self.first.since(*before) <= over);
        let (intervals, from) = match recent {
            Some(before) => (self.events, before),
            None => (self.events.saturating_sub(1), self.first),
        };
        let between = self.last.since(from).as_secs_f64();
        if intervals == 0 || between <= 0.0 {
            return f64::from(self.events) / over.as_secs_f64().max(1e-3);
        }
        f64::from(intervals) / between
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn a_report_on_the_border_of_two_events_says_the_same_as_any_other() {
        let mut meter = RateMeter::new(ms(0));
        (0..=12).for_each(|n| meter.hit(ms(n * 40)));
        assert_eq!(meter.report(ms(500)), (25_000, Nanos::from_millis(500)));
        (13..=25).for_each(|n| meter.hit(ms(n * 40)));
        assert_eq!(meter.report(ms(1_001)).0, 25_000);
    }

    #[test]
    fn a_pause_is_no_slow_rate_and_silence_is_none() {
        let mut meter = RateMeter::new(ms(0));
        meter.hit(ms(10));
        meter.report(ms(500));
        assert_eq!(meter.report(ms(1_000)).0, 0);
        (0..5).for_each(|n| meter.hit(ms(1_300 + n * 40)));
        assert_eq!(meter.report(ms(1_500)).0, 25_000);
    }
}
