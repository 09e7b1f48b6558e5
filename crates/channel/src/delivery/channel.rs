//! An open channel: this host's members, and the roster of all hosts' sinks.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{Instant, Nanos};

use super::unread::Unread;
use crate::counts::Fates;
use crate::directory::Directory;
use crate::filter::{FieldAt, Filters};
use crate::member::Seat;
use crate::queue::Queue;
use crate::{FilterId, Key, Lane, Limits, MemberId, Pressure, SourceCounts, Spec};

/// A source that has left is remembered for this time at most. The sinks' hosts keep its account for 60 s, and marks
/// must not arrive later.
const REMEMBERED: Nanos = Nanos::from_millis(55_000);

#[derive(Debug)]
pub(crate) struct Channel {
    pub id: Arc<ChannelId>,
    pub spec: Arc<Spec>,
    /// Creations and openings that have not been closed; for a Q-channel, the number of data channels and registrations
    /// that use it.
    pub opens: u32,
    pub sources: BTreeMap<u32, Source>,
    /// Sources that have left a channel that blocks, while sinks of other hosts have not read all of their events.
    /// These events still need room in the sinks' queues.
    pub departed: BTreeMap<u32, Source>,
    /// The events of all these sources that are under way, one sum for each seat of the roster.
    pub unread: Vec<Unread>,
    pub sinks: BTreeMap<u32, Sink>,
    pub roster: Roster,
    pub filters: Filters,
}

/// The sinks of all hosts, by host and number.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub seats: Vec<Seat>,
    /// The types that each sink receives, in a vector of their own: every submission reads all of them.
    pub types: Vec<u64>,
    pub spans: Vec<Span>,
    /// Sources on all hosts.
    pub sources: usize,
    /// Increases with every change.
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

#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The user of this host that owns the source.
    pub user: Option<u32>,
    /// The number of its last event.
    pub last: u64,
    /// One for each seat of the roster.
    pub tallies: Vec<Tally>,
    /// All counts except the outcomes at present sinks, which are in the tallies.
    pub counts: SourceCounts,
    pub mark_due: Option<Instant>,
    /// Marks sent since the last report.
    pub unanswered: u32,
    /// The source was refused with `WouldBlock` and waits until this time at most.
    pub waits_until: Option<Instant>,
    /// The last time at which sinks were asked whether there is room.
    pub probed: Option<Instant>,
    /// Size of its largest event since no event was under way; only on a channel that blocks.
    pub largest: usize,
    /// Its frames that wait for other hosts: later frames must not overtake them.
    pub waiting: u32,
    /// The slack of its last event: its marks may wait as long.
    pub slack: Nanos,
    /// The source has left and is remembered until this time.
    pub ends: Option<Instant>,
}

/// The account of the events that a source has sent to one sink.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The source's last event before the account began.
    pub from: u64,
    pub sent: u64,
    /// The number of events in the last mark.
    pub marked: u64,
    /// The outcomes: from the host's reports, or counted here for a sink of this host.
    pub fates: Fates,
    pub lost: u64,
    /// Since when the source has been waiting for this sink.
    pub blocked_since: Option<Instant>,
    /// The source has waited for the whole patience.
    pub overdue: bool,
}

impl Tally {
    pub(crate) fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.fates.sum().saturating_add(self.lost))
    }
}

#[derive(Debug)]
pub(crate) struct Sink {
    pub mode: Mode,
    pub totals: Totals,
}

#[derive(Debug)]
pub(crate) enum Mode {
    Queue(Queue),
    /// A number in its events is a filter's parameter.
    Bound(Arc<Bound>),
}

/// The filter and the parameter that events set.
#[derive(Debug)]
pub(crate) struct Bound {
    pub field: FieldAt,
    pub filter: FilterId,
    pub parameter: Key,
}

/// Counts of a sink, without the entries that are kept for each source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub fates: Fates,
    /// From sources of this host, and from sources that are gone.
    pub sent: u64,
    pub lost: u64,
}

