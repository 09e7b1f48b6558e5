//! `qfabric channel sub --together`: events are shown at the moment that a policy `sync` has decided for all sinks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use qfabric_client::ClientError;
use qfabric_client::channel::{Notice, Registration};

/// How often it is reported what showing needs.
const REPORT: Duration = Duration::from_millis(500);

/// Events that wait for their moment, and what is known of it.
#[derive(Debug)]
pub struct Together {
    registration: Registration,
    moments: Moments,
    reported: Instant,
}

/// Times in ns, of this host's CLOCK_MONOTONIC.
#[derive(Debug, Default)]
struct Moments {
    /// From sending to showing, as told.
    delay: u64,
    /// Most that an event took to come here, since that was reported.
    needed: u64,
    /// Lines by when their events were sent, and in which order they came.
    waiting: BTreeMap<(u64, u64), String>,
    came: u64,
    most: usize,
}

impl Together {
    /// `registration`: in the group of the channel's name. At most so many events wait; the next one shows the earliest.
    pub fn new(registration: Registration, most: u32) -> Together {
        let moments = Moments { most: most as usize, ..Moments::default() };
        Together { registration, moments, reported: Instant::now() }
    }

    /// Whatever the daemon told.
    pub fn hear(&mut self, notice: &Notice) {
        if let Notice::Decided { attribute, amount: Some(amount), .. } = notice
            && attribute == "app.show_delay"
        {
            self.moments.delay = (*amount).max(0).unsigned_abs();
        }
    }

    /// An event came now.
    pub fn take_in(&mut self, sent_ns: u64, line: String, now: u64) {
        self.moments.take_in(sent_ns, line, now);
    }

    /// The next line that is to be shown by now.
    pub fn due(&mut self, now: u64) -> Option<String> {
        self.moments.due(now)
    }

    /// How long the next event may be waited for.
    pub fn patience(&self, most: Duration, now: u64) -> Duration {
        self.moments.next().map_or(most, |next| Duration::from_nanos(next.saturating_sub(now)).min(most))
    }

    /// Says what showing needs, where it is time to.
    pub fn report(&mut self) -> Result<(), ClientError> {
        if self.moments.needed == 0 || self.reported.elapsed() < REPORT {
            return Ok(());
        }
        self.reported = Instant::now();
        let needed = std::mem::take(&mut self.moments.needed);
        self.registration.report("app.show_need", i64::try_from(needed).unwrap_or(i64::MAX))
    }
}

impl Moments {
    fn take_in(&mut self, sent: u64, line: String, now: u64) {
        self.needed = self.needed.max(now.saturating_sub(sent)).max(1);
        self.came += 1;
        self.waiting.insert((sent, self.came), line);
    }

    fn next(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(sent, _)| sent.saturating_add(self.delay))
    }

    fn due(&mut self, now: u64) -> Option<String> {
        let is_due = self.waiting.len() > self.most || self.next().is_some_and(|next| next <= now);
        if is_due { self.waiting.pop_first().map(|(_, line)| line) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shown_in_the_order_of_their_sending_each_at_its_moment() {
        let mut moments = Moments { delay: 50, most: 2, ..Moments::default() };
        moments.take_in(20, "b".to_owned(), 40);
        moments.take_in(10, "a".to_owned(), 41);
        assert_eq!((moments.needed, moments.next(), moments.due(59)), (31, Some(60), None));
        assert_eq!((moments.due(60).as_deref(), moments.due(60)), (Some("a"), None));
        moments.delay = 0;
        assert_eq!((moments.due(60).as_deref(), moments.next()), (Some("b"), None), "a new delay holds at once");
    }

    #[test]
    fn who_has_no_room_shows_the_earliest() {
        let mut moments = Moments { delay: 1_000, most: 2, ..Moments::default() };
        (0..3).for_each(|sent| moments.take_in(sent, sent.to_string(), 5));
        assert_eq!((moments.due(5).as_deref(), moments.due(5)), (Some("0"), None));
    }
}
