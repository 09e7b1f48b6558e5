//! Measures the rate of events: from the last event of the report before to the last event of this report, so that no
//! part of an interval is counted wrong; after a pause, from the first event on.

use qfabric_types::{Instant, Nanos};

/// Counts events between two reports.
#[derive(Clone, Copy, Debug)]
pub(in crate::channels) struct RateMeter {
    events: u32,
    first: Instant,
    last: Instant,
    /// The last event of the report before, if there was one.
    before: Option<Instant>,
    reported: Instant,
    /// The next events of this number do not count.
    owed: u64,
}

impl RateMeter {
    /// Begins the first report.
    pub(crate) fn new(now: Instant) -> RateMeter {
        RateMeter { events: 0, first: now, last: now, before: None, reported: now, owed: 0 }
    }

    /// Counts an event.
    pub(crate) fn hit(&mut self, now: Instant) {
        if self.owed > 0 {
            return self.owed -= 1;
        }
        self.first = if self.events == 0 { now } else { self.first };
        self.last = now;
        self.events = self.events.saturating_add(1);
    }

    /// So many events that were counted, perhaps in an earlier report, do not count. What this report does not contain is
    /// taken from the next ones.
    pub(crate) fn take_back(&mut self, events: u64) {
        let now = events.min(self.events.into());
        self.events -= now as u32;
        self.owed = self.owed.saturating_add(events - now);
    }

    /// Ends a report: thousandths of an event per second since the report before, and the time that they cover.
    pub(crate) fn report(&mut self, now: Instant) -> (i64, Nanos) {
        let over = now.since(self.reported);
        let milli = (self.per_second(over) * 1e3).round() as i64;
        self.before = if self.events > 0 { Some(self.last) } else { self.before };
        (self.events, self.reported) = (0, now);
        (milli, over)
    }

    fn per_second(&self, over: Nanos) -> f64 {
        // An event before a pause begins no interval.
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
