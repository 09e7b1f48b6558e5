//! Counters of filters and of the node, and the outcomes of events at a sink.

pub use qfabric_types::api::channel::{SinkCounts, SourceCounts};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCounts {
    pub calls: u64,
    /// Calls after which no sink was left.
    pub blocked: u64,
    /// Calls that faulted; the event of such a call goes to no sink.
    pub faults: u64,
    /// Sinks that did not fit the filter's table and therefore did not receive the event.
    pub beyond: u64,
    /// Events that were dropped without a call, because the filters of its payer executed too many instructions.
    #[serde(default)]
    pub skipped: u64,
}

/// Counters of the accounts of all filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuspensionCounts {
    /// Times that the filters of a user or host were suspended.
    pub suspensions: u64,
    /// Events that a suspended filter dropped, once for each such filter.
    pub skipped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    pub frames_out: u64,
    pub frames_in: u64,
    /// Frames that could not be parsed.
    pub malformed: u64,
    /// Frames of another major version of the protocol.
    pub other_version: u64,
    /// Frames of hosts that are not present, or of an earlier incarnation of a host.
    pub stranger: u64,
    /// Frames that requested something the policy does not allow.
    pub forbidden: u64,
    /// Events of sources that have not welcomed any sink here yet.
    pub unwelcome: u64,
    /// Events that came twice, or after a later event of the same source.
    pub out_of_order: u64,
    /// Large events that lost a fragment: each counts as a lost event at its sinks.
    #[serde(default)]
    pub incomplete: u64,
    /// Events that do not match the channel's formats.
    pub mismatched: u64,
    /// Times that changes of another host were missing and were requested again.
    pub gaps: u64,
    /// Changes that were ignored because they exceed a limit.
    pub beyond_limit: u64,
    /// Bundles sent: frames that carry several frames.
    #[serde(default)]
    pub bundles_out: u64,
    /// Frames that arrived in bundles.
    #[serde(default)]
    pub combined: u64,
    /// Frames of other hosts that this host passed on in bundles, once for each receiver.
    #[serde(default)]
    pub passed_on: u64,
    /// Frames of other hosts for a host that is not present here, or that cannot read bundles.
    #[serde(default)]
    pub undelivered: u64,
}

/// Number of events at a sink by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub delivered: u64,
    pub filtered: u64,
    pub dropped: u64,
    pub late: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    Filtered,
    Dropped,
    Late,
}

impl Fates {
    pub(crate) fn book(&mut self, fate: Fate) {
        *match fate {
            Fate::Delivered => &mut self.delivered,
            Fate::Filtered => &mut self.filtered,
            Fate::Dropped => &mut self.dropped,
            Fate::Late => &mut self.late,
        } += 1;
    }

    /// Saturating, because another host may report any number.
    pub(crate) fn sum(&self) -> u64 {
        self.each().into_iter().fold(0, u64::saturating_add)
    }

    /// An outcome is final, so no number may fall in a later report; only delivered events may still turn out to have
    /// been late.
    pub(crate) fn has_grown_from(&self, before: &Fates) -> bool {
        let handed = |fates: &Fates| fates.delivered.saturating_add(fates.late);
        let lasting = |fates: &Fates| [handed(fates), fates.late, fates.filtered, fates.dropped];
        lasting(self).iter().zip(lasting(before)).all(|(now, before)| *now >= before)
    }

    /// Moves up to `events` events from delivered to late; returns how many were moved.
    pub(crate) fn turn_late(&mut self, events: u64) -> u64 {
        let events = events.min(self.delivered);
        self.delivered -= events;
        self.late += events;
        events
    }

    fn each(&self) -> [u64; 4] {
        [self.delivered, self.filtered, self.dropped, self.late]
    }

    pub(crate) fn add_to(&self, counts: &mut SourceCounts) {
        counts.delivered += self.delivered;
        counts.filtered += self.filtered;
        counts.dropped += self.dropped;
        counts.late += self.late;
    }
}
