//! Link traces in the format of mahimahi's `mm-link`: each line is a time in milliseconds at which the link can send
//! 1,500 bytes; equal lines send more. After its last line the trace begins again.
//!
//! Source: Netravali and others, «Mahimahi» (USENIX ATC 2015), §3.2. As there, a time at which nothing waits is lost,
//! packets share the bytes of one time, and a packet may take the bytes of several.

use std::sync::Arc;

use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::text::{Fault, TextError};

/// Bytes that the link sends at each time of a trace.
pub const OPPORTUNITY: u32 = 1_500;
/// Most lines of a trace: 1 Gbit/s for almost two minutes.
pub const TRACE_LINES_MAX: usize = 10_000_000;
/// Latest time of a trace: one day.
pub const TRACE_TIME_MAX: Nanos = Nanos::from_millis(86_400_000);

/// A recorded link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, never decreasing; the last one is above zero.
    times_ms: Vec<u32>,
}

impl Trace {
    /// Reads the text of a trace. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Trace, TextError> {
        let mut times_ms: Vec<u32> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let word = line.trim();
            if word.is_empty() || word.starts_with('#') {
                continue;
            }
            let column = 1 + line.chars().take_while(|c| c.is_whitespace()).count();
            let failed = |fault| TextError { line: number + 1, column, fault };
            let time = time(word, times_ms.last().copied()).map_err(failed)?;
            if times_ms.len() == TRACE_LINES_MAX {
                return Err(failed(Fault::TooLong { most: TRACE_LINES_MAX }));
            }
            times_ms.push(time);
        }
        match times_ms.last() {
            None | Some(0) => Err(TextError { line: text.lines().count().max(1), column: 1, fault: Fault::NoLength }),
            Some(_) => Ok(Trace { times_ms }),
        }
    }

    /// Time from the begin of the trace to its repetition.
    pub fn length(&self) -> Nanos {
        Nanos::from_millis(u64::from(self.times_ms.last().copied().unwrap_or(1)))
    }

    /// Mean rate, rounded up.
    pub fn mean(&self) -> BitRate {
        BitRate::of(Bytes::new(self.times_ms.len() as u64 * u64::from(OPPORTUNITY)), self.length())
    }

    /// Time of the opportunity with this number, counted from the begin.
    fn time(&self, number: u64) -> Nanos {
        let lines = self.times_ms.len() as u64;
        let within = Nanos::from_millis(u64::from(self.times_ms[(number % lines) as usize]));
        self.length().saturating_mul(number / lines) + within
    }

    /// Number of the first opportunity that is not before `time`.
    fn first_from(&self, time: Nanos) -> u64 {
        let (lines, length) = (self.times_ms.len() as u64, self.length().get());
        let (rounds, within) = (time.get() / length, time.get() % length);
        let at = self.times_ms.partition_point(|ms| u64::from(*ms) * 1_000_000 < within) as u64;
        let first = rounds * lines + at;
        // At a whole number of rounds, the last lines of the round before have the same time.
        let tail = self.times_ms.len() - self.times_ms.partition_point(|ms| u64::from(*ms) * 1_000_000 < length);
        if within == 0 && rounds > 0 { first - tail as u64 } else { first }
    }
}

fn time(word: &str, before: Option<u32>) -> Result<u32, Fault> {
    let most = TRACE_TIME_MAX.get() / 1_000_000;
    let refused = || Fault::Time { text: word.chars().take(40).collect(), most };
    let number = word.parse::<u32>().ok().filter(|ms| u64::from(*ms) <= most).ok_or_else(refused)?;
    match before {
        Some(before) if before > number => {
            Err(Fault::Earlier { time: format!("{number}"), before: format!("{before}") })
        }
        _ => Ok(number),
    }
}

/// A link that sends at the times of a trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceServer {
    trace: Arc<Trace>,
    begin: Instant,
    /// The opportunity in use, its time, and the bytes that are left of it.
    number: u64,
    at: Instant,
    left: u32,
}

