//! One step of a host's record: what a host tells of itself, and what makes its record of an empty one.

use qfabric_types::channel::ChannelId;

use crate::{Origin, Proof, Registration, RegistrationId, SinkId, SinkInfo, SourceId, SourceInfo, Spec};

/// One step of a host's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The proof is that of the origin.
    Hold(ChannelId, Origin, Spec, Proof),
    Release(ChannelId),
    Source(ChannelId, SourceId, SourceInfo),
    SourceGone(ChannelId, SourceId),
    Sink(ChannelId, SinkId, SinkInfo),
    SinkGone(ChannelId, SinkId),
    Register(RegistrationId, Registration),
    Unregister(RegistrationId),
}

impl Change {
    /// The channel that it is about.
    pub(crate) fn channel(&self) -> Option<&ChannelId> {
        match self {
            Change::Hold(channel, ..)
            | Change::Release(channel)
            | Change::Source(channel, ..)
            | Change::SourceGone(channel, ..)
            | Change::Sink(channel, ..)
            | Change::SinkGone(channel, ..) => Some(channel),
            Change::Register(..) | Change::Unregister(..) => None,
        }
    }
}
