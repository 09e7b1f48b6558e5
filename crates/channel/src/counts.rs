//! What was counted.

pub use qfabric_types::api::channel::{SinkCounts, SourceCounts};
use serde::{Deserialize, Serialize};

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
    /// Large events of which a fragment was lost: each is a lost event of its sinks.
    #[serde(default)]
    pub incomplete: u64,
    /// Events that are not of the channel's formats.
    pub mismatched: u64,
    /// Changes of other hosts that were missed and asked for again.
    pub gaps: u64,
    /// Changes beyond a limit.
    pub beyond_limit: u64,
}

/// What became of events at a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub delivered: u64,
    pub filtered: u64,
    pub dropped: u64,
    pub late: u64,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    Filtered,
    Dropped,
    Late,
}

impl Fates {
    pub fn book(&mut self, fate: Fate) {
        *match fate {
            Fate::Delivered => &mut self.delivered,
            Fate::Filtered => &mut self.filtered,
            Fate::Dropped => &mut self.dropped,
            Fate::Late => &mut self.late,
        } += 1;
    }

    /// What a host says of itself may be anything.
    pub fn sum(&self) -> u64 {
        self.each().into_iter().fold(0, u64::saturating_add)
    }

    /// What became of an event stays so, whatever a host says; only what was delivered may turn out to have been late.
    pub fn has_grown_from(&self, before: &Fates) -> bool {
        let handed = |fates: &Fates| fates.delivered.saturating_add(fates.late);
        let lasting = |fates: &Fates| [handed(fates), fates.late, fates.filtered, fates.dropped];
        lasting(self).iter().zip(lasting(before)).all(|(now, before)| *now >= before)
    }

    /// So many of those that were delivered were late; how many there were.
    pub fn turn_late(&mut self, events: u64) -> u64 {
        let events = events.min(self.delivered);
        self.delivered -= events;
        self.late += events;
        events
    }

    fn each(&self) -> [u64; 4] {
        [self.delivered, self.filtered, self.dropped, self.late]
    }

    pub fn add_to(&self, counts: &mut SourceCounts) {
        counts.delivered += self.delivered;
        counts.filtered += self.filtered;
        counts.dropped += self.dropped;
        counts.late += self.late;
    }
}
