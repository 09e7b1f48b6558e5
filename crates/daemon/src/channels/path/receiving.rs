//! The receiving end: the hosts that may change parameters here, their keys, and the words that filters follow.
//!
//! Each host has a channel of the kernel path, with the number of the host, so it can change none of another host's words.
//! A word is given to another parameter only when the keys of the time before are removed: a late datagram must not
//! change a parameter for which it was not meant.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use qfabric_channel::Word;
use qfabric_linux::kernel_path::{KernelPath, KernelPathError, PathCounts, PathWords, PeerRights};
use qfabric_types::channel::Name;
use qfabric_types::kernel_path::{CHANNELS, PARAMETERS};
use qfabric_types::{Instant, Nanos};

use super::super::network::Network;
use super::KernelPathConfig;
use super::message::{Applied, Message, Parameter, Secret};

/// A key that its host has not confirmed is sent again after this time.
const TELL_AGAIN: Nanos = Nanos::from_millis(2_000);
/// Changes of one host that are accepted: per second, and at once after a pause.
const PER_SECOND: u32 = 10_000;
const BURST: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Receiving {
    kernel: KernelPath,
    address: SocketAddr,
    renew: Nanos,
    renew_changes: u64,
    hosts: BTreeMap<Name, Sender>,
    renewed: u64,
}

/// A host with a key.
#[derive(Debug)]
struct Sender {
    /// Its number in the kernel, and that of its channel.
    number: u16,
    epoch: u32,
    /// When the key was made.
    since: Instant,
    /// The key, until the host has confirmed it, and when it was told last.
    told: Option<(Secret, Instant)>,
    /// The key before is still valid.
    has_former: bool,
    words: [Grant; PARAMETERS as usize],
}

/// What became of a word.
#[derive(Clone, Debug, Default)]
enum Grant {
    #[default]
    Free,
    /// With the change that was confirmed last.
    Bound(Parameter, (u32, u64)),
    /// The filter does not follow it any more; the epoch of the key at that time.
    Ended(u32),
}

/// A word in the memory that the kernel writes.
struct KernelWord {
    words: PathWords,
    channel: u16,
    number: u16,
}

impl Word for KernelWord {
    fn read(&self) -> Option<(u64, i64)> {
        self.words.read(self.channel, self.number).map(|word| (word.changes, word.value))
    }
}

impl Receiving {
    pub(super) fn new(kernel: KernelPath, config: &KernelPathConfig) -> Receiving {
        let KernelPathConfig { address, renew, renew_changes, .. } = *config;
        Receiving { kernel, address, renew, renew_changes, hosts: BTreeMap::new(), renewed: 0 }
    }

    pub(super) fn counts(&self) -> PathCounts {
        self.kernel.counts()
    }

    /// The number of words that filters follow.
    pub(super) fn followed(&self) -> u64 {
        let words = self.hosts.values().flat_map(|sender| &sender.words);
        words.filter(|grant| matches!(grant, Grant::Bound(..))).count() as u64
    }

    pub(super) fn renewed(&self) -> u64 {
        self.renewed
    }

    /// A host that has the key of `epoch` (0: none) wants to change a parameter. Returns the answers; none if it gets no
    /// word.
    pub(super) fn bind(
        &mut self,
        network: &Network,
        host: &Name,
        epoch: u32,
        parameter: Parameter,
        now: Instant,
    ) -> Result<Vec<Message>, KernelPathError> {
        // Nothing would report the end of a host that the node does not know, and its number would never be free again.
        if !network.look(|node| node.may_be_followed(host, &parameter.filter.channel)) {
            return Ok(Vec::new());
        }
        if !self.hosts.contains_key(host) && !self.admit(host, now)? {
            return Ok(Vec::new());
        }
        let sender = &self.hosts[host];
        // A host that asks again has given up a change. It may still be under way, and must not follow the next one.
        let again = sender.words.iter().any(|grant| matches!(grant, Grant::Bound(bound, _) if *bound == parameter));
        if (sender.epoch != epoch || again) && sender.told.is_none() {
            self.renew(host, now)?;
        }
        let Some(sender) = self.hosts.get_mut(host) else { return Ok(Vec::new()) };
        let Some(number) = sender.word_for(&parameter) else {
            let has_ended = sender.words.iter().any(|grant| matches!(grant, Grant::Ended(_)));
            if has_ended && sender.told.is_none() && !sender.has_former {
                // Words that have ended are free when the present key is removed.
                self.renew(host, now)?;
            }
            return Ok(self.key_of(host, now));
        };
        let (channel, word) = (sender.number, number as u16);
        let place = Box::new(KernelWord { words: self.kernel.words(), channel, number: word });
        let Parameter { filter, key } = &parameter;
        if !network.look(|node| node.follow_parameter(host, filter, key.as_str(), place)) {
            return Ok(Vec::new());
        }
        sender.words[number] = Grant::Bound(parameter.clone(), Default::default());
        let bound = Message::Bound { parameter, channel, word };
        Ok(self.key_of(host, now).into_iter().chain([bound]).collect())
    }

    /// Gives a host a number and a key. False: there is no number left.
    fn admit(&mut self, host: &Name, now: Instant) -> Result<bool, KernelPathError> {
        let is_free = |number: &u16| self.hosts.values().all(|sender| sender.number != *number);
        let Some(number) = (0..CHANNELS).find(is_free) else { return Ok(false) };
        let (secret, epoch) = (random()?, self.first_epoch(number));
        let rights = PeerRights { channels: vec![number], per_second: PER_SECOND, burst: BURST };
        self.kernel.admit(u32::from(number), epoch, &secret.key(), &rights)?;
        let (told, words) = (Some((secret, Instant::ZERO)), Default::default());
        self.hosts.insert(host.clone(), Sender { number, epoch, since: now, told, has_former: false, words });
        Ok(true)
    }

