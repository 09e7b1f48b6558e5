//! What a node wants done, and by which way.

use qfabric_types::channel::{ChannelId, Name};

use crate::{Event, Notice, SinkId, SourceId};

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
    /// Every other host that listens to the channel ([`Port::listen`]).
    Channel(&'a ChannelId),
    /// One host.
    Host(&'a Name),
}

/// Carries out what a node decides. Calls return at once and do not call the node; what cannot be sent is dropped, and
/// found by its number.
pub trait Port {
    /// Sends a frame.
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]);

    /// From now on frames for the channel are wanted here.
    fn listen(&mut self, channel: &ChannelId);

    /// Frames for the channel are no longer wanted here.
    fn ignore(&mut self, channel: &ChannelId);

    /// An event for a sink that asked to be called ([`crate::Delivery::Call`]).
    fn deliver(&mut self, sink: SinkId, event: &Event<'_>);

    /// The queue of a sink was empty and is no longer: whoever waits for it can be woken.
    fn ready(&mut self, sink: SinkId);

    /// A source that was told to wait ([`crate::SubmitError::WouldBlock`]) may try again.
    fn writable(&mut self, source: SourceId);

    /// Something happened that applications, the manager or people may want to know.
    fn notice(&mut self, notice: Notice);
}
