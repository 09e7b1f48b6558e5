//! A channel as this host holds it: its members here, and the sinks of all hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};

use crate::counts::Fates;
use crate::directory::Directory;
use crate::filter::{FieldAt, Filters};
use crate::member::Seat;
use crate::queue::Queue;
use crate::{Key, Lane, Limits, MemberId, Pressure, SourceCounts, Spec, Spot};

/// A channel that is open here.
#[derive(Debug)]
pub(crate) struct Channel {
    pub id: Arc<ChannelId>,
    pub spec: Arc<Spec>,
    /// Creations and openings that have not been closed; for a Q-channel, data channels and registrations that need it.
    pub opens: u32,
    pub sources: BTreeMap<u32, Source>,
    pub sinks: BTreeMap<u32, Sink>,
    pub roster: Roster,
    pub filters: Filters,
}

/// The sinks of all hosts, by host and number.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub seats: Vec<Seat>,
    /// The types that each wants, close together: every submission looks at all of them.
    pub types: Vec<u64>,
    pub spans: Vec<Span>,
    /// Sources on all hosts.
    pub sources: usize,
    /// Rises with every change.
    pub generation: u64,
}

/// The sinks of one host.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub host: Arc<Name>,
    pub incarnation: u64,
    pub local: bool,
    pub from: usize,
    pub to: usize,
}

/// A source of this host.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Whose it is, among the users of this host.
    pub user: Option<u32>,
    /// Its last event's number.
    pub last: u64,
    /// One for each seat of the roster.
    pub tallies: Vec<Tally>,
    /// All but what became of events at the sinks that are there, which is in the tallies.
    pub counts: SourceCounts,
    pub mark_due: Option<Instant>,
    /// Marks that nobody has answered since the last answer.
    pub unanswered: u32,
    /// It was told to wait: until then at most.
    pub waits_until: Option<Instant>,
    /// When sinks were last asked whether there is room.
    pub probed: Option<Instant>,
    /// Bytes of its largest event since nothing was under way; counted where the channel blocks.
    pub largest: usize,
    /// Frames of it that wait for other hosts: what comes after them must not overtake them.
    pub waiting: u32,
}

/// What a source has sent to one sink.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The source's last event before it began to count.
    pub from: u64,
    pub sent: u64,
    /// What was sent when the last mark was.
    pub marked: u64,
    /// What became of it: as its host reports, or as it is seen here.
    pub fates: Fates,
    pub lost: u64,
    /// Since when the source has been waiting for it.
    pub blocked_since: Option<Instant>,
    /// It was waited for long enough.
    pub overdue: bool,
}

impl Tally {
    pub fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.fates.sum().saturating_add(self.lost))
    }
}

/// A sink of this host.
#[derive(Debug)]
pub(crate) struct Sink {
    pub mode: Mode,
    pub totals: Totals,
}

#[derive(Debug)]
pub(crate) enum Mode {
    Queue(Queue),
    /// A number of its events is a filter's parameter.
    Bound(Arc<Bound>),
}

/// What events change: which parameter of which filter.
#[derive(Debug)]
pub(crate) struct Bound {
    pub field: FieldAt,
    pub filter: Spot,
    pub parameter: Key,
}

/// What was counted of a sink, but for what is booked by source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub fates: Fates,
    /// From sources of this host, and from those that are gone.
    pub sent: u64,
    pub lost: u64,
}

impl Channel {
    pub fn new(id: ChannelId, spec: Arc<Spec>) -> Channel {
        Channel {
            id: Arc::new(id),
            spec,
            opens: 0,
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            roster: Roster::default(),
            filters: Filters::default(),
        }
    }

    pub fn lane(&self) -> Lane {
        match self.id.plane {
            Plane::Quality => Lane::Control,
            Plane::Data if self.blocks() => Lane::Bulk,
            Plane::Data => Lane::Data,
        }
    }

    /// Bytes of its longest event.
    pub fn most(&self) -> usize {
        match self.lane() {
            Lane::Control => Limits::WHOLE,
            Lane::Data | Lane::Bulk => Limits::EVENT,
        }
    }

    /// Whether its sources wait for slow sinks.
    pub fn blocks(&self) -> bool {
        matches!(self.spec.pressure, Pressure::Block { .. })
    }

