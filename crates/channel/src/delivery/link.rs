//! What comes from another host, and what is on its way there.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::assembly::Assembly;
use super::clock::Clock;
use super::flow::Flow;
use super::pipe::Pipe;
use crate::counts::Fates;
use crate::wire::Reported;
use crate::{Lane, Limits};

/// A host that has spoken.
#[derive(Debug)]
pub(crate) struct Link {
    pub name: Arc<Name>,
    pub incarnation: u64,
    /// Its sources that have welcomed sinks here.
    pub inbound: BTreeMap<u32, Inbound>,
    pub clock: Clock,
    /// By the data lane, and by the bulk lane: see [`Way::place`].
    pub ways: [Way; 2],
}

/// Events on one lane between this host and another.
#[derive(Debug)]
pub(crate) struct Way {
    pub lane: Lane,
    /// Those with deadlines, and such as must not be lost, on their way there.
    pub flow: Flow,
    /// What waits until those have arrived.
    pub pipe: Pipe,
    /// What comes in fragments.
    pub assembly: Assembly,
}

impl Way {
    fn new(lane: Lane) -> Way {
        let window = if lane == Lane::Bulk { Limits::BULK_UNDER_WAY } else { Limits::UNDER_WAY };
        Way { lane, flow: Flow::new(window), pipe: Pipe::default(), assembly: Assembly::default() }
    }

    pub fn place(lane: Lane) -> usize {
        usize::from(lane == Lane::Bulk)
    }

    /// The time, marked with the lane: its pings are told from those of the other one by it.
    pub fn stamp(&self, now: Instant) -> Instant {
        Instant::new(now.get() & !1 | u64::from(self.lane == Lane::Bulk))
    }
}

/// A source of another host.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// The channel's place in the node.
    pub slot: u32,
    /// The last event that was seen or marked.
    pub last: u64,
    /// The last mark's.
    pub marked: u64,
    /// When its latest event was sent, by this host's clock: later ones do not go before it.
    pub time: u64,
    /// By number of the sink.
    pub entries: Vec<Entry>,
}

/// What came from a source for one sink of this host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub sink: u32,
    pub from: u64,
    /// The last event that arrived for it.
    pub last: u64,
    /// As the source says.
    pub sent: u64,
    pub arrived: u64,
    pub fates: Fates,
    /// Of how many the last report has told.
    pub told: u64,
    /// The last report was made while something was waiting.
    pub owes: bool,
}

impl Entry {
    /// Sent to it in any case.
    pub fn sent_at_least(&self) -> u64 {
        self.sent.max(self.arrived)
    }

    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }

    /// Whether it is known of everything that arrived what became of it.
    pub fn is_settled(&self) -> bool {
        self.fates.sum() >= self.arrived
    }

    pub fn reported(&self) -> Reported {
        Reported { sink: self.sink, from: self.from, fates: self.fates, lost: self.lost() }
    }

    /// The sink leaves: what waits in its queue is dropped.
    pub fn close(&mut self) {
        self.fates.dropped += self.arrived.saturating_sub(self.fates.sum());
    }
}

impl Inbound {
    pub fn entry(&mut self, sink: u32) -> Option<&mut Entry> {
        let at = self.entries.binary_search_by_key(&sink, |entry| entry.sink).ok()?;
        Some(&mut self.entries[at])
    }
}

impl Link {
    pub fn new(name: &Name, incarnation: u64) -> Link {
        let ways = [Lane::Data, Lane::Bulk].map(Way::new);
        let (inbound, clock) = Default::default();
        Link { name: Arc::new(name.clone()), incarnation, inbound, clock, ways }
    }

    /// That of a lane; the control lane has none of its own.
    pub fn way(&self, lane: Lane) -> &Way {
        &self.ways[Way::place(lane)]
    }

    pub fn way_mut(&mut self, lane: Lane) -> &mut Way {
        &mut self.ways[Way::place(lane)]
    }

    pub fn ways_mut(&mut self) -> (&Arc<Name>, &mut [Way]) {
        (&self.name, &mut self.ways)
    }

    /// A start of the host is over, or another one begins: what was booked of its sources, and whose events waited for it. How
    /// its clock differs stays.
    pub fn begin(&mut self) -> (BTreeMap<u32, Inbound>, Vec<u32>) {
        let ways = std::mem::replace(&mut self.ways, [Lane::Data, Lane::Bulk].map(Way::new));
        let waited = ways.into_iter().flat_map(|mut way| way.pipe.clear().collect::<Vec<_>>());
        (std::mem::take(&mut self.inbound), waited.collect())
    }

    /// What was booked of one of its sources for a sink here.
    pub fn entry(&mut self, source: u32, sink: u32) -> Option<&mut Entry> {
        self.inbound.get_mut(&source)?.entry(sink)
    }
}
