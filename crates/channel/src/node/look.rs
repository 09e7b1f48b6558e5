//! Read access to a node's state.

use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

use super::Node;
use crate::delivery::Source;
use crate::{
    Action, ChannelView, Directory, Error, Incarnation, NodeCounts, SinkCounts, SinkId, SourceCounts, SourceId,
};

impl Node {
    pub fn host(&self) -> &Name {
        &self.config.host
    }

    pub fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    /// The records of all hosts, this host included.
    pub fn directory(&self) -> &Directory {
        &self.members.directory
    }

    /// A channel by the creation that won. If no creation is believed, by this host's own opening.
    pub fn channel(&self, channel: &ChannelId) -> Option<ChannelView> {
        let stands = self.members.standing(channel, &self.config).or_else(|| self.members.held(channel))?;
        Some(self.members.directory.view(channel, stands))
    }

    pub fn is_open(&self, channel: &ChannelId) -> bool {
        self.delivery.channels.place(channel).is_some()
    }

    /// Whether the channel has a sink on this host.
    pub fn has_sink(&self, channel: &ChannelId) -> bool {
        let channels = &self.delivery.channels;
        let channel = channels.place(channel).and_then(|place| channels.at(place));
        channel.is_some_and(|channel| !channel.sinks.is_empty())
    }

    /// Why this host's policy does not allow `host` the action; `None`: it may.
    pub fn refusal(&self, host: &Name, action: Action, channel: &ChannelId) -> Option<String> {
        self.config.refusal(host, action, channel)
    }

    pub fn channel_of_source(&self, source: SourceId) -> Option<&ChannelId> {
        let channels = &self.delivery.channels;
        channels.at(channels.of_source(source.0)?).map(|channel| &*channel.id)
    }

    pub fn channel_of_sink(&self, sink: SinkId) -> Option<&ChannelId> {
        let channels = &self.delivery.channels;
        channels.at(channels.of_sink(sink.0)?).map(|channel| &*channel.id)
    }

    pub fn source_counts(&self, source: SourceId) -> Result<SourceCounts, Error> {
        let channels = &self.delivery.channels;
        let channel = channels.of_source(source.0).and_then(|place| channels.at(place));
        let found = channel.and_then(|channel| channel.sources.get(&source.0));
        found.map(Source::counts).ok_or(Error::no_source(source))
    }

    pub fn sink_counts(&self, sink: SinkId) -> Result<SinkCounts, Error> {
        self.delivery.sink_counts(sink).ok_or(Error::no_sink(sink))
    }

    /// Counters of the whole node.
    pub fn counts(&self) -> &NodeCounts {
        &self.exit.counts
    }

    /// The other host's clock less this host's, in nanoseconds, and the largest error of this number. `None` until soon
    /// after the first event of that host.
    pub fn clock_offset(&self, host: &Name) -> Option<(i64, Nanos)> {
        self.delivery.clock_offset(host)
    }

    /// Checks that the parts of the node agree with each other; for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn assert_sound(&self) {
        self.delivery.assert_sound(&self.members.directory);
        self.members.directory.assert_sound();
    }
}
