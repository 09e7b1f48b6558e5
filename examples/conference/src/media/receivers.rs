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
/// Receivers that are kept, in total and of one host; feedback of further ones is ignored. So one host does not take
/// the places of others.
const MOST: usize = 1_000;
const MOST_OF_HOST: usize = 16;
/// Least time between two pictures that receivers ask for: each costs much, and all receivers can use it.
const KEY: Nanos = Nanos::from_millis(1_000);
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
        let (host, key) = (host.to_owned(), (host.to_owned(), feedback.receiver));
        let of_host = all.range((host.clone(), 0)..=(host, u32::MAX)).count();
        if all.contains_key(&key) || of_host < MOST_OF_HOST && all.len() < MOST {
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
    switch: &'a LevelSwitch,
    receivers: &'a Receivers,
    /// Numbers of the events `feedback` and `level`.
    kinds: [u16; 2],
    /// When a picture that can be decoded by itself was last asked for.
    key: Option<Instant>,
    /// Events that were refused.
    refused: u64,
}

impl<'a> Listener<'a> {
    pub(super) fn new(switch: &'a LevelSwitch, receivers: &'a Receivers, kinds: [u16; 2]) -> Listener<'a> {
        Listener { switch, receivers, kinds, key: None, refused: 0 }
    }

    /// The server looks at the receivers once per second: [`Receivers::look_for`].
    pub(super) fn listen(mut self, mut sink: Sink, is_over: impl Fn() -> bool) -> Result<()> {
        while !is_over() {
            if let Some(received) = sink.next(LOOK)? {
                self.take(&received.event());
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) {
        let [feedback, level] = self.kinds;
        let host: String = event.host.chars().take(64).collect();
        let refused = if event.event_type == feedback {
            Feedback::parse(event.payload).map(|feedback| self.heard(&host, feedback, now())).map_err(Into::into)
        } else if event.event_type == level {
            let set = Level::parse(event.payload).map_err(Into::into).and_then(|level| self.switch.set(level));
            set.map(drop)
        } else {
            Ok(())
        };
        if let Err(error) = refused {
            self.refused += 1;
            if self.refused.is_power_of_two() {
                let count = self.refused;
                eprintln!("qfabric-conference: {count} events were refused, the last one of host {host}: {error:#}");
            }
        }
    }

    /// A receiver whose wish comes too soon after another one asks again with its next feedback.
    fn heard(&mut self, host: &str, feedback: Feedback, now: Instant) {
        if feedback.want_key && self.key.is_none_or(|last| now.since(last) >= KEY) {
            self.key = Some(now);
            self.switch.want_key();
        }
        self.receivers.keep(host, feedback, now);
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
        for (host, receiver) in (0..2 * MOST as u32).map(|number| (format!("h{}", number % 100), number)) {
            receivers.keep(&host, Feedback { receiver, missing: Codec::H264.bit(), ..Feedback::default() }, at(0));
        }
        assert_eq!((receivers.look(at(1_000)).len(), receivers.missing()), (MOST, Codec::H264.bit()));
        receivers.keep("h0", Feedback::default(), at(4_000));
        assert_eq!(
            (receivers.look(at(6_000)).into_keys().collect::<Vec<_>>(), receivers.missing()),
            (vec!["h0/0".into()], 0)
        );
    }

    #[test]
    fn one_host_takes_no_place_of_others_and_forces_one_picture_a_second() {
        let switch = LevelSwitch::new("h264:15:352x288".parse().unwrap(), &Codec::ALL).unwrap();
        let (receivers, at) = (Receivers::default(), |ms| Instant::ZERO + Nanos::from_millis(ms));
        let mut listener = Listener::new(&switch, &receivers, [0, 1]);
        let flood = Feedback { want_key: true, ..Feedback::default() };
        (0..2_000).for_each(|receiver| listener.heard("flood", Feedback { receiver, ..flood }, at(0)));
        listener.heard("honest", Feedback::default(), at(0));
        let kept = receivers.look(at(0));
        assert_eq!((kept.len(), kept.contains_key("honest/0")), (MOST_OF_HOST + 1, true));
        assert!(switch.take().key);
        listener.heard("flood", flood, at(999));
        assert!(!switch.take().key, "the next one comes a second later");
        listener.heard("flood", flood, at(1_000));
        assert!(switch.take().key);
    }
}
