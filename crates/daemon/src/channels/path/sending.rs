//! The sending end: words of other hosts that this host may change, and changes that they have not confirmed.

use std::collections::BTreeMap;
use std::io;

use qfabric_linux::kernel_path::ParameterSender;
use qfabric_types::channel::Name;
use qfabric_types::kernel_path::PARAMETERS;
use qfabric_types::{Instant, Nanos};

use super::message::{Applied, Message, Parameter};

/// A change that is not confirmed after this time is repeated through the other host's daemon.
const PATIENCE: Nanos = Nanos::from_millis(2_000);

#[derive(Debug, Default)]
pub(super) struct Sending {
    hosts: BTreeMap<Name, Receiver>,
    /// Changes whose words have ended before they were confirmed.
    ended: Vec<(Name, Parameter, i64)>,
}

/// A host that has given this one a key.
#[derive(Debug)]
struct Receiver {
    sender: ParameterSender,
    words: BTreeMap<Parameter, Word>,
}

#[derive(Debug)]
struct Word {
    channel: u16,
    number: u16,
    pending: Option<Pending>,
}

/// The last change, until it is confirmed.
#[derive(Clone, Copy, Debug)]
struct Pending {
    epoch: u32,
    sequence: u64,
    value: i64,
    sent: Instant,
    /// When it is repeated: counted from the first change that is not confirmed.
    due: Instant,
}

impl Sending {
    /// The epoch of the key that the host gave; 0: none.
    pub(super) fn epoch(&self, host: &Name) -> u32 {
        self.hosts.get(host).map_or(0, |receiver| receiver.sender.epoch())
    }

    /// False: there is no word for the parameter, or the datagram could not be sent. The change that the caller makes
    /// instead takes the place of one that waits to be confirmed or repeated.
    pub(super) fn send(&mut self, host: &Name, parameter: &Parameter, value: i64, now: Instant) -> bool {
        self.ended.retain(|(of, ended, _)| of != host || ended != parameter);
        let Some(Receiver { sender, words }) = self.hosts.get_mut(host) else { return false };
        let Some(word) = words.get_mut(parameter) else { return false };
        let sent = sender.set(word.channel, word.number, value).ok();
        let due = word.pending.map_or(now + PATIENCE, |former| former.due);
        word.pending = sent.map(|sequence| Pending { epoch: sender.epoch(), sequence, value, sent: now, due });
        sent.is_some()
    }

    /// Handles a message of a receiving host; returns the answer.
    pub(super) fn heard(&mut self, host: &Name, message: Message) -> io::Result<Option<Message>> {
        match (message, self.hosts.get_mut(host)) {
            (Message::Key { address, peer, epoch, key }, known) => {
                match known {
                    // The key was sent twice.
                    Some(known) if known.sender.epoch() == epoch => {}
                    Some(known) => {
                        let is_next = known.sender.epoch().checked_add(1) == Some(epoch);
                        known.sender = ParameterSender::new(address, peer, epoch, key.key())?;
                        // A host that was started anew knows no word of the time before.
                        let over = known.end(|_| !is_next);
                        self.ended.extend(of_host(host, over));
                    }
                    None => {
                        let sender = ParameterSender::new(address, peer, epoch, key.key())?;
                        self.hosts.insert(host.clone(), Receiver { sender, words: BTreeMap::new() });
                    }
                }
                return Ok(Some(Message::Has { epoch }));
            }
            (Message::Bound { parameter, channel, word }, Some(known)) if word < PARAMETERS => {
                // If the word was asked for twice, a change that was sent in between still waits.
                let pending = known.words.remove(&parameter).and_then(|former| former.pending);
                let over = known.end(|other| other.number == word);
                self.ended.extend(of_host(host, over));
                known.words.insert(parameter, Word { channel, number: word, pending });
            }
            (Message::Ended { word }, Some(known)) => {
                let over = known.end(|other| other.number == word);
                self.ended.extend(of_host(host, over));
            }
            (Message::Applied { words }, Some(known)) => words.iter().for_each(|applied| known.applied(applied)),
            _ => {}
        }
        Ok(None)
    }

