//! A port that remembers what a node sends, and how often it speaks.

use qfabric_channel::{Destination, Event, Lane, Notice, Port, SinkId, SourceId};
use qfabric_types::channel::ChannelId;

/// What a node wanted.
#[derive(Debug, Default)]
pub struct Ear {
    /// Frames to other hosts, with their lane.
    pub frames: Vec<(Lane, Vec<u8>)>,
    /// Events given to sinks.
    pub delivered: u64,
    /// What was told.
    pub notices: u64,
}

impl Port for Ear {
    fn send(&mut self, _: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.frames.push((lane, frame.to_vec()));
    }

    fn listen(&mut self, _: &ChannelId) {}

    fn ignore(&mut self, _: &ChannelId) {}

    fn deliver(&mut self, _: SinkId, _: &Event<'_>) {
        self.delivered += 1;
    }

    fn ready(&mut self, _: SinkId) {}

    fn writable(&mut self, _: SourceId) {}

    fn notice(&mut self, _: Notice) {
        self.notices += 1;
    }
}
