//! The outputs of a node: frames to send and notices, in the order in which they have to be carried out.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

use crate::{Notice, SinkId, SourceId};

/// The connection and the queue by which a frame goes to another host. Control frames have a connection of their own,
/// so that bulk data never delays them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Events of the quality plane, announcements, reports: delivered, unless the host is gone.
    Control,
    /// Events of the data plane: dropped if the connection's queue is full.
    Data,
    /// Events of channels that block. They use the connection of the data lane, behind the frames that wait there. The
    /// node keeps the bytes under way below what the connection holds, so that no frame is dropped.
    Bulk,
}

/// The receivers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DestinationRef<'a> {
    Everyone,
    /// Every other host that listens to the channel ([`Output::Listen`]).
    Channel(&'a ChannelId),
    Host(&'a Name),
}

/// A [`DestinationRef`] that owns its names. Naming a host or a channel that has members allocates no memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    Everyone,
    /// Every other host that listens to the channel.
    Channel(Arc<ChannelId>),
    Host(Arc<Name>),
}

impl Destination {
    /// The borrowed form, for an engine.
    pub fn as_ref(&self) -> DestinationRef<'_> {
        match self {
            Destination::Everyone => DestinationRef::Everyone,
            Destination::Channel(channel) => DestinationRef::Channel(channel),
            Destination::Host(host) => DestinationRef::Host(host),
        }
    }
}

/// The position of a frame's bytes; see [`crate::Node::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(Place);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the memory of all short frames.
    Among { from: usize, end: usize },
    /// In memory of its own: the number of the long frame.
    Own(usize),
}

/// One action for the caller to carry out; see [`crate::Node::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a frame. A frame that cannot be sent is dropped; receivers notice the gap by its number.
    Send(Destination, Lane, Frame),
    /// Frames for the channel are wanted on this host from now on.
    Listen(ChannelId),
    /// Frames for the channel are no longer wanted on this host.
    Ignore(ChannelId),
    /// The queue of a sink was empty and now has an event: wake the thread that waits for it.
    Ready(SinkId),
    /// A source that got [`crate::SubmitError::WouldBlock`] may try again.
    Writable(SourceId),
    /// Bytes of another host's program for the program that runs this node ([`crate::Node::tell`]).
    Private(Name, Vec<u8>),
    Notice(Notice),
}

/// The memory of frames that is kept for later frames, in bytes: of all short frames, and again of all long ones.
const KEPT_BYTES: usize = 256 << 10;
/// A frame of this number of bytes is long: an engine can take its memory, which is cheaper than a copy.
pub(crate) const LONG: usize = 4 << 10;

/// Outputs that [`crate::Node::poll`] has not returned yet. Their memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    queue: VecDeque<Output>,
    /// The bytes of all short frames, one behind the other; cleared when all outputs have been polled.
    frames: Vec<u8>,
    /// The long frames; emptied when all outputs have been polled.
    long: Vec<Arc<Vec<u8>>>,
    /// Empty memory for later long frames, which nobody else has, and its bytes.
    spare: Vec<Arc<Vec<u8>>>,
    spare_bytes: usize,
}

impl Outputs {
    /// `write` appends the frame to the bytes of the frames before it. Returns its length.
    pub(crate) fn send(&mut self, to: Destination, lane: Lane, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let from = self.frames.len();
        write(&mut self.frames);
        let end = self.frames.len();
        self.queue.push_back(Output::Send(to, lane, Frame(Place::Among { from, end })));
        end - from
    }

    /// Like [`Outputs::send`], for a frame in memory of its own.
    pub(crate) fn send_long(&mut self, to: Destination, lane: Lane, frame: Arc<Vec<u8>>) -> usize {
        let length = frame.len();
        self.queue.push_back(Output::Send(to, lane, Frame(Place::Own(self.long.len()))));
        self.long.push(frame);
        length
    }

    /// A long frame that `write` appends to empty memory; earlier memory is used again.
    pub(crate) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Arc<Vec<u8>> {
        let mut frame = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= frame.capacity();
        write(Arc::make_mut(&mut frame));
        frame
    }

    /// Keeps a frame's memory, if nobody else has it.
    fn give_back(&mut self, mut frame: Arc<Vec<u8>>) {
        let Some(bytes) = Arc::get_mut(&mut frame) else { return };
        if self.spare_bytes + bytes.capacity() <= KEPT_BYTES {
            bytes.clear();
            self.spare_bytes += bytes.capacity();
            self.spare.push(frame);
        }
    }

