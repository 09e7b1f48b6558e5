//! What all hosts have told of themselves.

use std::collections::BTreeMap;

use qfabric_types::channel::{ChannelId, Name};

use crate::{Incarnation, Origin, Registration, RegistrationId, SinkId, SinkInfo, SourceId, SourceInfo, Spec};

/// All hosts, this one included.
#[derive(Debug, Default)]
pub struct Directory {
    pub(crate) hosts: BTreeMap<Name, HostRecord>,
}

/// What one host has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    /// Which start of it.
    pub incarnation: Incarnation,
    /// How many changes it has told.
    pub version: u64,
    /// The channels it holds.
    pub channels: BTreeMap<ChannelId, Held>,
    /// Its applications in groups.
    pub registrations: BTreeMap<RegistrationId, Registration>,
}

/// A channel as one host holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The creation that it goes back to.
    pub origin: Origin,
    /// What it is.
    pub spec: Spec,
    /// The host's sources.
    pub sources: BTreeMap<SourceId, SourceInfo>,
    /// The host's sinks.
    pub sinks: BTreeMap<SinkId, SinkInfo>,
}

/// A channel as all hosts together hold it.
#[derive(Clone, Copy, Debug)]
pub struct ChannelView<'a> {
    /// The creation that stands.
    pub origin: &'a Origin,
    /// What it is.
    pub spec: &'a Spec,
    /// How many hosts hold it.
    pub hosts: usize,
    /// How many sources it has.
    pub sources: usize,
    /// How many sinks it has.
    pub sinks: usize,
}

impl Directory {
    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (&Name, &HostRecord)> {
        self.hosts.iter()
    }

    /// One host.
    pub fn host(&self, name: &Name) -> Option<&HostRecord> {
        self.hosts.get(name)
    }

    /// Who holds a channel, and how.
    pub fn holders<'a>(&'a self, channel: &'a ChannelId) -> impl Iterator<Item = (&'a Name, &'a Held)> {
        self.hosts.iter().filter_map(move |(name, host)| Some((name, host.channels.get(channel)?)))
    }

    /// A channel.
    pub fn channel(&self, channel: &ChannelId) -> Option<ChannelView<'_>> {
        let _ = channel;
        unimplemented!()
    }

    /// All channels.
    pub fn channels(&self) -> Vec<&ChannelId> {
        unimplemented!()
    }

    /// All groups with their members.
    pub fn groups(&self) -> BTreeMap<&Name, Vec<(&Name, &Registration)>> {
        unimplemented!()
    }
}
