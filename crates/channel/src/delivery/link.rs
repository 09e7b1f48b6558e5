//! The state for one other host: events that arrive from it, and events under way to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::assembly::Assembly;
use super::clock::Clock;
use super::flow::Flow;
use super::pipe::Pipe;
use crate::counts::Fates;
use crate::queue::Waiting;
use crate::wire::Reported;
use crate::{Lane, Limits};

/// Another host that has sent a frame.
#[derive(Debug)]
pub(crate) struct Link {
    /// A value of its own for each incarnation and each meeting: events in queues point to the one they came with.
    pub name: Arc<Name>,
    pub incarnation: u64,
    /// The host's number of its meeting with this one; 0: it has not told one.
    pub meeting: u64,
    /// The host's sources that have welcomed sinks here.
    pub inbound: BTreeMap<u32, Inbound>,
    /// The host's sources that have left, and until when their events are accepted.
    pub leaving: BTreeMap<u32, Instant>,
    /// Source and sink of the last event that was taken on a channel that blocks and not reported at once. Its report
    /// goes with the answer to the next ping.
    pub taken: Option<(u32, u32)>,
    pub clock: Clock,
    /// The data lane and the bulk lane: see [`Way::place`].
    pub ways: [Way; 2],
}

/// Events on one lane between this host and another.
#[derive(Debug)]
pub(crate) struct Way {
    pub lane: Lane,
    /// The events under way that have deadlines or must not be lost.
    pub flow: Flow,
    /// The frames that wait until those have arrived.
    pub pipe: Pipe,
    /// The fragments that have arrived.
    pub assembly: Assembly,
}

impl Way {
    fn new(lane: Lane) -> Way {
        let window = if lane == Lane::Bulk { Limits::BULK_UNDER_WAY } else { Limits::UNDER_WAY };
        Way { lane, flow: Flow::new(window), pipe: Pipe::default(), assembly: Assembly::default() }
    }

    pub(super) fn place(lane: Lane) -> usize {
        usize::from(lane == Lane::Bulk)
    }

    /// The time that a ping on this lane carries.
    pub(super) fn stamp(&self, now: Instant) -> Instant {
        stamp(self.lane, now)
    }
}

/// Pings of one instant differ in their two lowest bits, because all are answered on the control lane: 0 is a ping for the
/// clock, and the others follow events on their lanes.
const TAG: u64 = 3;

/// The time that a ping on this lane carries.
pub(super) fn stamp(lane: Lane, now: Instant) -> Instant {
    let tag = match lane {
        Lane::Control => 0,
        Lane::Data => 1,
        Lane::Bulk => 2,
    };
    Instant::new(now.get() & !TAG | tag)
}

/// The lane of a ping that carried this time. `None`: it is not a ping of this host.
pub(super) fn stamped(at: Instant) -> Option<Lane> {
    [Lane::Control, Lane::Data, Lane::Bulk].into_iter().find(|lane| stamp(*lane, at) == at)
}

/// A source of another host.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// The channel's place in the node.
    pub slot: u32,
    /// The last event that arrived or was marked.
    pub last: u64,
    /// The last event of the last mark.
    pub marked: u64,
    /// The sending time of its latest event by this host's clock. Later events are never placed before it.
    pub time: u64,
    /// Sorted by the sink's number.
    pub entries: Vec<Entry>,
}

/// The account of a source's events for one sink of this host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub sink: u32,
    pub from: u64,
    /// The last event that arrived for the sink.
    pub last: u64,
    /// Events that the source has sent, according to its mark.
    pub sent: u64,
    pub arrived: u64,
    pub fates: Fates,
    /// The number of events in the last report.
    pub told: u64,
    /// Events were still waiting in the queue at the last report.
    pub owes: bool,
}

impl Entry {
    /// The smallest number of events that the source can have sent.
    pub(super) fn sent_at_least(&self) -> u64 {
        self.sent.max(self.arrived)
    }

    pub(super) fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }

    /// Whether every event that arrived has an outcome.
    pub(super) fn is_settled(&self) -> bool {
        self.fates.sum() >= self.arrived
    }

    pub(super) fn reported(&self) -> Reported {
        Reported { sink: self.sink, from: self.from, fates: self.fates, lost: self.lost() }
    }

    /// The sink leaves: the events in its queue are dropped.
    pub(super) fn close(&mut self) {
        self.fates.dropped += self.arrived.saturating_sub(self.fates.sum());
    }
}

/// The origin of an event in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The [`Link::name`] at the time of the arrival.
    pub host: Arc<Name>,
    pub source: u32,
    pub number: u64,
}

impl Origin {
    pub(super) fn of(event: &Waiting) -> Origin {
        Origin { host: event.host.clone(), source: event.meta.source.0, number: event.meta.number }
    }
}

impl Inbound {
    pub(super) fn entry(&mut self, sink: u32) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&sink, |entry| entry.sink).ok()?;
        Some(&mut self.entries[at])
    }
}

impl Link {
    pub(super) fn new(name: &Name, incarnation: u64) -> Link {
        let ways = [Lane::Data, Lane::Bulk].map(Way::new);
        let (meeting, inbound, leaving, taken, clock) = Default::default();
        Link { name: Arc::new(name.clone()), incarnation, meeting, inbound, leaving, taken, clock, ways }
    }

    /// The state of a lane. The control lane has none; for it this returns the data lane's.
    pub(super) fn way(&self, lane: Lane) -> &Way {
        &self.ways[Way::place(lane)]
    }

    pub(super) fn way_mut(&mut self, lane: Lane) -> &mut Way {
        &mut self.ways[Way::place(lane)]
    }

    pub(super) fn ways_mut(&mut self) -> (&Arc<Name>, &mut [Way]) {
        (&self.name, &mut self.ways)
    }

    /// An incarnation of the host ends or another one begins. Returns the entries of its sources, and the sources whose
    /// events waited for the host. The clock's difference stays.
    pub(super) fn begin(&mut self) -> (BTreeMap<u32, Inbound>, Vec<u32>) {
        (self.name, self.meeting) = (Arc::new((*self.name).clone()), 0);
        self.leaving.clear();
        self.taken = None;
        let ways = std::mem::replace(&mut self.ways, [Lane::Data, Lane::Bulk].map(Way::new));
        let waited = ways.into_iter().flat_map(|mut way| way.pipe.clear().collect::<Vec<_>>());
        (std::mem::take(&mut self.inbound), waited.collect())
    }

    /// The account of an event that has left a sink's queue. `None` if the event arrived under an earlier account of its
    /// source: that one is closed, and the source counts the event as lost.
    pub(super) fn account(&mut self, event: &Origin, sink: u32) -> Option<&mut Entry> {
        if !Arc::ptr_eq(&event.host, &self.name) {
            return None;
        }
        self.inbound.get_mut(&event.source)?.entry(sink).filter(|entry| event.number > entry.from)
    }
}
