//! What the server hears: feedback of receivers, and levels that others want.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use qfabric_client::channel::{Event, Sink};
use qfabric_client::clock::now;
use qfabric_types::{Instant, Nanos};

use super::switch::LevelSwitch;
use crate::Level;
use crate::wire::Feedback;

/// A receiver that has said nothing for this time has left.
const SILENCE: Nanos = Nanos::from_millis(5_000);
/// Feedback that is older does not count for the rate.
const FRESH: Nanos = Nanos::from_millis(3_000);
/// Receivers that are kept; feedback of further ones is ignored.
const MOST: usize = 1_000;
/// How often the listener looks whether it should end.
const LOOK: Duration = Duration::from_millis(200);

/// The last feedback of each receiver, by host and number.
#[derive(Debug, Default)]
pub(super) struct Receivers(Mutex<BTreeMap<(String, u32), Receiver>>);

#[derive(Clone, Copy, Debug)]
struct Receiver {
    at: Instant,
    feedback: Feedback,
    /// It has shown a picture.
    begun: bool,
}

impl Receivers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Receiver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, host: &str, feedback: Feedback, now: Instant) {
        let mut all = self.all();
        let key = (host.to_owned(), feedback.receiver);
        if all.len() < MOST || all.contains_key(&key) {
            let begun = feedback.shown > 0 || all.get(&key).is_some_and(|before| before.begun);
            all.insert(key, Receiver { at: now, feedback, begun });
        }
    }

    /// Forgets those that have left; the feedback of the others by `HOST/NUMBER`.
    pub(super) fn look(&self, now: Instant) -> BTreeMap<String, Feedback> {
        let mut all = self.all();
        all.retain(|_, one| now.since(one.at) < SILENCE);
        all.iter().map(|((host, number), one)| (format!("{host}/{number}"), one.feedback)).collect()
    }

    /// The codecs that some receiver lacks.
    fn missing(&self) -> u32 {
        self.all().values().fold(0, |missing, one| missing | one.feedback.missing)
    }

    /// A rate at the median receiver, the lower one of two. So a few receivers on bad links, or that lie, do not decide
    /// for all. Those that have not begun do not count.
    pub(super) fn median(&self, now: Instant, rate: fn(&Feedback) -> u32) -> Option<u32> {
        let all = self.all();
        let counts = |one: &&Receiver| one.begun && now.since(one.at) < FRESH;
        let mut rates: Vec<u32> = all.values().filter(counts).map(|one| rate(&one.feedback)).collect();
        rates.sort_unstable();
        rates.get(rates.len().checked_sub(1)? / 2).copied()
    }
}

/// Reads the channel NAME.talk.
pub(super) struct Listener<'a> {
    pub switch: &'a LevelSwitch,
    pub receivers: &'a Receivers,
    /// Numbers of the events `feedback` and `level`.
    pub kinds: [u16; 2],
}

impl Listener<'_> {
    pub(super) fn listen(&self, mut sink: Sink, is_over: impl Fn() -> bool) -> Result<()> {
        while !is_over() {
            if let Some(received) = sink.next(LOOK)? {
                self.take(&received.event());
            }
            self.receivers.look(now());
            if let Some(level) = self.switch.set_missing(self.receivers.missing()) {
                eprintln!("qfabric-conference: a receiver cannot decode the pictures; going on with {level}");
            }
        }
        Ok(())
    }

    fn take(&self, event: &Event<'_>) {
        let [feedback, level] = self.kinds;
        let host: String = event.host.chars().take(64).collect();
        let refused = if event.event_type == feedback {
            Feedback::parse(event.payload).map(|feedback| self.heard(&host, feedback)).map_err(Into::into)
        } else if event.event_type == level {
            let set = Level::parse(event.payload).map_err(Into::into).and_then(|level| self.switch.set(level));
            set.map(drop)
        } else {
            Ok(())
        };
        if let Err(error) = refused {
            eprintln!("qfabric-conference: an event of host {host} was refused: {error:#}");
        }
    }

    fn heard(&self, host: &str, feedback: Feedback) {
        if feedback.want_key {
            self.switch.want_key();
        }
        self.receivers.keep(host, feedback, now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;

    #[test]
    fn the_median_receiver_that_has_begun_and_reports_gives_the_rate() {
        let (receivers, at) = (Receivers::default(), |ms| Instant::ZERO + Nanos::from_millis(ms));
        receivers.keep("a", Feedback::default(), at(0));
        let shown = |now| receivers.median(now, |feedback| feedback.shown);
        assert_eq!(shown(at(1_000)), None, "it has not begun");
        for (receiver, shown) in [(1, 20_000), (2, 3_000), (3, 19_000), (4, 20_000)] {
            receivers.keep("b", Feedback { receiver, shown, ..Feedback::default() }, at(1_000));
        }
        assert_eq!(shown(at(1_000)), Some(19_000));
        receivers.keep("b", Feedback { receiver: 4, ..Feedback::default() }, at(4_500));
        assert_eq!(shown(at(4_500)), Some(0), "the others are silent");
    }

    #[test]
    fn receivers_are_bounded_and_forgotten_when_they_are_silent() {
        let (receivers, at) = (Receivers::default(), |ms| Instant::ZERO + Nanos::from_millis(ms));
        for receiver in 0..2 * MOST as u32 {
            receivers.keep("h", Feedback { receiver, missing: Codec::H264.bit(), ..Feedback::default() }, at(0));
        }
        assert_eq!((receivers.look(at(1_000)).len(), receivers.missing()), (MOST, Codec::H264.bit()));
        receivers.keep("h", Feedback::default(), at(4_000));
        assert_eq!(
            (receivers.look(at(6_000)).into_keys().collect::<Vec<_>>(), receivers.missing()),
            (vec!["h/0".into()], 0)
        );
    }
}
