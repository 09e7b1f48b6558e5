//! The directory: the records of all hosts, with their channels, members and registrations.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

use crate::change::Change;
use crate::{
    Incarnation, Limits, Origin, Proof, Registration, RegistrationId, SinkId, SinkInfo, SourceId, SourceInfo, Spec,
};

/// All hosts that are present, this host included.
#[derive(Debug, Default)]
pub struct Directory {
    pub(crate) hosts: BTreeMap<Name, HostRecord>,
    /// Number of members of each channel on all hosts.
    crowds: BTreeMap<ChannelId, usize>,
    /// Number of members of each host on all channels.
    loads: BTreeMap<Name, usize>,
}

/// The record that a host has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    pub incarnation: Incarnation,
    /// Number of changes that the host has sent.
    pub version: u64,
    pub channels: BTreeMap<ChannelId, Held>,
    pub registrations: BTreeMap<RegistrationId, Registration>,
}

/// A channel as one host holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The creation that the host's opening refers to.
    pub origin: Origin,
    pub spec: Arc<Spec>,
    /// Shows that the origin's creator created the channel.
    pub proof: Proof,
    pub sources: BTreeMap<SourceId, SourceInfo>,
    pub sinks: BTreeMap<SinkId, SinkInfo>,
}

/// A channel as seen by all hosts together.
#[derive(Clone, Debug)]
pub struct ChannelView {
    /// The creation that won.
    pub origin: Origin,
    pub spec: Arc<Spec>,
    /// Number of hosts that hold the channel.
    pub hosts: usize,
    pub sources: usize,
    pub sinks: usize,
}

impl Directory {
    pub fn hosts(&self) -> impl Iterator<Item = (&Name, &HostRecord)> {
        self.hosts.iter()
    }

    pub fn host(&self, name: &Name) -> Option<&HostRecord> {
        self.hosts.get(name)
    }

    /// The hosts that hold the channel.
    pub fn holders<'a>(&'a self, channel: &'a ChannelId) -> impl Iterator<Item = (&'a Name, &'a Held)> {
        self.hosts.iter().filter_map(move |(name, host)| Some((name, host.channels.get(channel)?)))
    }

    /// The channel by its earliest creation, without a check of the creator. [`crate::Node::channel`] returns the
    /// creation that won.
    pub fn channel(&self, channel: &ChannelId) -> Option<ChannelView> {
        Some(self.view(channel, self.standing(channel)?))
    }

    /// The channel by the creation in `stands`.
    pub(crate) fn view(&self, channel: &ChannelId, stands: &Held) -> ChannelView {
        let (mut hosts, mut sources, mut sinks) = (0, 0, 0);
        for (_, held) in self.holders(channel) {
            hosts += 1;
            sources += held.sources.len();
            sinks += held.sinks.len();
        }
        ChannelView { origin: stands.origin.clone(), spec: stands.spec.clone(), hosts, sources, sinks }
    }

    /// The earliest creation of a channel that any host holds.
    pub(crate) fn standing(&self, channel: &ChannelId) -> Option<&Held> {
        self.hosts.values().filter_map(|host| host.channels.get(channel)).min_by_key(|held| &held.origin)
    }

    /// Number of sources and sinks of a channel on all hosts.
    pub(crate) fn crowd(&self, channel: &ChannelId) -> usize {
        self.crowds.get(channel).copied().unwrap_or(0)
    }

    /// Number of sources and sinks of a host on all channels.
    pub(crate) fn load(&self, host: &Name) -> usize {
        self.loads.get(host).copied().unwrap_or(0)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn assert_sound(&self) {
        for channel in self.channels() {
            let members: usize = self.hosts.values().map(|host| host.members(channel)).sum();
            assert_eq!(self.crowd(channel), members, "members of {}", channel.name);
        }
        for (name, host) in &self.hosts {
            let members: usize = host.channels.keys().map(|channel| host.members(channel)).sum();
            assert_eq!(self.load(name), members, "members of {name}");
        }
        assert!(self.crowds.values().chain(self.loads.values()).all(|count| *count > 0));
    }

    /// In the order of their names.
    pub fn channels(&self) -> Vec<&ChannelId> {
        let mut all: Vec<&ChannelId> = self.hosts.values().flat_map(|host| host.channels.keys()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn groups(&self) -> BTreeMap<&Name, Vec<(&Name, &Registration)>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, host) in &self.hosts {
            for registration in host.registrations.values() {
                groups.entry(&registration.group).or_default().push((name, registration));
            }
        }
        groups
    }

    /// The hosts of a group's applications; each host occurs once.
    pub fn hosts_of_group<'a>(&'a self, group: &'a Name) -> impl Iterator<Item = &'a Name> {
        let member = move |host: &HostRecord| host.registrations.values().any(|have| have.group == *group);
        self.hosts.iter().filter(move |(_, host)| member(host)).map(|(name, _)| name)
    }

    /// Returns another holder's equal specification if there is one, so that memory holds it once.
    pub(crate) fn shared(&self, channel: &ChannelId, spec: Spec) -> Arc<Spec> {
        let same = self.holders(channel).find(|(_, held)| *held.spec == spec);
        same.map_or_else(|| Arc::new(spec), |(_, held)| held.spec.clone())
    }
}

