//! What a node wants done, and by which way.

use qfabric_types::channel::{ChannelId, Name};

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

/// Carries out what a node decides. Calls return at once; what cannot be sent is dropped, and found by its number.
pub trait Port {
    /// Sends a frame.
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]);

    /// From now on frames for the channel are wanted here.
    fn listen(&mut self, channel: &ChannelId);

    /// Frames for the channel are no longer wanted here.
    fn ignore(&mut self, channel: &ChannelId);
}