    /// Above all epochs of former hosts with the number. Those of a former start of this daemon are not known, so epochs
    /// begin with the time.
    fn first_epoch(&self, number: u16) -> u32 {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() as u32);
        seconds.max(self.kernel.last_epoch(u32::from(number)).saturating_add(1))
    }

    fn renew(&mut self, host: &Name, now: Instant) -> Result<(), KernelPathError> {
        let Some(sender) = self.hosts.get_mut(host) else { return Ok(()) };
        let secret = random()?;
        sender.epoch = self.kernel.renew(u32::from(sender.number), &secret.key())?;
        (sender.since, sender.told, sender.has_former) = (now, Some((secret, Instant::ZERO)), true);
        self.renewed += 1;
        Ok(())
    }

    /// The key, if the host has to be told it now.
    fn key_of(&mut self, host: &Name, now: Instant) -> Vec<Message> {
        let address = self.address;
        let Some(Sender { number, epoch, told: Some((key, at)), .. }) = self.hosts.get_mut(host) else { return vec![] };
        *at = now;
        vec![Message::Key { address, peer: u32::from(*number), epoch: *epoch, key: key.clone() }]
    }

    /// The host uses the key of this epoch.
    pub(super) fn confirmed(&mut self, host: &Name, epoch: u32) {
        if let Some(sender) = self.hosts.get_mut(host).filter(|sender| sender.epoch == epoch) {
            sender.told = None;
        }
    }

    /// The host is gone, and with it its key. The node has ended what filters followed.
    pub(super) fn gone(&mut self, host: &Name) {
        let Some(sender) = self.hosts.remove(host) else { return };
        if let Err(error) = self.kernel.remove(u32::from(sender.number)) {
            tracing::error!(%host, %error, "the key of a host that is gone was not removed");
        }
    }

    /// Confirms changes and renews keys. Returns messages.
    pub(super) fn look(&mut self, network: &Network, now: Instant) -> Vec<(Name, Message)> {
        let hosts: Vec<_> = self.hosts.keys().cloned().collect();
        let mut messages = Vec::new();
        for host in hosts {
            let looked = self.look_at(network, &host, now).unwrap_or_else(|error| {
                tracing::error!(%host, %error, "the key of a host was not renewed");
                Vec::new()
            });
            messages.extend(looked.into_iter().map(|message| (host.clone(), message)));
        }
        messages
    }

    fn look_at(&mut self, network: &Network, host: &Name, now: Instant) -> Result<Vec<Message>, KernelPathError> {
        let Some(sender) = self.hosts.get_mut(host) else { return Ok(Vec::new()) };
        let mut messages = sender.confirm(network, host, &self.kernel.words());
        if sender.told.is_none() && sender.has_former {
            // The host uses the new key. A change that is still under way with the former one is repeated.
            self.kernel.retire(u32::from(sender.number))?;
            sender.has_former = false;
            sender.free();
        }
        let is_used_up = sender.changes() >= self.renew_changes || now.since(sender.since) >= self.renew;
        if sender.told.is_none() && is_used_up {
            self.renew(host, now)?;
        }
        let is_due = |sender: &Sender| sender.told.as_ref().is_some_and(|(_, at)| *at + TELL_AGAIN <= now);
        if self.hosts.get(host).is_some_and(is_due) {
            messages.extend(self.key_of(host, now));
        }
        Ok(messages)
    }
}

impl Sender {
    /// The place of the word for the parameter: the one that it has, or a free one.
    fn word_for(&self, parameter: &Parameter) -> Option<usize> {
        let mut words = self.words.iter();
        let has = words.position(|grant| matches!(grant, Grant::Bound(bound, _) if bound == parameter));
        has.or_else(|| self.words.iter().position(|grant| matches!(grant, Grant::Free)))
    }

    /// Changes with the present key.
    fn changes(&self) -> u64 {
        let bound = self.words.iter().filter_map(|grant| match grant {
            Grant::Bound(_, (epoch, sequence)) if *epoch == self.epoch => Some(*sequence),
            _ => None,
        });
        bound.max().unwrap_or(0)
    }

    /// Messages about changes since the last call, and about words that filters do not follow any more. The word is read
    /// first: a filter that still follows afterwards sees the change.
    fn confirm(&mut self, network: &Network, host: &Name, words: &PathWords) -> Vec<Message> {
        let (mut messages, mut applied) = (Vec::new(), Vec::new());
        for (number, grant) in (0..PARAMETERS).zip(&mut self.words) {
            let Grant::Bound(Parameter { filter, key }, told) = grant else { continue };
            let last = words.read(self.number, number).map_or(*told, |word| (word.epoch, word.sequence));
            let follows = network.look(|node| {
                node.followed(filter).iter().any(|(name, changer)| name == key.as_str() && changer == host)
            });
            if !follows {
                *grant = Grant::Ended(self.epoch);
                messages.push(Message::Ended { word: number });
            } else if last != *told {
                *told = last;
                applied.push(Applied { word: number, epoch: last.0, sequence: last.1 });
            }
        }
        if !applied.is_empty() {
            messages.push(Message::Applied { words: applied });
        }
        messages
    }

    /// Words that ended under a former key are free.
    fn free(&mut self) {
        let epoch = self.epoch;
        self.words.iter_mut().filter(|grant| matches!(grant, Grant::Ended(at) if *at < epoch)).for_each(|grant| {
            *grant = Grant::Free;
        });
    }
}

fn random() -> Result<Secret, KernelPathError> {
    Secret::random().map_err(|source| KernelPathError::Kernel { what: "reading /dev/urandom", source })
}
