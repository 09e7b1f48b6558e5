//! Messages of other hosts that wait for the thread `qf-ecalls-far`. The network's threads fill it, so it never waits.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use qfabric_sync::{Condvar, Lock, lock, rank};
use qfabric_types::channel::Name;

/// Messages of one host that may wait; a further one is lost, and its host sends it again.
const WAITING_OF_HOST: usize = 256;
/// Messages of all hosts that may wait: at most 32 MiB.
const WAITING: usize = 2048;

/// What the thread has to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Hosts that are gone.
    pub gone: BTreeSet<Name>,
    /// A message with its sender.
    pub message: Option<(Name, Vec<u8>)>,
    pub stops: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(Name, Vec<u8>)>,
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
        let of_host = waiting.messages.iter().filter(|(other, _)| *other == host).count();
        if of_host >= WAITING_OF_HOST || waiting.messages.len() >= WAITING {
            waiting.dropped += 1;
            return;
        }
        waiting.messages.push_back((host, tail));
        drop(waiting);
        self.changed.notify_all();
    }

    /// The host is gone. Its waiting messages are dropped.
    pub(crate) fn gone(&self, host: &Name) {
        let mut waiting = lock(&self.waiting);
        waiting.messages.retain(|(other, _)| other != host);
        waiting.gone.insert(host.clone());
        drop(waiting);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        lock(&self.waiting).stops = true;
        self.changed.notify_all();
    }

    /// The next work; nothing, if there is none within this time.
    pub(super) fn next(&self, patience: Duration) -> Work {
        let mut waiting = lock(&self.waiting);
        if waiting.messages.is_empty() && waiting.gone.is_empty() && !waiting.stops {
            waiting = waiting.wait_timeout(&self.changed, patience).0;
        }
        Work { gone: std::mem::take(&mut waiting.gone), message: waiting.messages.pop_front(), stops: waiting.stops }
    }

    /// Messages that were lost because too many waited.
    pub(super) fn dropped(&self) -> u64 {
        lock(&self.waiting).dropped
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
}
