//! `qfabric channel sub --together`: delays events until the time that the policy `sync` has decided for all sinks.
//!
//! Times in nanoseconds of this host's CLOCK_MONOTONIC.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use qfabric_client::ClientError;
use qfabric_client::channel::{Notice, Registration};

/// Time between two reports of the time that events need to arrive here.
const REPORT: Duration = Duration::from_millis(500);

/// Events that wait to be shown, and the registration through which the delay is reported and decided.
#[derive(Debug)]
pub(super) struct Together {
    registration: Registration,
    schedule: Schedule,
    reported: Instant,
}

/// The waiting events and the decided delay. Pure: the caller passes the time.
#[derive(Debug, Default)]
struct Schedule {
    /// Decided time from the sending of an event to its showing.
    delay: u64,
    /// Longest time that an event took to arrive here since the last report.
    needed: u64,
    /// Lines by the time at which their events were sent, then by the order of their arrival.
    waiting: BTreeMap<(u64, u64), String>,
    arrived: u64,
    most: usize,
}

impl Together {
    /// `registration` is in the group with the channel's name. Buffers at most `most` events; when full, it shows the
    /// earliest.
    pub(super) fn new(registration: Registration, most: u32) -> Together {
        let schedule = Schedule { most: most as usize, ..Schedule::default() };
        Together { registration, schedule, reported: Instant::now() }
    }

    /// Takes the decided delay from a notice of the daemon; ignores other notices.
    pub(super) fn on_notice(&mut self, notice: &Notice) {
        if let Notice::Decided { attribute, amount: Some(amount), .. } = notice
            && attribute == "app.show_delay"
        {
            self.schedule.delay = (*amount).max(0).unsigned_abs();
        }
    }

    /// Adds an event that arrived at `now`.
    pub(super) fn push(&mut self, sent_ns: u64, line: String, now: u64) {
        self.schedule.push(sent_ns, line, now);
    }

    /// Removes and returns the next line that is due at `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<String> {
        self.schedule.pop_due(now)
    }

    /// Time until the next line is due, at most `most`.
    pub(super) fn time_until_due(&self, most: Duration, now: u64) -> Duration {
        self.schedule.next().map_or(most, |next| Duration::from_nanos(next.saturating_sub(now)).min(most))
    }

    /// Reports the longest time that an event needed to arrive, if [`REPORT`] has passed.
    pub(super) fn report(&mut self) -> Result<(), ClientError> {
        if self.schedule.needed == 0 || self.reported.elapsed() < REPORT {
            return Ok(());
        }
        self.reported = Instant::now();
        let needed = std::mem::take(&mut self.schedule.needed);
        self.registration.report("app.show_need", i64::try_from(needed).unwrap_or(i64::MAX))
    }
}

impl Schedule {
    fn push(&mut self, sent: u64, line: String, now: u64) {
        self.needed = self.needed.max(now.saturating_sub(sent)).max(1);
        self.arrived += 1;
        self.waiting.insert((sent, self.arrived), line);
    }

    fn next(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(sent, _)| sent.saturating_add(self.delay))
    }

    fn pop_due(&mut self, now: u64) -> Option<String> {
        let is_due = self.waiting.len() > self.most || self.next().is_some_and(|next| next <= now);
        if is_due { self.waiting.pop_first().map(|(_, line)| line) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shown_in_the_order_of_their_sending_when_they_are_due() {
        let mut schedule = Schedule { delay: 50, most: 2, ..Schedule::default() };
        schedule.push(20, "b".to_owned(), 40);
        schedule.push(10, "a".to_owned(), 41);
        assert_eq!((schedule.needed, schedule.next(), schedule.pop_due(59)), (31, Some(60), None));
        assert_eq!((schedule.pop_due(60).as_deref(), schedule.pop_due(60)), (Some("a"), None));
        schedule.delay = 0;
        assert_eq!(
            (schedule.pop_due(60).as_deref(), schedule.next()),
            (Some("b"), None),
            "a new delay applies at once"
        );
    }

    #[test]
    fn a_full_buffer_shows_the_earliest_event() {
        let mut schedule = Schedule { delay: 1_000, most: 2, ..Schedule::default() };
        (0..3).for_each(|sent| schedule.push(sent, sent.to_string(), 5));
        assert_eq!((schedule.pop_due(5).as_deref(), schedule.pop_due(5)), (Some("0"), None));
    }
}
