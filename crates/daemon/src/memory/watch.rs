//! Watches protected programs: fetches their absent pages before they need them, and reports pressure on their groups.
//!
//! A program is fetched shortly after its promise, when it has started and mapped its files, once more when it runs
//! ([`FETCHES`]), and after a notice of pressure. Between these times nothing runs.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::memory_groups::{PressureTrigger, ReserveGroup};
use qfabric_types::api::memory::ReserveId;
use qfabric_types::{Instant, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Times after the promise at which a program is fetched.
const FETCHES: [Nanos; 2] = [Nanos::from_millis(500), Nanos::from_millis(10_000)];
/// Shortest time between two fetches because of pressure: reading pages is work for a host that lacks memory.
const PAUSE: Nanos = Nanos::from_millis(10_000);
/// Time after a notice of pressure at which a program is fetched.
const AFTER_PRESSURE: Nanos = Nanos::from_millis(2_000);

/// A program that is watched.
struct Watched {
    /// Absent if this kernel does not measure pressure, or the program has no group.
    trigger: Option<PressureTrigger>,
    /// Ascending.
    fetches: Vec<Instant>,
    last_fetch: Option<Instant>,
}

/// The programs that are watched.
#[derive(Default)]
pub(super) struct Watch(BTreeMap<ReserveId, Watched>);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Programs of the group waited for memory.
    Pressure(ReserveId),
    /// It is time to fetch the pages of the program.
    Fetch(ReserveId),
}

impl Watch {
    /// Begins to watch a program.
    pub(super) fn begin(&mut self, reserve: ReserveId, group: Option<&ReserveGroup>) {
        let trigger = group.and_then(|group| group.pressure().map_err(|error| not_watched(reserve, &error)).ok());
        let now = clock::now();
        let fetches = FETCHES.map(|after| now + after).to_vec();
        self.0.insert(reserve, Watched { trigger, fetches, last_fetch: None });
    }

    pub(super) fn end(&mut self, reserve: ReserveId) {
        self.0.remove(&reserve);
    }

    /// Waits until an event, or until `wake` is readable; then it is read. Returns the events.
    pub(super) fn wait(&mut self, wake: &OwnedFd) -> Vec<Event> {
        let (reserves, triggers): (Vec<ReserveId>, Vec<&PressureTrigger>) =
            self.0.iter().filter_map(|(reserve, watched)| Some((*reserve, watched.trigger.as_ref()?))).unzip();
        let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
        polled.extend(triggers.iter().map(|trigger| PollFd::from_borrowed_fd(trigger.as_fd(), PollFlags::PRI)));
        // An interrupted wait is repeated by the caller.
        let _ = poll(&mut polled, self.timeout(clock::now()).as_ref());
        let ready: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        if !ready[0].is_empty() {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        let mut events = Vec::new();
        for (reserve, ready) in reserves.into_iter().zip(&ready[1..]) {
            events.extend(self.ready(reserve, *ready));
        }
        events.extend(self.due(clock::now()));
        events
    }

    fn ready(&mut self, reserve: ReserveId, ready: PollFlags) -> Option<Event> {
        let watched = self.0.get_mut(&reserve)?;
        if ready.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            // The group has vanished.
            watched.trigger = None;
            return None;
        }
        let is_pressed = ready.contains(PollFlags::PRI);
        is_pressed.then(|| {
            watched.fetch_after_pressure(clock::now());
            Event::Pressure(reserve)
        })
    }

    /// The programs that are to be fetched now.
    fn due(&mut self, now: Instant) -> Vec<Event> {
        let due = self.0.iter_mut().filter_map(|(reserve, watched)| {
            watched.fetches.first().filter(|due| **due <= now)?;
            watched.fetches.remove(0);
            watched.last_fetch = Some(now);
            Some(Event::Fetch(*reserve))
        });
        due.collect()
    }

    /// Time until the next fetch; `None`: there is none.
    fn timeout(&self, now: Instant) -> Option<Timespec> {
        let next = self.0.values().filter_map(|watched| watched.fetches.first()).min()?;
        let left = Duration::from_nanos(next.since(now).get());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }
}

impl Watched {
    fn fetch_after_pressure(&mut self, now: Instant) {
        let earliest = self.last_fetch.map_or(now, |last| last + PAUSE).max(now + AFTER_PRESSURE);
        if self.fetches.is_empty() {
            self.fetches.push(earliest);
        }
    }
}

fn not_watched(reserve: ReserveId, error: &std::io::Error) {
    tracing::warn!(%reserve, %error, "pressure on the memory of this reserve is not reported; boot with psi=1");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Watch {
        let mut watch = Watch::default();
        watch.begin(ReserveId(1), None);
        watch
    }

    #[test]
    fn a_program_is_fetched_after_its_start_and_once_more() {
        let (mut watch, begin) = (watched(), clock::now());
        let first = begin + FETCHES[0] + Nanos::from_millis(1);
        assert!(watch.due(begin).is_empty());
        assert_eq!(watch.due(first), [Event::Fetch(ReserveId(1))]);
        assert!(watch.due(first).is_empty());
        assert_eq!(watch.due(begin + FETCHES[1] + Nanos::from_millis(1)), [Event::Fetch(ReserveId(1))]);
        assert_eq!(watch.timeout(first), None);
    }

    #[test]
    fn pressure_fetches_after_a_pause() {
        let (mut watch, begin) = (watched(), clock::now());
        let late = begin + Nanos::from_millis(60_000);
        for _ in 0..2 {
            watch.due(late);
        }
        for _ in 0..5 {
            let watched = watch.0.get_mut(&ReserveId(1)).unwrap();
            watched.fetch_after_pressure(late);
            assert_eq!(watched.fetches, [late + PAUSE]);
        }
        watch.end(ReserveId(1));
        assert!(watch.due(late + PAUSE).is_empty());
    }

    #[test]
    fn a_wake_up_ends_the_wait() {
        let wake = rustix::event::eventfd(1, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        assert!(Watch::default().wait(&wake).is_empty());
        assert!(rustix::io::read(&wake, &mut [0; 8]).is_err(), "the wake-up was read");
    }
}