    /// How many events of so many bytes a source may have on their way to a sink of that capacity on another host.
    pub fn window(&self, capacity: u32, bytes: usize) -> u64 {
        // What is on its way on the data lane is bounded for each host: see `pipe`.
        let most = if self.lane() != Lane::Control { Limits::UNREAD as u64 } else { Limits::UNDER_WAY };
        let (events, fit) = (u64::from(capacity), most / bytes.max(1) as u64);
        (events.min(fit) / self.roster.sources.max(1) as u64).max(1)
    }
}

impl Roster {
    /// The sinks of all hosts whose specification is this host's.
    pub fn of(directory: &Directory, channel: &Channel, here: &Name) -> Roster {
        let mut roster = Roster { generation: channel.roster.generation + 1, ..Roster::default() };
        for (host, record) in directory.hosts() {
            let Some(held) = record.channels.get(&*channel.id) else { continue };
            if !(Arc::ptr_eq(&held.spec, &channel.spec) || held.spec == channel.spec) {
                continue;
            }
            roster.sources += held.sources.len();
            let from = roster.seats.len();
            roster.seats.extend(held.sinks.iter().map(|(number, info)| {
                let member = MemberId { host: host.clone(), number: number.0 };
                Seat { member, info: info.clone() }
            }));
            roster.types.extend(held.sinks.values().map(|info| info.types));
            let to = roster.seats.len();
            if from < to {
                let known = channel.roster.of_host(host);
                let name = known.map_or_else(|| Arc::new(host.clone()), |span| span.host.clone());
                let incarnation = record.incarnation.0;
                roster.spans.push(Span { host: name, incarnation, local: host == here, from, to });
            }
        }
        roster
    }

    /// The places of those that were not there before.
    pub fn newcomers(&self, before: &Roster) -> Vec<usize> {
        let mut fresh = Vec::new();
        for span in &self.spans {
            let old = before.of_host(&span.host).filter(|old| old.incarnation == span.incarnation);
            let old = old.map_or(&[][..], |old| &before.seats[old.from..old.to]);
            let known = |seat: &Seat| old.iter().any(|old| old.member.number == seat.member.number);
            fresh.extend((span.from..span.to).filter(|at| !known(&self.seats[*at])));
        }
        fresh
    }

    /// This host's sinks.
    pub fn local(&self) -> std::ops::Range<usize> {
        self.spans.iter().find(|span| span.local).map_or(0..0, |span| span.from..span.to)
    }

    /// The seats of a host. Spans are in the order of the hosts' names.
    pub fn of_host(&self, host: &Name) -> Option<&Span> {
        let at = self.spans.binary_search_by(|span| (*span.host).cmp(host)).ok()?;
        Some(&self.spans[at])
    }
}

impl Source {
    /// Takes the tallies of sinks that stay over to a new roster. A sink on a restarted host is another sink.
    pub fn reseat(&mut self, before: &Roster, now: &Roster) {
        let mut former: Vec<_> = std::mem::take(&mut self.tallies).into_iter().map(Some).collect();
        let mut tallies = Vec::with_capacity(now.seats.len());
        for span in &now.spans {
            let old = before.of_host(&span.host).filter(|old| old.incarnation == span.incarnation);
            let old = old.map_or(0..0, |old| old.from..old.to);
            for seat in &now.seats[span.from..span.to] {
                let same = old.clone().find(|at| before.seats[*at].member.number == seat.member.number);
                let fresh = Tally { from: self.last, ..Tally::default() };
                tallies.push(same.and_then(|at| former[at].take()).unwrap_or(fresh));
            }
        }
        self.tallies = tallies;
        let gone = former.into_iter().enumerate().filter_map(|(at, tally)| Some((at, tally?)));
        gone.for_each(|(at, tally)| self.close(tally, before.local().contains(&at)));
    }

    /// A sink went: what waited here is dropped, and of what went to another host there will be no more word.
    pub fn close(&mut self, tally: Tally, local: bool) {
        tally.fates.add_to(&mut self.counts);
        let rest = tally.sent.saturating_sub(tally.fates.sum());
        *(if local { &mut self.counts.dropped } else { &mut self.counts.lost }) += rest;
    }

    /// What was counted, and what is known by now of the events' fates.
    pub fn counts(&self) -> SourceCounts {
        let mut counts = self.counts;
        for tally in &self.tallies {
            tally.fates.add_to(&mut counts);
            counts.lost += tally.lost;
        }
        counts
    }
}
