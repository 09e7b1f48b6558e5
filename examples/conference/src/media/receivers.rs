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
/// Receivers that are kept; feedback of further ones is ignored.
const MOST: usize = 1_000;
/// How often the listener looks whether it should end.
const LOOK: Duration = Duration::from_millis(200);

/// The last feedback of each receiver, by host and number.
#[derive(Debug, Default)]
pub(super) struct Receivers(Mutex<BTreeMap<(String, u32), (Instant, Feedback)>>);

impl Receivers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, u32), (Instant, Feedback)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, host: &str, feedback: Feedback, now: Instant) {
        let mut all = self.all();
        let key = (host.to_owned(), feedback.receiver);
        if all.len() < MOST || all.contains_key(&key) {
            all.insert(key, (now, feedback));
        }
    }

    /// Forgets those that have left; the feedback of the others by `HOST/NUMBER`.
    pub(super) fn look(&self, now: Instant) -> BTreeMap<String, Feedback> {
        let mut all = self.all();
        all.retain(|_, (at, _)| now.since(*at) < SILENCE);
        all.iter().map(|((host, number), (_, feedback))| (format!("{host}/{number}"), *feedback)).collect()
    }

    /// The codecs that some receiver lacks.
    fn missing(&self) -> u32 {
        self.all().values().fold(0, |missing, (_, feedback)| missing | feedback.missing)
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
