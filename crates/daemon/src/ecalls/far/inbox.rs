//! Messages of other hosts that wait for the thread `qf-ecalls-far`, and in another inbox for `qf-path`. The network's
//! threads fill it, so it never waits. Each host has a queue, and the hosts are served in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use qfabric_sync::{Condvar, Lock, lock, rank};
use qfabric_types::channel::Name;

/// Messages of one host that may wait; a further one is lost, and its host sends it again.
const WAITING_OF_HOST: usize = 256;
/// Messages of all hosts that may wait: at most 32 MiB. A further one replaces the newest message of the host with the
/// most.
const WAITING: usize = 2048;

/// What the thread has to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Hosts that are gone.
    pub gone: BTreeSet<Name>,
    /// A message with its sender.
    pub message: Option<(Name, Vec<u8>)>,
    pub stops: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The hosts with messages.
    hosts: BTreeMap<Name, VecDeque<Vec<u8>>>,
    /// The host that was served last.
    last: Option<Name>,
    gone: BTreeSet<Name>,
    stops: bool,
    dropped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Lock<Waiting, { rank::FAR_INBOX }>,
    changed: Condvar,
}

impl Inbox {
    pub(crate) fn heard(&self, host: Name, tail: Vec<u8>) {
        let mut waiting = lock(&self.waiting);
        let own = waiting.hosts.get(&host).map_or(0, VecDeque::len);
        let has_room = own < WAITING_OF_HOST && (waiting.len() < WAITING || waiting.drop_longest(own + 1));
        if !has_room {
            waiting.dropped += 1;
            return;
        }
        waiting.hosts.entry(host).or_default().push_back(tail);
        drop(waiting);
        self.changed.notify_all();
    }

    /// The host is gone. Its waiting messages are dropped.
    pub(crate) fn gone(&self, host: &Name) {
        let mut waiting = lock(&self.waiting);
        waiting.hosts.remove(host);
        waiting.gone.insert(host.clone());
        drop(waiting);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        lock(&self.waiting).stops = true;
        self.changed.notify_all();
    }

    /// The next work; nothing, if there is none within this time.
    pub(crate) fn next(&self, patience: Duration) -> Work {
        let mut waiting = lock(&self.waiting);
        if waiting.hosts.is_empty() && waiting.gone.is_empty() && !waiting.stops {
            waiting = waiting.wait_timeout(&self.changed, patience).0;
        }
        Work { gone: std::mem::take(&mut waiting.gone), message: waiting.take(), stops: waiting.stops }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).hosts.is_empty()
    }

    /// Messages that were lost because too many waited.
    pub(super) fn dropped(&self) -> u64 {
        lock(&self.waiting).dropped
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.hosts.values().map(VecDeque::len).sum()
    }

    /// Drops a message of the host with the most, if it has more than `least`. Returns whether there is room now.
    fn drop_longest(&mut self, least: usize) -> bool {
        let longest = self.hosts.values_mut().max_by_key(|messages| messages.len());
        let dropped = longest.filter(|messages| messages.len() > least).and_then(VecDeque::pop_back).is_some();
        self.dropped += u64::from(dropped);
        dropped
    }

    /// The oldest message of the next host.
    fn take(&mut self) -> Option<(Name, Vec<u8>)> {
        let host = super::next_in_turn(&self.hosts, self.last.take(), |_| true)?;
        let messages = self.hosts.get_mut(&host)?;
        let message = messages.pop_front();
        if messages.is_empty() {
            self.hosts.remove(&host);
        }
        self.last = Some(host.clone());
        message.map(|message| (host, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_floods_leaves_room_for_others_and_takes_its_messages_with_it() {
        let (inbox, [one, two]) = (Inbox::default(), ["a", "b"].map(|name| name.parse::<Name>().unwrap()));
        (0..WAITING_OF_HOST + 3).for_each(|_| inbox.heard(one.clone(), vec![1]));
        inbox.heard(two.clone(), vec![2]);
        assert_eq!(inbox.dropped(), 3);
        inbox.gone(&one);
        let work = inbox.next(Duration::ZERO);
        assert_eq!((work.gone, work.message), ([one].into(), Some((two, vec![2]))));
        assert_eq!(inbox.next(Duration::ZERO).message, None);
    }

    #[test]
    fn hosts_are_served_in_turn_and_the_one_with_the_most_messages_makes_room() {
        let inbox = Inbox::default();
        let host = |number: usize| format!("h{number:02}").parse::<Name>().unwrap();
        (0..8).for_each(|number| (0..WAITING_OF_HOST).for_each(|at| inbox.heard(host(number), vec![at as u8])));
        (0..2).for_each(|at| inbox.heard(host(20), vec![at]));
        assert_eq!(inbox.dropped(), 2, "eight hosts have filled the inbox");
        let served: Vec<_> = (0..10).map(|_| inbox.next(Duration::ZERO).message.unwrap()).collect();
        assert_eq!((&served[8], &served[9]), (&(host(20), vec![0]), &(host(0), vec![1])), "one message of each host");
        assert!((0..8).all(|at| served[at] == (host(at), vec![0])));
    }
}