/// The change exceeds a limit, or refers to a channel or member that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit;

impl HostRecord {
    /// The changes that make this record out of an empty one.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (id, held) in &self.channels {
            changes.push(held.hold(id));
            let sources = held.sources.iter();
            changes.extend(sources.map(|(number, info)| Change::Source(id.clone(), *number, info.clone())));
            let sinks = held.sinks.iter();
            changes.extend(sinks.map(|(number, info)| Change::Sink(id.clone(), *number, info.clone())));
        }
        let registrations = self.registrations.iter();
        changes.extend(registrations.map(|(id, registration)| Change::Register(*id, registration.clone())));
        changes
    }

    /// The changes that make the other record out of this one. Entries are found by name, because both records may be
    /// as large as a host may send.
    pub(crate) fn changes_to(&self, other: &HostRecord) -> Vec<Change> {
        let mut changes = Vec::new();
        let released = self.channels.keys().filter(|id| !other.channels.contains_key(id));
        changes.extend(released.map(|id| Change::Release(id.clone())));
        let gone = self.registrations.keys().filter(|id| !other.registrations.contains_key(id));
        changes.extend(gone.map(|id| Change::Unregister(*id)));
        for (id, held) in &other.channels {
            if let Some(before) = self.channels.get(id) {
                before.members_gone(id, held, &mut changes);
            }
        }
        changes.extend(other.changes().into_iter().filter(|change| !self.has(change)));
        changes
    }

    /// Whether the record already contains the result of the change.
    fn has(&self, change: &Change) -> bool {
        let held = change.channel().and_then(|channel| self.channels.get(channel));
        match change {
            Change::Hold(_, origin, spec, proof) => {
                held.is_some_and(|held| held.origin == *origin && *held.spec == *spec && held.proof == *proof)
            }
            Change::Source(_, id, info) => held.is_some_and(|held| held.sources.get(id) == Some(info)),
            Change::Sink(_, id, info) => held.is_some_and(|held| held.sinks.get(id) == Some(info)),
            Change::Register(id, registration) => self.registrations.get(id) == Some(registration),
            Change::Release(_) | Change::SourceGone(..) | Change::SinkGone(..) | Change::Unregister(_) => false,
        }
    }

    /// Number of members of the host on the channel.
    pub(crate) fn members(&self, channel: &ChannelId) -> usize {
        self.channels.get(channel).map_or(0, |held| held.sources.len() + held.sinks.len())
    }
}

impl Held {
    /// The change by which another host holds the channel from the same creation.
    pub(crate) fn hold(&self, id: &ChannelId) -> Change {
        Change::Hold(id.clone(), self.origin.clone(), (*self.spec).clone(), self.proof.clone())
    }

