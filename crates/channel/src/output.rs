//! What a node wants done, in the order in which it is to be done.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

use crate::{Notice, SinkId, SourceId};

/// By which of the two connections between hosts a frame goes, so that bulk never delays control, and in which of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Events of the quality plane, announcements, reports: delivered, unless the host is gone.
    Control,
    /// Events of the data plane: dropped where a connection is full.
    Data,
    /// Those of channels that block: the node keeps what is under way within what a connection holds, so that none is dropped.
    /// By the connection of the data lane, behind what waits there.
    Bulk,
}

/// Who gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination<'a> {
    /// Every other host.
    Everyone,
    /// Every other host that listens to the channel ([`Output::Listen`]).
    Channel(&'a ChannelId),
    /// One host.
    Host(&'a Name),
}

/// A [`Destination`] as a node keeps it. Naming a host or a channel that has members takes no memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Every other host.
    Everyone,
    /// Every other host that listens to the channel.
    Channel(Arc<ChannelId>),
    /// One host.
    Host(Arc<Name>),
}

impl To {
    /// What an engine is told.
    pub fn destination(&self) -> Destination<'_> {
        match self {
            To::Everyone => Destination::Everyone,
            To::Channel(channel) => Destination::Channel(channel),
            To::Host(host) => Destination::Host(host),
        }
    }
}

/// Where the bytes of a frame are; see [`crate::Node::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    from: usize,
    end: usize,
}

/// One thing that a node wants done; see [`crate::Node::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a frame. One that cannot be sent is dropped, and found by its number.
    Send(To, Lane, Frame),
    /// From now on frames for the channel are wanted here.
    Listen(ChannelId),
    /// Frames for the channel are no longer wanted here.
    Ignore(ChannelId),
    /// The queue of a sink was empty and is no longer: whoever waits for it can be woken.
    Ready(SinkId),
    /// A source that was told to wait ([`crate::SubmitError::WouldBlock`]) may try again.
    Writable(SourceId),
    /// Something happened that applications, the manager or people may want to know.
    Notice(Notice),
}

/// Frames up to this size together are kept as memory for the next ones, in bytes.
const KEPT_BYTES: usize = 256 << 10;

/// The outputs of a node that nobody has asked for yet. Its memory is used again and again.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    queue: VecDeque<Output>,
    /// Frames, one behind the other; emptied when all outputs were asked for.
    frames: Vec<u8>,
}

impl Outputs {
    pub fn send(&mut self, to: To, lane: Lane, frame: &[u8]) {
        let from = self.frames.len();
        self.frames.extend_from_slice(frame);
        self.queue.push_back(Output::Send(to, lane, Frame { from, end: self.frames.len() }));
    }

    pub fn listen(&mut self, channel: &ChannelId) {
        self.queue.push_back(Output::Listen(channel.clone()));
    }

    pub fn ignore(&mut self, channel: &ChannelId) {
        self.queue.push_back(Output::Ignore(channel.clone()));
    }

    pub fn ready(&mut self, sink: SinkId) {
        self.queue.push_back(Output::Ready(sink));
    }

    pub fn writable(&mut self, source: SourceId) {
        self.queue.push_back(Output::Writable(source));
    }

    pub fn notice(&mut self, notice: Notice) {
        self.queue.push_back(Output::Notice(notice));
    }

    /// The next one. None: there is nothing more, and the frames before are gone.
    pub fn poll(&mut self) -> Option<Output> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.frames.clear();
            self.frames.shrink_to(KEPT_BYTES);
        }
        next
    }

    pub fn frame(&self, frame: Frame) -> &[u8] {
        &self.frames[frame.from..frame.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_in_order_and_their_memory_is_used_again() {
        let mut outputs = Outputs::default();
        let to = To::Host(Arc::new("h1".parse().unwrap()));
        for round in 0..3 {
            outputs.send(to.clone(), Lane::Data, &[round; 5]);
            outputs.ready(SinkId(7));
            outputs.send(To::Everyone, Lane::Control, b"all");
            let Some(Output::Send(first, Lane::Data, frame)) = outputs.poll() else { panic!("a frame is first") };
            assert_eq!((first, outputs.frame(frame)), (to.clone(), &[round; 5][..]));
            assert_eq!(outputs.poll(), Some(Output::Ready(SinkId(7))));
            let Some(Output::Send(To::Everyone, Lane::Control, frame)) = outputs.poll() else { panic!("then another") };
            assert_eq!(outputs.frame(frame), b"all");
            assert_eq!(outputs.poll(), None);
            assert!(outputs.frames.is_empty() && outputs.frames.capacity() <= 64);
        }
    }

    #[test]
    fn memory_of_a_flood_is_given_back() {
        let mut outputs = Outputs::default();
        (0..100).for_each(|_| outputs.send(To::Everyone, Lane::Control, &[0; 64 << 10]));
        while outputs.poll().is_some() {}
        assert!(outputs.frames.capacity() <= KEPT_BYTES);
    }
}
