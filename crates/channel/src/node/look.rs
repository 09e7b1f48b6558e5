//! What there is to see of a node.

use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

use super::Node;
use crate::delivery::Source;
use crate::{ChannelView, Directory, Error, Incarnation, NodeCounts, SinkCounts, SinkId, SourceCounts, SourceId};

impl Node {
    /// This host's name.
    pub fn host(&self) -> &Name {
        &self.config.host
    }

    /// Which start of it this is.
    pub fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    /// What all hosts have told of themselves, this one included.
    pub fn directory(&self) -> &Directory {
        &self.members.directory
    }

    /// A channel, by the creation that stands; where none is believed, by this host's own opening.
    pub fn channel(&self, channel: &ChannelId) -> Option<ChannelView> {
        let stands = self.members.standing(channel, &self.config).or_else(|| self.members.held(channel))?;
        Some(self.members.directory.view(channel, stands))
    }

    /// Whether a channel is open here.
    pub fn is_open(&self, channel: &ChannelId) -> bool {
        self.delivery.channels.place(channel).is_some()
    }

    /// The channel of a source of this host.
    pub fn channel_of_source(&self, source: SourceId) -> Option<&ChannelId> {
        let channels = &self.delivery.channels;
        channels.at(channels.of_source(source.0)?).map(|channel| &*channel.id)
    }

    /// The channel of a sink of this host.
    pub fn channel_of_sink(&self, sink: SinkId) -> Option<&ChannelId> {
        let channels = &self.delivery.channels;
        channels.at(channels.of_sink(sink.0)?).map(|channel| &*channel.id)
    }

    /// What was counted of a source.
    pub fn source_counts(&self, source: SourceId) -> Result<SourceCounts, Error> {
        let channels = &self.delivery.channels;
        let channel = channels.of_source(source.0).and_then(|place| channels.at(place));
        let found = channel.and_then(|channel| channel.sources.get(&source.0));
        found.map(Source::counts).ok_or(Error::no_source(source))
    }

    /// What was counted of a sink.
    pub fn sink_counts(&self, sink: SinkId) -> Result<SinkCounts, Error> {
        self.delivery.sink_counts(sink).ok_or(Error::no_sink(sink))
    }

    /// What was counted of all.
    pub fn counts(&self) -> &NodeCounts {
        &self.exit.counts
    }

    /// How far another host's clock is ahead of this one's in nanoseconds, and how far that may be off; none: not known.
    /// It becomes known soon after a host's first event.
    pub fn clock_offset(&self, host: &Name) -> Option<(i64, Nanos)> {
        self.delivery.clock_offset(host)
    }

    /// Whether what one part knows fits what another does; for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn assert_sound(&self) {
        self.delivery.assert_sound(&self.members.directory);
        self.members.directory.assert_sound();
    }
}