    pub(crate) fn listen(&mut self, channel: &ChannelId) {
        self.queue.push_back(Output::Listen(channel.clone()));
    }

    pub(crate) fn ignore(&mut self, channel: &ChannelId) {
        self.queue.push_back(Output::Ignore(channel.clone()));
    }

    pub(crate) fn ready(&mut self, sink: SinkId) {
        self.queue.push_back(Output::Ready(sink));
    }

    pub(crate) fn writable(&mut self, source: SourceId) {
        self.queue.push_back(Output::Writable(source));
    }

    pub(crate) fn private(&mut self, from: &Name, bytes: &[u8]) {
        self.queue.push_back(Output::Private(from.clone(), bytes.to_vec()));
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.queue.push_back(Output::Notice(notice));
    }

    /// `None`: there are no more outputs, and the bytes of earlier frames are gone.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.frames.clear();
            self.frames.shrink_to(KEPT_BYTES);
            while let Some(frame) = self.long.pop() {
                self.give_back(frame);
            }
        }
        next
    }

    pub(crate) fn frame(&self, frame: Frame) -> &[u8] {
        match frame.0 {
            Place::Among { from, end } => &self.frames[from..end],
            Place::Own(number) => &self.long[number],
        }
    }

    /// The memory of a long frame.
    pub(crate) fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        match frame.0 {
            Place::Among { .. } => None,
            Place::Own(number) => Some(&self.long[number]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_in_order_and_their_memory_is_used_again() {
        let mut outputs = Outputs::default();
        let to = Destination::Host(Arc::new("h1".parse().unwrap()));
        for round in 0..3 {
            outputs.send(to.clone(), Lane::Data, |frames| frames.extend([round; 5]));
            outputs.ready(SinkId(7));
            assert_eq!(outputs.send(Destination::Everyone, Lane::Control, |frames| frames.extend(b"all")), 3);
            let Some(Output::Send(first, Lane::Data, frame)) = outputs.poll() else { panic!("a frame is first") };
            assert_eq!((first, outputs.frame(frame)), (to.clone(), &[round; 5][..]));
            assert_eq!(outputs.poll(), Some(Output::Ready(SinkId(7))));
            let Some(Output::Send(Destination::Everyone, Lane::Control, frame)) = outputs.poll() else {
                panic!("then another")
            };
            assert_eq!(outputs.frame(frame), b"all");
            assert_eq!(outputs.poll(), None);
            assert!(outputs.frames.is_empty() && outputs.frames.capacity() <= 64);
        }
    }

    #[test]
    fn memory_of_long_frames_is_used_again_unless_somebody_has_it() {
        let (mut outputs, mut taken) = (Outputs::default(), Vec::new());
        let mut round = |takes: bool| {
            let frame = outputs.written(|frame| frame.extend([7; 2 * LONG]));
            let at = frame.as_ptr();
            outputs.send_long(Destination::Everyone, Lane::Data, frame);
            let Some(Output::Send(.., frame)) = outputs.poll() else { panic!("a frame") };
            let memory = outputs.memory(frame).expect("a long frame");
            assert_eq!(outputs.frame(frame), &[7; 2 * LONG]);
            taken.extend(takes.then(|| memory.clone()));
            assert_eq!(outputs.poll(), None);
            at
        };
        let first = round(false);
        assert_eq!([round(false), round(true)], [first; 2]);
        assert_ne!(round(false), first);
        assert_eq!(*taken[0], [7; 2 * LONG]);
    }

    #[test]
    fn memory_of_a_flood_is_given_back() {
        let mut outputs = Outputs::default();
        let send = |frames: &mut Vec<u8>| frames.extend([0; 64 << 10]);
        (0..100).for_each(|_| _ = outputs.send(Destination::Everyone, Lane::Control, send));
        (0..100).for_each(|_| {
            let frame = outputs.written(send);
            outputs.send_long(Destination::Everyone, Lane::Data, frame);
        });
        while outputs.poll().is_some() {}
        assert!(outputs.frames.capacity() <= KEPT_BYTES);
        let spare = outputs.spare.iter().map(|frame| frame.capacity()).sum::<usize>();
        assert!(outputs.long.is_empty() && spare == outputs.spare_bytes && spare <= KEPT_BYTES);
    }
}