    fn members_gone(&self, id: &ChannelId, other: &Held, changes: &mut Vec<Change>) {
        let sources = self.sources.keys().filter(|number| !other.sources.contains_key(number));
        changes.extend(sources.map(|number| Change::SourceGone(id.clone(), *number)));
        let sinks = self.sinks.keys().filter(|number| !other.sinks.contains_key(number));
        changes.extend(sinks.map(|number| Change::SinkGone(id.clone(), *number)));
    }
}

impl Directory {
    /// Applies a change. A hold gets its `spec` from [`Directory::shared`].
    pub(crate) fn apply(&mut self, host: &Name, change: Change) -> Result<(), Unfit> {
        let spec = match &change {
            Change::Hold(channel, _, spec, _) => Some(self.shared(channel, spec.clone())),
            _ => None,
        };
        let (channel, crowd) = (change.channel().cloned(), change.channel().map_or(0, |id| self.crowd(id)));
        let load = self.load(host);
        let has_room = crowd < Limits::MEMBERS && load < Limits::HOST_MEMBERS;
        let members = |record: &HostRecord| channel.as_ref().map_or(0, |channel| record.members(channel));
        let record = self.hosts.get_mut(host).ok_or(Unfit)?;
        let before = members(record);
        record.apply(change, spec, has_room)?;
        let after = members(record);
        if let Some(channel) = channel.filter(|_| before != after) {
            count(&mut self.crowds, &channel, crowd + after - before);
            count(&mut self.loads, host, load + after - before);
        }
        Ok(())
    }
}

impl HostRecord {
    fn apply(&mut self, change: Change, spec: Option<Arc<Spec>>, has_room: bool) -> Result<(), Unfit> {
        let record = self;
        match change {
            Change::Hold(channel, origin, _, proof) => record.hold(channel, origin, spec.ok_or(Unfit)?, proof),
            Change::Release(channel) => record.channels.remove(&channel).map(drop).ok_or(Unfit),
            Change::Source(channel, id, info) => {
                let held = record.channels.get_mut(&channel).ok_or(Unfit)?;
                fits(held.sources.contains_key(&id) || has_room)?;
                held.sources.insert(id, info);
                Ok(())
            }
            Change::SourceGone(channel, id) => {
                let held = record.channels.get_mut(&channel).ok_or(Unfit)?;
                held.sources.remove(&id).map(drop).ok_or(Unfit)
            }
            Change::Sink(channel, id, info) => {
                let held = record.channels.get_mut(&channel).ok_or(Unfit)?;
                fits(held.sinks.contains_key(&id) || has_room)?;
                held.sinks.insert(id, info);
                Ok(())
            }
            Change::SinkGone(channel, id) => {
                let held = record.channels.get_mut(&channel).ok_or(Unfit)?;
                held.sinks.remove(&id).map(drop).ok_or(Unfit)
            }
            Change::Register(id, registration) => {
                fits(record.registrations.len() < Limits::REGISTRATIONS)?;
                record.registrations.insert(id, registration);
                Ok(())
            }
            Change::Unregister(id) => record.registrations.remove(&id).map(drop).ok_or(Unfit),
        }
    }
}

impl HostRecord {
    /// Keeps the members if the specification stays the same.
    fn hold(&mut self, channel: ChannelId, origin: Origin, spec: Arc<Spec>, proof: Proof) -> Result<(), Unfit> {
        match self.channels.get_mut(&channel) {
            Some(held) if held.spec == spec => (held.origin, held.proof) = (origin, proof),
            _ => {
                fits(self.channels.len() < 2 * Limits::CHANNELS)?;
                let (sources, sinks) = Default::default();
                self.channels.insert(channel, Held { origin, spec, proof, sources, sinks });
            }
        }
        Ok(())
    }
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, of: &K, now: usize) {
    if now == 0 {
        counts.remove(of);
    } else {
        counts.insert(of.clone(), now);
    }
}

fn fits(does: bool) -> Result<(), Unfit> {
    if does { Ok(()) } else { Err(Unfit) }
}