    /// Changes that have to be repeated, because they may be lost. Their words are not used until they are bound again.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(Name, Parameter, i64)> {
        let mut overdue = std::mem::take(&mut self.ended);
        for (host, receiver) in &mut self.hosts {
            let late = receiver.end(|word| word.pending.is_some_and(|pending| pending.due <= now));
            overdue.extend(of_host(host, late));
        }
        overdue
    }

    /// The host's changes that were not confirmed go through its daemon. If it is still gone then, the log says so.
    pub(super) fn gone(&mut self, host: &Name) {
        let Some(mut receiver) = self.hosts.remove(host) else { return };
        let over = receiver.end(|_| true);
        self.ended.extend(of_host(host, over));
    }
}

fn of_host(host: &Name, changes: Vec<(Parameter, i64)>) -> impl Iterator<Item = (Name, Parameter, i64)> {
    changes.into_iter().map(|(parameter, value)| (host.clone(), parameter, value))
}

impl Receiver {
    /// Forgets the words for which `is_over` is true; returns their changes that were not confirmed.
    fn end(&mut self, is_over: impl Fn(&Word) -> bool) -> Vec<(Parameter, i64)> {
        let mut ended = Vec::new();
        self.words.retain(|parameter, word| {
            let is_over = is_over(word);
            let pending = word.pending.as_ref().filter(|_| is_over);
            ended.extend(pending.map(|pending| (parameter.clone(), pending.value)));
            !is_over
        });
        ended
    }

