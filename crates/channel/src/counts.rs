//! What was counted.

use serde::{Deserialize, Serialize};

/// Of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Events submitted.
    pub submitted: u64,
    /// Refused because their deadline had passed.
    pub late: u64,
    /// Sinks to which events were sent, one for each event.
    pub sent: u64,
    /// Sinks that OUT-filters passed over.
    pub filtered: u64,
    /// Sinks passed over because they were too slow.
    pub dropped: u64,
    /// Times it was told to wait.
    pub blocked: u64,
    /// Of those sent: delivered, as the sinks' hosts report.
    pub delivered: u64,
    /// Of those sent: lost on the way, as the sinks' hosts report.
    pub lost: u64,
    /// Of those sent: dropped, late or filtered there.
    pub refused: u64,
}

/// Of one sink. After quiet: `sent = delivered + filtered + dropped + late + lost + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkCounts {
    /// Sent to it, as far as the sources have said.
    pub sent: u64,
    /// Given to the application.
    pub delivered: u64,
    /// Passed over by IN-filters.
    pub filtered: u64,
    /// Dropped because its queue was full.
    pub dropped: u64,
    /// Dropped because their deadline had passed.
    pub late: u64,
    /// Lost on the way.
    pub lost: u64,
    /// In its queue now.
    pub queued: u64,
}

/// Of one filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCounts {
    /// Calls.
    pub calls: u64,
    /// Calls after which no sink was left.
    pub blocked: u64,
    /// Calls that faulted; such an event goes to nobody.
    pub faults: u64,
    /// Sinks that did not fit the filter's table and so got nothing.
    pub beyond: u64,
}

/// Of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Frames sent.
    pub frames_out: u64,
    /// Frames that arrived.
    pub frames_in: u64,
    /// Frames that were no frames.
    pub malformed: u64,
    /// Frames of another major version of the protocol.
    pub other_version: u64,
    /// Frames of hosts that are not there, or of an earlier start of one.
    pub stranger: u64,
    /// Frames that wanted what the policy does not allow.
    pub forbidden: u64,
    /// Events of sources that have not welcomed anybody here yet.
    pub unwelcome: u64,
    /// Events that came twice, or after a later one of the same source.
    pub out_of_order: u64,
    /// Events that are not of the channel's formats.
    pub mismatched: u64,
    /// Changes of other hosts that were missed and asked for again.
    pub gaps: u64,
    /// Changes beyond a limit.
    pub beyond_limit: u64,
}
