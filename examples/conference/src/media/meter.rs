//! Rates and jitter of a second. Pure: times are given.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos};

use crate::wire::{Feedback, FrameHeader};

/// Distances kept for the jitter of one second: more pictures than this are not shown in it.
const MOST: usize = 1_000;

/// Counts what became of pictures.
#[derive(Clone, Debug)]
pub struct Meter {
    period: Nanos,
    since: Instant,
    /// Of the newest picture that has arrived, and of the newest one at the last reading.
    newest: Option<FrameHeader>,
    before: Option<FrameHeader>,
    arrived: u32,
    decoded: u32,
    shown: u32,
    last_shown: Option<Instant>,
    /// The least time from a picture's generation to its arrival, in nanoseconds, by two clocks.
    least_delay_ns: Option<i64>,
    level: u32,
    deviations: VecDeque<Nanos>,
}

/// Thousandths of a frame per second, and the jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Pictures that the server generated, by their numbers.
    pub generated: u32,
    /// Pictures that the server sent.
    pub sent: u32,
    /// Pictures that arrived whole.
    pub arrived: u32,
    /// Pictures that were decoded.
    pub decoded: u32,
    /// Pictures that were shown.
    pub shown: u32,
    /// 99th percentile of the difference between two pictures' distance and the period.
    pub jitter: Nanos,
    /// [`Feedback::least_delay_ns`].
    pub least_delay_ns: Option<i64>,
}

impl Meter {
    /// A meter of pictures that should be shown once per `period`.
    pub fn new(period: Nanos, now: Instant) -> Meter {
        Meter {
            period,
            since: now,
            newest: None,
            before: None,
            arrived: 0,
            decoded: 0,
            shown: 0,
            last_shown: None,
            least_delay_ns: None,
            level: 0,
            deviations: VecDeque::new(),
        }
    }

    /// A picture has arrived whole.
    pub fn on_arrived(&mut self, header: &FrameHeader, now: Instant) {
        self.arrived += 1;
        let delay = now.get().wrapping_sub(header.generated.get()).cast_signed();
        self.least_delay_ns = Some(self.least_delay_ns.map_or(delay, |least| least.min(delay)));
        self.newest = Some(*header);
        if self.before.is_none_or(|before| before.stream != header.stream) {
            self.before = Some(*header);
        }
    }

    /// A picture was decoded.
    pub fn on_decoded(&mut self) {
        self.decoded += 1;
    }

    /// A picture was shown.
    pub fn on_shown(&mut self, header: &FrameHeader, now: Instant) {
        self.shown += 1;
        self.level = header.level;
        if let Some(last) = self.last_shown.replace(now) {
            if self.deviations.len() == MOST {
                self.deviations.pop_front();
            }
            self.deviations.push_back(self.deviation(now.since(last)));
        }
    }

    fn deviation(&self, distance: Nanos) -> Nanos {
        distance.max(self.period) - distance.min(self.period)
    }

    /// The rates since the last reading, which begin again.
    pub fn read(&mut self, now: Instant) -> Rates {
        let elapsed = now.since(self.since).get().max(1);
        let rate =
            |count: u32| (u128::from(count) * 1_000_000_000_000 / u128::from(elapsed)).min(u32::MAX.into()) as u32;
        let grown = |count: fn(&FrameHeader) -> u32| match (self.before, self.newest) {
            (Some(before), Some(newest)) => count(&newest).saturating_sub(count(&before)),
            _ => 0,
        };
        let rates = Rates {
            generated: rate(grown(|header| header.number)),
            sent: rate(grown(|header| header.sent)),
            arrived: rate(self.arrived),
            decoded: rate(self.decoded),
            shown: rate(self.shown),
            jitter: self.jitter(now),
            least_delay_ns: self.least_delay_ns.take(),
        };
        (self.arrived, self.decoded, self.shown) = (0, 0, 0);
        (self.before, self.since) = (self.newest, now);
        self.deviations.clear();
        rates
    }

    /// A pause that has not ended counts with its length so far, if it is longer than a period.
    fn jitter(&self, now: Instant) -> Nanos {
        let mut all: Vec<Nanos> = self.deviations.iter().copied().collect();
        all.extend(
            self.last_shown
                .map(|last| now.since(last))
                .filter(|pause| *pause > self.period)
                .map(|pause| pause - self.period),
        );
        all.sort_unstable();
        let rank = (all.len() * 99).div_ceil(100);
        rank.checked_sub(1).and_then(|at| all.get(at)).copied().unwrap_or_default()
    }

    /// The rates as an event, without what the meter does not know.
    pub fn feedback(&self, rates: &Rates) -> Feedback {
        let Rates { generated, sent, arrived, decoded, shown, jitter, least_delay_ns } = *rates;
        let jitter_us = (jitter.get() / 1_000).min(u32::MAX.into()) as u32;
        let stream = self.newest.map_or(0, |newest| newest.stream);
        Feedback {
            stream,
            generated,
            sent,
            arrived,
            decoded,
            shown,
            jitter_us,
            least_delay_ns,
            level: self.level,
            ..Feedback::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn header(number: u32, sent: u32) -> FrameHeader {
        let setting: Level = "jpeg:50:small".parse().unwrap();
        let (bytes, part, parts, level) = (1, 0, 1, 3);
        FrameHeader { stream: 1, number, sent, bytes, part, parts, setting, key: true, level, generated: Instant::ZERO }
    }

    #[test]
    fn a_second_gives_the_rates_of_all_steps_and_the_next_begins_at_zero() {
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let mut meter = Meter::new(Nanos::from_millis(50), at(0));
        for number in 0..=20 {
            meter.on_arrived(&header(number, number - number / 5), at(9 + 50 * u64::from(number)));
            meter.on_decoded();
            meter.on_shown(&header(number, 0), at(50 * u64::from(number)));
        }
        let rates = meter.read(at(1_000));
        assert_eq!((rates.generated, rates.sent, rates.shown), (20_000, 16_000, 21_000));
        assert_eq!((rates.jitter, meter.feedback(&rates).level), (Nanos::ZERO, 3));
        assert_eq!(meter.feedback(&rates).least_delay_ns, Some(9_000_000));
        let next = meter.read(at(2_000));
        assert_eq!((next.generated, next.shown, next.jitter), (0, 0, Nanos::from_millis(950)));
        assert_eq!(next.least_delay_ns, None, "no picture arrived");
    }

    #[test]
    fn jitter_is_the_difference_to_the_period_in_both_directions() {
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let mut meter = Meter::new(Nanos::from_millis(50), at(0));
        for ms in [0, 50, 100, 110, 160] {
            meter.on_shown(&header(0, 0), at(ms));
        }
        assert_eq!(meter.read(at(170)).jitter, Nanos::from_millis(40));
    }

    #[test]
    fn the_numbers_of_a_new_stream_are_no_growth() {
        let mut meter = Meter::new(Nanos::from_millis(50), Instant::ZERO);
        meter.on_arrived(&header(9_000, 9_000), Instant::ZERO);
        meter.on_arrived(&FrameHeader { stream: 2, ..header(0, 0) }, Instant::ZERO);
        meter.on_arrived(&FrameHeader { stream: 2, ..header(4, 4) }, Instant::ZERO);
        assert_eq!(meter.read(Instant::ZERO + Nanos::from_millis(1_000)).generated, 4_000);
    }
}
