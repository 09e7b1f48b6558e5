//! Notices: changes of hosts, channels, members and filters that the daemon reports to managers and users.

use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

use crate::{Action, FilterId, Incarnation, MemberId, Origin, Payer, Registration, RequestId, SinkInfo, SourceInfo};

/// A notice is for the daemon, the manager and users; an event is for sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    HostAppeared(Name, Incarnation),
    /// A host is gone, with all its members.
    HostVanished(Name),
    /// This host now holds a channel that it did not hold before; a data channel's Q-channel is opened with it.
    Opened(ChannelId),
    /// This host no longer holds the channel.
    Closed(ChannelId),
    /// A source joined, on any host.
    SourceJoined(ChannelId, MemberId, SourceInfo),
    /// A source left, or its host did.
    SourceLeft(ChannelId, MemberId),
    /// A sink joined, on any host.
    SinkJoined(ChannelId, MemberId, SinkInfo),
    /// A sink's attributes changed.
    SinkChanged(ChannelId, MemberId, SinkInfo),
    /// A sink left, or its host did.
    SinkLeft(ChannelId, MemberId),
    /// An application joined a group, on any host.
    Registered(Name, Registration),
    /// An application left a group.
    Unregistered(Name, Registration),
    /// Two hosts created the same name with different specifications; this host's members of the later creation have
    /// been removed.
    DuplicateName {
        channel: ChannelId,
        /// The creation that won.
        stands: Origin,
    },
    /// This host cannot read the other host's protocol; one of the two has to be updated.
    OtherVersion {
        host: Name,
        theirs: u8,
        ours: u8,
    },
    /// Another host requested something the policy does not allow.
    Forbidden {
        host: Name,
        action: Action,
        channel: ChannelId,
        /// The rule, and the place in which it is written.
        why: String,
    },
    /// New rules no longer allow this host the action: its sources or its sinks on the channel have been removed. With
    /// `Create` the channel's creator is no longer allowed to create it, and this host has left the channel.
    Revoked {
        channel: ChannelId,
        action: Action,
    },
    /// Another host's answer to a command about its filters.
    Answered {
        request: RequestId,
        host: Name,
        /// `Err` has the reason.
        result: Result<(), String>,
    },
    /// A filter was installed, replaced or removed by another host.
    FilterChanged {
        id: FilterId,
        /// The host that requested it.
        author: Name,
    },
    /// A filter faulted for the first time since it was installed; events on which it faults go to no sink.
    FilterFaulted {
        id: FilterId,
        /// The fault, with its line in the text.
        fault: String,
    },
    /// The filters of a user or of another host executed more instructions than the rate allows. Until the
    /// rate covers the instructions, they drop the events of senders that caused the mean of all senders or more.
    FiltersSuspended {
        payer: Payer,
        lasts: Nanos,
    },
}
