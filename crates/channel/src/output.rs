//! What a node wants done, in the order in which it is to be done.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

use crate::{Notice, SinkId, SourceId};

/// By which of the two connections between hosts a frame goes, so that bulk never delays control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Events of the quality plane, announcements, reports: delivered, unless the host is gone.
    Control,
    /// Events of the data plane: dropped where a connection is full.
    Data,
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

/// One thing that a node wants done; see [`crate::Node::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output<'a> {
    /// Send a frame. One that cannot be sent is dropped, and found by its number.
    Send {
        /// To whom.
        to: Destination<'a>,
        /// By which connection.
        lane: Lane,
        /// At most 256 KiB.
        frame: &'a [u8],
    },
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
    queue: VecDeque<Entry>,
    /// Frames, one behind the other; emptied when the queue is empty.
    frames: Vec<u8>,
    /// Whose names the last output lends.
    to: To,
}

/// An output as it is kept.
#[derive(Debug)]
enum Entry {
    /// A frame, which begins and ends there in [`Outputs::frames`].
    Send(To, Lane, usize, usize),
    Listen(ChannelId),
    Ignore(ChannelId),
    Ready(SinkId),
    Writable(SourceId),
    Notice(Notice),
}

/// As [`Destination`]; naming a host or a channel of a roster takes no memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum To {
    #[default]
    Everyone,
    Channel(Arc<ChannelId>),
    Host(Arc<Name>),
}

impl Outputs {
    pub fn send(&mut self, to: To, lane: Lane, frame: &[u8]) {
        let from = self.frames.len();
        self.frames.extend_from_slice(frame);
        self.queue.push_back(Entry::Send(to, lane, from, self.frames.len()));
    }

    pub fn listen(&mut self, channel: &ChannelId) {
        self.queue.push_back(Entry::Listen(channel.clone()));
    }

    pub fn ignore(&mut self, channel: &ChannelId) {
        self.queue.push_back(Entry::Ignore(channel.clone()));
    }

    pub fn ready(&mut self, sink: SinkId) {
        self.queue.push_back(Entry::Ready(sink));
    }

    pub fn writable(&mut self, source: SourceId) {
        self.queue.push_back(Entry::Writable(source));
    }

    pub fn notice(&mut self, notice: Notice) {
        self.queue.push_back(Entry::Notice(notice));
    }

    /// The next one.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        let Some(entry) = self.queue.pop_front() else {
            self.frames.clear();
            self.frames.shrink_to(KEPT_BYTES);
            return None;
        };
        Some(match entry {
            Entry::Send(to, lane, from, end) => {
                self.to = to;
                Output::Send { to: self.to.lend(), lane, frame: &self.frames[from..end] }
            }
            Entry::Listen(channel) => Output::Listen(channel),
            Entry::Ignore(channel) => Output::Ignore(channel),
            Entry::Ready(sink) => Output::Ready(sink),
            Entry::Writable(source) => Output::Writable(source),
            Entry::Notice(notice) => Output::Notice(notice),
        })
    }
}

impl To {
    fn lend(&self) -> Destination<'_> {
        match self {
            To::Everyone => Destination::Everyone,
            To::Channel(channel) => Destination::Channel(channel),
            To::Host(host) => Destination::Host(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_in_order_and_their_memory_is_used_again() {
        let mut outputs = Outputs::default();
        let host = Arc::new("h1".parse::<Name>().unwrap());
        for round in 0..3 {
            outputs.send(To::Host(host.clone()), Lane::Data, &[round; 5]);
            outputs.ready(SinkId(7));
            outputs.send(To::Everyone, Lane::Control, b"all");
            let to = Destination::Host(&host);
            assert_eq!(outputs.poll(), Some(Output::Send { to, lane: Lane::Data, frame: &[round; 5] }));
            assert_eq!(outputs.poll(), Some(Output::Ready(SinkId(7))));
            let (to, lane) = (Destination::Everyone, Lane::Control);
            assert_eq!(outputs.poll(), Some(Output::Send { to, lane, frame: b"all" }));
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
