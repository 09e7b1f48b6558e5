//! What a node wants: from the engine, and from this process.

use std::collections::BTreeSet;

use qfabric_channel::{Destination, Event, Lane, Notice, Port, SinkId, SourceId};
use qfabric_types::channel::ChannelId;

use super::Listener;
use crate::Engine;

/// To both. Without an engine what is sent is lost, as if the cable were cut.
pub(super) struct EnginePort<'a> {
    pub engine: Option<&'a dyn Engine>,
    pub wanted: &'a mut BTreeSet<ChannelId>,
    pub listener: &'a dyn Listener,
    /// Whether a frame's arrival is handled.
    pub is_arrival: bool,
}

impl Port for EnginePort<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        if let Some(engine) = self.engine {
            engine.send(to, lane, frame);
        }
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.wanted.insert(channel.clone());
        if let Some(engine) = self.engine {
            engine.listen(channel);
        }
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.wanted.remove(channel);
        if let Some(engine) = self.engine {
            engine.ignore(channel);
        }
    }

    fn deliver(&mut self, sink: SinkId, event: &Event<'_>) {
        self.listener.deliver(sink, event);
    }

    fn ready(&mut self, sink: SinkId) {
        match self.is_arrival {
            true => self.listener.ready_by_arrival(sink),
            false => self.listener.ready(sink),
        }
    }

    fn writable(&mut self, source: SourceId) {
        self.listener.writable(source);
    }

    fn notice(&mut self, notice: Notice) {
        self.listener.notice(notice);
    }
}

/// Before there is an engine: only questions are asked.
pub(super) struct Deaf;

impl Port for Deaf {
    fn send(&mut self, _to: Destination<'_>, _lane: Lane, _frame: &[u8]) {}
    fn listen(&mut self, _channel: &ChannelId) {}
    fn ignore(&mut self, _channel: &ChannelId) {}
    fn deliver(&mut self, _sink: SinkId, _event: &Event<'_>) {}
    fn ready(&mut self, _sink: SinkId) {}
    fn writable(&mut self, _source: SourceId) {}
    fn notice(&mut self, _notice: Notice) {}
}