    fn applied(&mut self, applied: &Applied) {
        let at = (applied.epoch, applied.sequence);
        for word in self.words.values_mut().filter(|word| word.number == applied.word) {
            word.pending.take_if(|pending| (pending.epoch, pending.sequence) <= at);
            // Datagrams arrive, so the time of a later change begins when it was sent.
            word.pending.iter_mut().for_each(|pending| pending.due = pending.sent + PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use qfabric_channel::{Direction, FilterId};
    use qfabric_types::channel::ChannelId;

    use super::super::message::Secret;
    use super::*;

    const NOW: Instant = Instant::new(1_000_000_000);

    fn parameter(key: &str) -> Parameter {
        let channel = ChannelId::data("v".parse().unwrap());
        let filter = FilterId { channel, direction: Direction::Out, name: "f".parse().unwrap() };
        Parameter { filter, key: key.parse().unwrap() }
    }

    fn host() -> Name {
        "h1".parse().unwrap()
    }

    /// A host that has a key of epoch 5 and the word 2 for `most`, and the socket to which it sends.
    fn bound() -> (Sending, UdpSocket) {
        let (mut sending, socket) = (Sending::default(), UdpSocket::bind("127.0.0.1:0").unwrap());
        assert!(!sending.send(&host(), &parameter("most"), 1, NOW));
        let address = socket.local_addr().unwrap();
        let key = Message::Key { address, peer: 1, epoch: 5, key: Secret::random().unwrap() };
        let word = Message::Bound { parameter: parameter("most"), channel: 1, word: 2 };
        assert_eq!(sending.heard(&host(), key).unwrap(), Some(Message::Has { epoch: 5 }));
        assert_eq!((sending.heard(&host(), word).unwrap(), sending.epoch(&host())), (None, 5));
        (sending, socket)
    }

    fn applied(sending: &mut Sending, epoch: u32, sequence: u64) {
        let words = vec![Applied { word: 2, epoch, sequence }];
        assert_eq!(sending.heard(&host(), Message::Applied { words }).unwrap(), None);
    }

    #[test]
    fn the_last_change_is_repeated_once_unless_it_is_confirmed() {
        let (mut sending, _socket) = bound();
        let late = NOW + PATIENCE;
        assert!(!sending.send(&host(), &parameter("least"), 1, NOW), "it has no word");
        assert!(sending.send(&host(), &parameter("most"), 1, NOW) && sending.send(&host(), &parameter("most"), 7, NOW));
        applied(&mut sending, 5, 1);
        applied(&mut sending, 4, 9);
        assert!(sending.overdue(NOW).is_empty(), "it is not late yet");
        assert_eq!(sending.overdue(late), [(host(), parameter("most"), 7)]);
        assert!(sending.overdue(late).is_empty() && !sending.send(&host(), &parameter("most"), 8, NOW));
        let (mut sending, _socket) = bound();
        assert!(sending.send(&host(), &parameter("most"), 8, NOW));
        applied(&mut sending, 5, 1);
        assert!(sending.overdue(late).is_empty() && sending.send(&host(), &parameter("most"), 9, NOW));
    }

    #[test]
    fn a_word_that_ends_is_not_used_and_its_change_is_repeated_at_once() {
        let (mut sending, _socket) = bound();
        assert!(sending.send(&host(), &parameter("most"), 1, NOW));
        assert_eq!(sending.heard(&host(), Message::Ended { word: 2 }).unwrap(), None);
        assert_eq!(sending.overdue(NOW), [(host(), parameter("most"), 1)]);
        assert!(!sending.send(&host(), &parameter("most"), 2, NOW));
        let (mut sending, _socket) = bound();
        assert!(sending.send(&host(), &parameter("most"), 1, NOW));
        sending.gone(&host());
        assert_eq!((sending.overdue(NOW), sending.epoch(&host())), (vec![(host(), parameter("most"), 1)], 0));
        assert!(!sending.send(&host(), &parameter("most"), 2, NOW));
    }

    #[test]
    fn no_older_change_follows_a_newer_one() {
        let (mut sending, _socket) = bound();
        assert!(sending.send(&host(), &parameter("most"), 1, NOW));
        assert_eq!(sending.heard(&host(), Message::Ended { word: 2 }).unwrap(), None);
        assert!(!sending.send(&host(), &parameter("most"), 2, NOW), "the caller sends it through the daemon");
        assert!(sending.overdue(NOW).is_empty(), "1 must not follow 2");
        let (mut sending, _socket) = bound();
        assert!(sending.send(&host(), &parameter("most"), 1, NOW));
        let again = Message::Bound { parameter: parameter("most"), channel: 1, word: 2 };
        assert_eq!(sending.heard(&host(), again).unwrap(), None);
        assert!(sending.overdue(NOW).is_empty(), "1 still waits for its confirmation");
        assert!(sending.send(&host(), &parameter("most"), 2, NOW));
        assert_eq!(sending.overdue(NOW + PATIENCE), [(host(), parameter("most"), 2)]);
    }

    #[test]
    fn changes_that_follow_each_other_are_repeated_if_none_is_confirmed() {
        let (mut sending, _socket) = bound();
        let later = NOW + Nanos::from_millis(1_500);
        assert!(sending.send(&host(), &parameter("most"), 1, NOW));
        assert!(sending.send(&host(), &parameter("most"), 2, later));
        applied(&mut sending, 5, 1);
        assert!(sending.overdue(NOW + PATIENCE).is_empty(), "1 was confirmed, and 2 is not late yet");
        assert!(sending.send(&host(), &parameter("most"), 3, later + Nanos::from_millis(1_500)));
        assert_eq!(sending.overdue(later + PATIENCE), [(host(), parameter("most"), 3)]);
    }

    #[test]
    fn words_of_a_former_start_of_the_host_are_not_used() {
        let (mut sending, socket) = bound();
        let address = socket.local_addr().unwrap();
        let key = |epoch| Message::Key { address, peer: 1, epoch, key: Secret::random().unwrap() };
        sending.heard(&host(), key(6)).unwrap();
        assert!(sending.send(&host(), &parameter("most"), 1, NOW), "a renewed key keeps the words");
        sending.heard(&host(), key(1_000)).unwrap();
        assert_eq!(sending.overdue(NOW), [(host(), parameter("most"), 1)]);
        assert!(!sending.send(&host(), &parameter("most"), 2, NOW));
    }

    #[test]
    fn a_key_that_comes_twice_does_not_use_sequence_numbers_again() {
        let (mut sending, socket) = bound();
        let mut bytes = [0; 48];
        let mut sequence = |sending: &mut Sending| {
            assert!(sending.send(&host(), &parameter("most"), 1, NOW));
            assert_eq!(socket.recv(&mut bytes).unwrap(), 48);
            (bytes[8], bytes[24])
        };
        assert_eq!(sequence(&mut sending), (5, 1));
        let address = socket.local_addr().unwrap();
        let key = |epoch| Message::Key { address, peer: 1, epoch, key: Secret::random().unwrap() };
        sending.heard(&host(), key(5)).unwrap();
        assert_eq!(sequence(&mut sending), (5, 2));
        sending.heard(&host(), key(6)).unwrap();
        assert_eq!(sequence(&mut sending), (6, 1));
    }
}
