//! What there is to see of a node.

use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

use super::Node;
use super::channel::{Mode, Source, Totals};
use super::join::gone;
use crate::{Directory, Error, Incarnation, NodeCounts, SinkCounts, SinkId, SourceCounts, SourceId};

impl Node {
    /// This host's name.
    pub fn host(&self) -> &Name {
        &self.host
    }

    /// Which start of it this is.
    pub fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    /// What all hosts have told of themselves, this one included.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether a channel is open here.
    pub fn is_open(&self, channel: &ChannelId) -> bool {
        self.places.contains_key(channel)
    }

    /// The channel of a source of this host.
    pub fn channel_of_source(&self, source: SourceId) -> Option<&ChannelId> {
        self.at(*self.sources.get(&source.0)?).map(|channel| &*channel.id)
    }

    /// The channel of a sink of this host.
    pub fn channel_of_sink(&self, sink: SinkId) -> Option<&ChannelId> {
        self.at(*self.sinks.get(&sink.0)?).map(|channel| &*channel.id)
    }

    /// What was counted of a source.
    pub fn source_counts(&self, source: SourceId) -> Result<SourceCounts, Error> {
        let place = *self.sources.get(&source.0).ok_or(gone("source", source.0))?;
        let source = self.at(place).and_then(|channel| channel.sources.get(&source.0)).ok_or(gone("source", source.0));
        source.map(Source::counts)
    }

    /// What was counted of a sink.
    pub fn sink_counts(&self, id: SinkId) -> Result<SinkCounts, Error> {
        let place = *self.sinks.get(&id.0).ok_or(gone("sink", id.0))?;
        let sink = self.at(place).and_then(|channel| channel.sinks.get(&id.0)).ok_or(gone("sink", id.0))?;
        let Totals { fates, sent, lost } = sink.totals;
        let mut counts = SinkCounts {
            sent,
            delivered: fates.delivered,
            filtered: fates.filtered,
            dropped: fates.dropped,
            late: fates.late,
            lost,
            queued: match &sink.mode {
                Mode::Queue(queue) => queue.len() as u64,
                Mode::Bound(_) => 0,
            },
        };
        let inbound = self.peers.values().flat_map(|peer| peer.inbound.values());
        for entry in inbound.flat_map(|inbound| &inbound.entries).filter(|entry| entry.sink == id.0) {
            // What a source says of itself may be anything.
            counts.sent = counts.sent.saturating_add(entry.sent_at_least());
            counts.lost = counts.lost.saturating_add(entry.lost());
        }
        Ok(counts)
    }

    /// What was counted of all.
    pub fn counts(&self) -> &NodeCounts {
        &self.counts
    }

    /// How far another host's clock is ahead of this one's in nanoseconds, and how far that may be off; none: not known.
    /// It becomes known soon after a host's first event.
    pub fn clock_offset(&self, host: &Name) -> Option<(i64, Nanos)> {
        self.peers.get(host)?.clock.offset()
    }
}