impl Channel {
    pub(crate) fn new(id: ChannelId, spec: Arc<Spec>) -> Channel {
        Channel {
            id: Arc::new(id),
            spec,
            opens: 0,
            sources: BTreeMap::new(),
            departed: BTreeMap::new(),
            unread: Vec::new(),
            sinks: BTreeMap::new(),
            roster: Roster::default(),
            filters: Filters::default(),
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        match self.id.plane {
            Plane::Quality => Lane::Control,
            Plane::Data if self.blocks() => Lane::Bulk,
            Plane::Data => Lane::Data,
        }
    }

    /// The size limit of an event on the channel, in bytes.
    pub(crate) fn most(&self) -> usize {
        match self.lane() {
            Lane::Control => Limits::WHOLE,
            Lane::Data | Lane::Bulk => Limits::EVENT,
        }
    }

    pub(crate) fn blocks(&self) -> bool {
        matches!(self.spec.pressure, Pressure::Block { .. })
    }

    /// The number of events of `bytes` bytes that a source may have under way to a sink of this capacity on another
    /// host.
    pub(crate) fn window(&self, capacity: u32, bytes: usize) -> u64 {
        let (events, fit) = (u64::from(capacity), self.most_unread() / bytes.max(1) as u64);
        (events.min(fit) / self.roster.sources.max(1) as u64).max(1)
    }

    /// The limit of bytes that a sink on another host has not read.
    fn most_unread(&self) -> u64 {
        // On the data lane the bytes under way are limited for each host: see `pipe`.
        if self.lane() != Lane::Control { Limits::UNREAD as u64 } else { Limits::UNDER_WAY }
    }

    /// Whether an event of `bytes` bytes has to wait, because the sources of this host, also those that have left, have
    /// used this host's part of the queue of the seat `at` of another host.
    pub(crate) fn is_used_up(&self, at: usize, capacity: u32, bytes: usize) -> bool {
        let Unread { events, bytes: unread } = self.unread.get(at).copied().unwrap_or_default();
        let used = unread.saturating_add(bytes as u64);
        events > 0 && (events >= u64::from(capacity) || used > self.most_unread())
    }

    /// A source has left. Remembers it if sinks of other hosts have not read all of its events.
    pub(crate) fn depart(&mut self, number: u32, mut source: Source, now: Instant) {
        self.forget_departed(now);
        if !self.blocks() || !source.is_unread(&self.roster.local()) {
            return;
        }
        source.ends = Some(now + REMEMBERED);
        if self.departed.len() >= Limits::MEMBERS
            && let Some((_, first)) = self.departed.pop_first()
        {
            Channel::write_off(&mut self.unread, &self.roster, &first);
        }
        self.departed.insert(number, source);
    }

    /// Forgets the sources that have left and whose events were read, or whose time is over.
    pub(crate) fn forget_departed(&mut self, now: Instant) {
        if self.departed.is_empty() {
            return;
        }
        let Channel { departed, roster, unread, .. } = self;
        let local = roster.local();
        departed.retain(|_, source| {
            let stays = source.ends.is_some_and(|ends| now < ends) && source.is_unread(&local);
            if !stays {
                Channel::write_off(unread, roster, source);
            }
            stays
        });
    }
}

impl Roster {
    /// The sinks of all hosts that have the same specification as this host.
    pub(crate) fn of(directory: &Directory, channel: &Channel, here: &Name) -> Roster {
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

    /// The seats that were not in `before`.
    pub(crate) fn newcomers(&self, before: &Roster) -> Vec<usize> {
        let mut fresh = Vec::new();
        for span in &self.spans {
            let old = before.of_host(&span.host).filter(|old| old.incarnation == span.incarnation);
            let old = old.map_or(&[][..], |old| &before.seats[old.from..old.to]);
            let known = |seat: &Seat| old.iter().any(|old| old.member.number == seat.member.number);
            fresh.extend((span.from..span.to).filter(|at| !known(&self.seats[*at])));
        }
        fresh
    }

    /// The seats of this host's sinks.
    pub(crate) fn local(&self) -> std::ops::Range<usize> {
        self.spans.iter().find(|span| span.local).map_or(0..0, |span| span.from..span.to)
    }

    /// The seats of other hosts' sinks.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = usize> {
        self.spans.iter().filter(|span| !span.local).flat_map(|span| span.from..span.to)
    }

    /// The seats of a host; spans are sorted by the hosts' names.
    pub(crate) fn of_host(&self, host: &Name) -> Option<&Span> {
        let at = self.spans.binary_search_by(|span| (*span.host).cmp(host)).ok()?;
        Some(&self.spans[at])
    }
}

impl Source {
    /// Whether sinks outside the seats `local` have not read all of its events.
    fn is_unread(&self, local: &std::ops::Range<usize>) -> bool {
        self.tallies.iter().enumerate().any(|(at, tally)| tally.outstanding() > 0 && !local.contains(&at))
    }

    /// Moves the tallies of remaining sinks to a new roster. A sink of a restarted host is a different sink.
    pub(crate) fn reseat(&mut self, before: &Roster, now: &Roster) {
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

    /// A sink left. Its queued events on this host are dropped; no more reports will come about those under way to
    /// another host.
    pub(crate) fn close(&mut self, tally: Tally, local: bool) {
        tally.fates.add_to(&mut self.counts);
        let rest = tally.sent.saturating_sub(tally.fates.sum());
        *(if local { &mut self.counts.dropped } else { &mut self.counts.lost }) += rest;
    }

    /// All counts, with the outcomes known so far.
    pub(crate) fn counts(&self) -> SourceCounts {
        let mut counts = self.counts;
        for tally in &self.tallies {
            tally.fates.add_to(&mut counts);
            counts.lost += tally.lost;
        }
        counts
    }
}