impl TraceServer {
    pub(crate) fn new(trace: Arc<Trace>, begin: Instant) -> TraceServer {
        let at = begin + trace.time(0);
        TraceServer { trace, begin, number: 0, at, left: OPPORTUNITY }
    }

    /// Sends a packet that waits since `from`. Returns the time at which its last byte is sent.
    pub(crate) fn send(&mut self, from: Instant, bytes: u32) -> Instant {
        if self.at < from {
            self.go_to(self.trace.first_from(from.since(self.begin)));
        }
        let mut bytes = bytes;
        while bytes > self.left {
            bytes -= self.left;
            self.go_to(self.number + 1);
        }
        self.left -= bytes;
        self.at
    }

    fn go_to(&mut self, number: u64) {
        (self.number, self.left) = (number, OPPORTUNITY);
        self.at = self.begin + self.trace.time(number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server(text: &str) -> TraceServer {
        TraceServer::new(Arc::new(Trace::parse(text).unwrap()), Instant::ZERO)
    }

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn packets_share_an_opportunity_and_a_large_one_takes_several() {
        let mut link = server("5\n5\n7\n");
        assert_eq!([600, 600, 600].map(|bytes| link.send(ms(1), bytes)), [ms(5); 3]);
        assert_eq!(link.send(ms(5), 1_300), ms(7), "1,200 bytes are left of 5 ms");
        assert_eq!(link.send(ms(7), 9_000), ms(21), "200 bytes at 7 ms, then 1,500 each at 12, 12, 14, 19, 19 ms");
    }

    #[test]
    fn an_opportunity_without_a_packet_is_lost_and_the_trace_begins_again() {
        let mut link = server("# a comment\n\n2\n10\n");
        assert_eq!(link.send(ms(3), 100), ms(10));
        assert_eq!(link.send(ms(11), 100), ms(12));
        assert_eq!(link.send(ms(20), 1_500), ms(20));
        assert_eq!(link.send(ms(1_000_000), 1_500), ms(1_000_000));
    }

    #[test]
    fn a_trace_is_refused_with_line_column_and_reason() {
        let refusal = |text: &str| Trace::parse(text).unwrap_err().to_string();
        assert!(refusal("1\n  x2\n").starts_with("line 2, column 3: \"x2\" is not a time in milliseconds"));
        assert!(refusal("7\n3\n").starts_with("line 2, column 1: the time 3 is before 7"));
        assert!(refusal("99999999999").contains("86400000"));
        for text in ["", "0\n0\n", "# nothing\n"] {
            assert!(refusal(text).contains("no time above zero"), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_full_link_sends_what_the_trace_says(times in prop::collection::vec(0u32..300, 1..40), bytes in 1u32..4_000) {
            let mut times = times;
            times.sort_unstable();
            *times.last_mut().unwrap() += 1;
            let text = times.iter().map(|time| format!("{time}\n")).collect::<String>();
            let (mut link, trace) = (server(&text), Trace::parse(&text).unwrap());
            let packets = 200;
            let mut end = Instant::ZERO;
            for _ in 0..packets {
                let next = link.send(end, bytes);
                prop_assert!(next >= end);
                end = next;
            }
            let opportunities = (u64::from(bytes) * packets).div_ceil(u64::from(OPPORTUNITY));
            prop_assert_eq!(end, Instant::ZERO + trace.time(opportunities - 1));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|([0-9]{1,11}\n|#x\n| +\n){0,30}") {
            if let Err(refusal) = Trace::parse(&text) {
                prop_assert!(refusal.line >= 1 && refusal.column >= 1 && refusal.to_string().chars().count() < 300);
            }
        }

        #[test]
        fn the_first_opportunity_is_the_first(times in prop::collection::vec(0u32..50, 1..20), at in 0u64..500_000_000) {
            let mut times = times;
            times.sort_unstable();
            *times.last_mut().unwrap() += 1;
            let trace = Trace { times_ms: times };
            let first = trace.first_from(Nanos::new(at));
            prop_assert!(trace.time(first) >= Nanos::new(at));
            prop_assert!(first == 0 || trace.time(first - 1) < Nanos::new(at));
        }
    }
}
