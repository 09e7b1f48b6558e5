//! Requests of other hosts to install handlers, which wait for the thread `qf-ecalls-far`. An installation compiles and
//! loads a program, so all other messages are handled first, the hosts take turns, and each host has a rate.

use std::collections::{BTreeMap, VecDeque};

use qfabric_types::api::ecalls::SubscriptionRequest;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

/// Requests of one host that may wait; a further one is refused.
pub(super) const WAITING_OF_HOST: usize = 16;
/// One installation of a host in this time, after a burst of 16.
const EVERY: Nanos = Nanos::from_millis(100);
const BURST: Nanos = Nanos::from_millis(1_500);

/// A request for a handler here.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The number of the deployment.
    pub number: u64,
    pub uid: u32,
    pub request: Box<SubscriptionRequest>,
}

#[derive(Debug, Default)]
pub(super) struct Installs {
    hosts: BTreeMap<Name, OfHost>,
    /// The host that was served last.
    last: Option<Name>,
}

#[derive(Debug, Default)]
struct OfHost {
    waiting: VecDeque<Wanted>,
    /// The time that the host's rate has reached: its next installation is due then.
    due: Instant,
}

impl Installs {
    /// False: too many wait.
    pub(super) fn push(&mut self, host: &Name, wanted: Wanted) -> bool {
        let of_host = self.hosts.entry(host.clone()).or_default();
        let has_room = of_host.waiting.len() < WAITING_OF_HOST;
        if has_room {
            of_host.waiting.push_back(wanted);
        }
        has_room
    }

    /// The host no longer wants it.
    pub(super) fn cancel(&mut self, host: &Name, number: u64) {
        let of_host = self.hosts.get_mut(host);
        of_host.into_iter().for_each(|of_host| of_host.waiting.retain(|wanted| wanted.number != number));
    }

    /// The host is gone. Its rate stays.
    pub(super) fn gone(&mut self, host: &Name) {
        self.hosts.get_mut(host).into_iter().for_each(|of_host| of_host.waiting.clear());
    }

    /// The next installation that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Name, Wanted)> {
        self.hosts.retain(|_, of_host| !of_host.waiting.is_empty() || of_host.due + BURST > now);
        let is_due = |of_host: &OfHost| !of_host.waiting.is_empty() && of_host.due <= now;
        let host = super::next_in_turn(&self.hosts, self.last.clone(), is_due)?;
        let of_host = self.hosts.get_mut(&host)?;
        of_host.due = of_host.due.max(Instant::new(now.get().saturating_sub(BURST.get()))) + EVERY;
        self.last = Some(host.clone());
        of_host.waiting.pop_front().map(|wanted| (host, wanted))
    }

    /// The time until the next installation is due, but at most `most`.
    pub(super) fn wait(&self, now: Instant, most: Nanos) -> Nanos {
        let waits = self.hosts.values().filter(|of_host| !of_host.waiting.is_empty());
        waits.map(|of_host| of_host.due.since(now)).min().unwrap_or(most).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    fn push(installs: &mut Installs, host: &str, number: u64) -> bool {
        let request = Box::default();
        installs.push(&host.parse().unwrap(), Wanted { number, uid: 0, request })
    }

    fn next(installs: &mut Installs, now: u64) -> Option<(String, u64)> {
        installs.next(at(now)).map(|(host, wanted)| (host.to_string(), wanted.number))
    }

    #[test]
    fn hosts_install_in_turn_and_each_has_a_rate_after_a_burst() {
        let mut installs = Installs::default();
        let began = 60_000;
        (0..16).for_each(|number| assert!(push(&mut installs, "a", number)));
        assert!(!push(&mut installs, "a", 16), "the host's places are taken");
        assert!(push(&mut installs, "b", 0));
        let first: Vec<_> = (0..3).map(|_| next(&mut installs, began).unwrap()).collect();
        assert_eq!(first, [("a".to_owned(), 0), ("b".to_owned(), 0), ("a".to_owned(), 1)]);
        (0..14).for_each(|_| assert!(next(&mut installs, began).is_some()));
        assert!(push(&mut installs, "a", 17) && push(&mut installs, "b", 1));
        assert_eq!(next(&mut installs, began), Some(("b".to_owned(), 1)), "a must wait");
        assert_eq!(installs.wait(at(began), Nanos::from_millis(500)), Nanos::from_millis(100));
        assert_eq!(
            (next(&mut installs, began + 99), next(&mut installs, began + 100)),
            (None, Some(("a".to_owned(), 17)))
        );
        installs.next(at(began + 10_000));
        assert!(installs.hosts.is_empty(), "nothing is kept of hosts that have been quiet");
    }

    #[test]
    fn the_turn_is_kept_while_nothing_is_due() {
        let mut installs = Installs::default();
        (0..2).for_each(|number| assert!(push(&mut installs, "a", number)));
        assert_eq!(next(&mut installs, 60_000), Some(("a".to_owned(), 0)));
        installs.hosts.values_mut().for_each(|of_host| of_host.due = at(70_000));
        assert_eq!(next(&mut installs, 60_000), None);
        assert!(push(&mut installs, "b", 0));
        assert_eq!(next(&mut installs, 70_000), Some(("b".to_owned(), 0)), "a was served last");
    }

    #[test]
    fn a_removed_deployment_and_those_of_a_lost_host_are_not_installed() {
        let mut installs = Installs::default();
        (0..3).for_each(|number| assert!(push(&mut installs, "a", number)));
        assert!(push(&mut installs, "b", 5));
        installs.cancel(&"a".parse().unwrap(), 0);
        installs.gone(&"b".parse().unwrap());
        let left: Vec<_> = std::iter::from_fn(|| next(&mut installs, 60_000)).collect();
        assert_eq!(left, [("a".to_owned(), 1), ("a".to_owned(), 2)]);
    }
}
