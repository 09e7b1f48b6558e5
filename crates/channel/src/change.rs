//! One change of a host's record: hosts send changes to each other, and a whole record is a list of changes to an empty
//! one.

use qfabric_types::channel::ChannelId;

use crate::{Origin, Proof, Registration, RegistrationId, SinkId, SinkInfo, SourceId, SourceInfo, Spec};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The proof belongs to the origin.
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
