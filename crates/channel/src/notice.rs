//! What happened that somebody may want to know.

use qfabric_types::channel::{ChannelId, Name};

use crate::{Action, Incarnation, MemberId, Origin, Registration, RequestId, SinkInfo, SourceInfo, Spot};

/// Something happened. Notices are for the daemon, the manager and people; events are for sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A host is there.
    HostAppeared(Name, Incarnation),
    /// A host is gone, with all its members.
    HostVanished(Name),
    /// This host holds a channel that it did not hold before; a data channel's Q-channel comes with it.
    Opened(ChannelId),
    /// This host holds it no longer.
    Closed(ChannelId),
    /// A source joined, here or elsewhere.
    SourceJoined(ChannelId, MemberId, SourceInfo),
    /// It left, or its host did.
    SourceLeft(ChannelId, MemberId),
    /// A sink joined, here or elsewhere.
    SinkJoined(ChannelId, MemberId, SinkInfo),
    /// Its attributes changed.
    SinkChanged(ChannelId, MemberId, SinkInfo),
    /// It left, or its host did.
    SinkLeft(ChannelId, MemberId),
    /// An application joined a group, here or elsewhere.
    Registered(Name, Registration),
    /// It left.
    Unregistered(Name, Registration),
    /// Two hosts created the same name with different specifications; this host's members of the later one have been
    /// ended.
    DuplicateName {
        /// Which.
        channel: ChannelId,
        /// The creation that stands.
        stands: Origin,
    },
    /// The other's protocol cannot be read here; one of the two has to be brought up to date.
    OtherVersion {
        /// Who.
        host: Name,
        /// Its version.
        theirs: u8,
        /// This node's.
        ours: u8,
    },
    /// Another host wanted what the policy does not allow.
    Forbidden {
        /// Who.
        host: Name,
        /// What.
        action: Action,
        /// Where.
        channel: ChannelId,
        /// By which rule.
        why: String,
    },
    /// New rules do not allow it to this host any more: its sources or its sinks on the channel, or with `Create` (which its
    /// creator may not any more) all it had there, have been ended.
    Revoked {
        /// Where.
        channel: ChannelId,
        /// What.
        action: Action,
    },
    /// Another host's answer to what was shipped to it.
    Answered {
        /// What was asked.
        request: RequestId,
        /// Who answers.
        host: Name,
        /// Done, or why not.
        result: Result<(), String>,
    },
    /// A filter was installed, replaced or removed for another host.
    FilterChanged {
        /// Which.
        spot: Spot,
        /// By whom.
        author: Name,
    },
    /// A filter faulted for the first time since it was installed; its events go to nobody.
    FilterFaulted {
        /// Which.
        spot: Spot,
        /// The fault, with its line.
        fault: String,
    },
}
