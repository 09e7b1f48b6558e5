//! The open channels, in places whose numbers stay the same.

use std::collections::BTreeMap;

use qfabric_types::Instant;
use qfabric_types::channel::ChannelId;

use super::channel::{Channel, Sink, Source};

/// The open channels with this host's sources and sinks.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    slots: Vec<Option<Channel>>,
    places: BTreeMap<ChannelId, u32>,
    /// The place of the channel of each source and sink of this host.
    sources: BTreeMap<u32, u32>,
    sinks: BTreeMap<u32, u32>,
}

impl Channels {
    /// Number of open channels.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn place(&self, id: &ChannelId) -> Option<u32> {
        self.places.get(id).copied()
    }

    pub(crate) fn at(&self, place: u32) -> Option<&Channel> {
        self.slots.get(place as usize)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, place: u32) -> Option<&mut Channel> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn find(&self, id: &ChannelId) -> Option<&Channel> {
        self.at(self.place(id)?)
    }

    pub(crate) fn find_mut(&mut self, id: &ChannelId) -> Option<&mut Channel> {
        self.at_mut(self.place(id)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.slots.iter_mut().flatten()
    }

    /// The place of the source's channel.
    pub(crate) fn of_source(&self, number: u32) -> Option<u32> {
        self.sources.get(&number).copied()
    }

    /// The place of the channel that remembers the source, which has left.
    pub(crate) fn of_departed(&self, number: u32) -> Option<u32> {
        let remembers = |channel: &Channel| channel.departed.contains_key(&number);
        let place = self.slots.iter().position(|slot| slot.as_ref().is_some_and(remembers))?;
        u32::try_from(place).ok()
    }

    /// The place of the sink's channel.
    pub(crate) fn of_sink(&self, number: u32) -> Option<u32> {
        self.sinks.get(&number).copied()
    }

    /// This host's sources, with the places of their channels.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sources.iter().map(|(number, place)| (*number, *place))
    }

    pub(crate) fn open(&mut self, channel: Channel) {
        let free = self.slots.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.places.insert((*channel.id).clone(), place as u32);
        self.slots[place] = Some(channel);
    }

    /// Removes a channel with all its sources and sinks.
    pub(crate) fn close(&mut self, place: u32) -> Option<Channel> {
        let channel = self.slots.get_mut(place as usize)?.take()?;
        self.places.remove(&*channel.id);
        self.sources.retain(|_, of| *of != place);
        self.sinks.retain(|_, of| *of != place);
        Some(channel)
    }

    pub(crate) fn add_source(&mut self, place: u32, number: u32, source: Source) {
        let Some(channel) = self.at_mut(place) else { return };
        channel.sources.insert(number, source);
        self.sources.insert(number, place);
    }

    pub(crate) fn add_sink(&mut self, place: u32, number: u32, sink: Sink) {
        let Some(channel) = self.at_mut(place) else { return };
        channel.sinks.insert(number, sink);
        self.sinks.insert(number, place);
    }

    /// Returns the source's channel.
    pub(crate) fn remove_source(&mut self, number: u32, now: Instant) -> Option<&Channel> {
        let place = self.sources.remove(&number)?;
        let channel = self.at_mut(place)?;
        if let Some(source) = channel.sources.remove(&number) {
            channel.depart(number, source, now);
        }
        Some(channel)
    }

    /// Returns the sink's channel.
    pub(crate) fn remove_sink(&mut self, number: u32) -> Option<&Channel> {
        let place = self.sinks.remove(&number)?;
        let channel = self.at_mut(place)?;
        channel.sinks.remove(&number);
        Some(channel)
    }
}
