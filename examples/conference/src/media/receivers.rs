//! What the server hears: feedback of receivers, and levels that others want.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use qfabric_client::channel::{Event, Sink};
use qfabric_client::clock::now;
use qfabric_types::{Instant, Nanos};

use super::switch::LevelSwitch;
use crate::wire::Feedback;
use crate::{Codec, Level};

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
    /// Its delay, until somebody takes it.
    delay: Option<i64>,
    /// It had shown a picture before its last feedback: the first second is no whole one.
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
            let begun = all.get(&key).is_some_and(|before| before.begun || before.feedback.shown > 0);
            all.insert(key, Receiver { at: now, feedback, delay: feedback.least_delay_ns, begun });
        }
    }

    /// Forgets those that have left; the feedback of the others by `HOST/NUMBER`.
    pub(super) fn look(&self, now: Instant) -> BTreeMap<String, Feedback> {
        let mut all = self.all();
        all.retain(|_, one| now.since(one.at) < SILENCE);
        all.iter().map(|((host, number), one)| (format!("{host}/{number}"), one.feedback)).collect()
    }

    /// Looks, and tells the switch at once what the receivers that are left cannot decode: who reads that a receiver has left
    /// may set a level that this receiver could not decode.
    pub(super) fn look_for(&self, switch: &LevelSwitch, now: Instant) -> BTreeMap<String, Feedback> {
        let left = self.look(now);
        if let Some(level) = switch.set_missing(self.missing()) {
            eprintln!("qfabric-conference: most hosts cannot decode the pictures; going on with {level}");
        }
        left
    }

    /// The codecs that more than half of the hosts lack. A host counts once, however many receivers it claims to have: so
    /// one that lies does not take a codec from all others.
    fn missing(&self) -> u32 {
        let all = self.all();
        let mut hosts = BTreeMap::<&str, u32>::new();
        for ((host, _), one) in all.iter() {
            *hosts.entry(host).or_default() |= one.feedback.missing;
        }
        let lacking = |bit: u32| hosts.values().filter(|missing| **missing & bit != 0).count();
        Codec::ALL.map(Codec::bit).into_iter().filter(|bit| 2 * lacking(*bit) > hosts.len()).sum()
    }

    /// The delays that were not taken yet, in nanoseconds, of the receivers whose rates count, by `HOST/NUMBER`.
    pub(super) fn take_delays(&self) -> Vec<(String, i64)> {
        let mut all = self.all();
        let counts = all.iter_mut().filter(|(_, one)| one.begun && one.feedback.missing == 0);
        counts.filter_map(|((host, number), one)| Some((format!("{host}/{number}"), one.delay.take()?))).collect()
    }

    /// The receivers that cannot decode this codec, by `HOST/NUMBER`.
    pub(super) fn without(&self, codec: Codec) -> Vec<String> {
        let all = self.all();
        let lacking = all.iter().filter(|(_, one)| one.feedback.missing & codec.bit() != 0);
        lacking.map(|((host, number), _)| format!("{host}/{number}")).collect()
    }

    /// A rate at the median host, the lower one of two; a host has the rate of its best receiver. So a few hosts with bad
    /// links, or that lie, do not decide for all. Receivers that have not begun, or lack a codec, do not count.
    pub(super) fn median(&self, now: Instant, rate: fn(&Feedback) -> u32) -> Option<u32> {
        let all = self.all();
        let counts = |one: &Receiver| one.begun && one.feedback.missing == 0 && now.since(one.at) < FRESH;
        let mut hosts = BTreeMap::<&str, u32>::new();
        for ((host, _), one) in all.iter().filter(|(_, one)| counts(one)) {
            let best = hosts.entry(host).or_default();
            *best = rate(&one.feedback).max(*best);
        }
        let mut rates: Vec<u32> = hosts.into_values().collect();
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
            self.receivers.look_for(self.switch, now());
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

    #[test]
    fn the_median_host_that_has_begun_and_reports_gives_the_rate() {
        let (receivers, at) = (Receivers::default(), |ms| Instant::ZERO + Nanos::from_millis(ms));
        receivers.keep("a", Feedback::default(), at(0));
        let shown = |now| receivers.median(now, |feedback| feedback.shown);
        assert_eq!(shown(at(1_000)), None, "it has not begun");
        for (host, receiver, shown) in
            [("b", 1, 20_000), ("c", 1, 3_000), ("c", 2, 2_000), ("d", 1, 19_000), ("e", 1, 20_000)]
        {
            receivers.keep(host, Feedback { receiver, shown, ..Feedback::default() }, at(0));
            receivers.keep(host, Feedback { receiver, shown, ..Feedback::default() }, at(1_000));
        }
        assert_eq!(shown(at(1_000)), Some(19_000));
        receivers.keep("e", Feedback { receiver: 1, ..Feedback::default() }, at(4_500));
        assert_eq!(shown(at(4_500)), Some(0), "the others are silent");
    }

    #[test]
    fn a_codec_is_given_up_when_most_hosts_lack_it_and_one_host_counts_once() {
        let (receivers, missing) = (Receivers::default(), Codec::H264.bit());
        let keep = |host: &str, receiver, missing| {
            receivers.keep(host, Feedback { receiver, missing, ..Feedback::default() }, Instant::ZERO);
        };
        (0..9).for_each(|receiver| keep("liar", receiver, missing));
        assert_eq!(receivers.missing(), missing, "the only host");
        keep("a", 1, 0);
        assert_eq!((receivers.missing(), receivers.without(Codec::H264).len()), (0, 9), "half of the hosts");
        keep("b", 1, missing);
        assert_eq!(receivers.missing(), missing);
        assert!(receivers.without(Codec::Jpeg).is_empty());
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
