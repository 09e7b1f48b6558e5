//! What was sent, and what became of it.
//!
//! Which sinks a lost frame was for is known to its source alone. So the source says now and then how many events it has
//! sent to each sink (a *mark*, behind the events on their way), and the sinks' host answers what became of them (a
//! *report*). Lost is what the source has sent and has not arrived. A mark is also the *welcome* to a new sink: what
//! comes before it was not meant for it and is not counted, so that both count the same events.

use std::collections::BTreeMap;

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::Node;
use super::channel::{Channel, Source, Tally};
use super::peer::{Entry, Inbound};
use crate::output::{Outputs, To};
use crate::wire::{self, Kind, Mark, Marked, Report, Reported};
use crate::{Action, Limits, Notice, Pressure};

/// A source marks so long after the first event that is not marked yet.
pub(crate) const MARK_AFTER: Nanos = Nanos::from_millis(1_500);
/// A waiting source asks so often whether there is room.
pub(crate) const PROBE: Nanos = Nanos::from_millis(20);
/// Marks without an answer, each after twice the time of the one before, until the source is quiet.
const TRIES: u32 = 5;
/// Sinks in one mark or report.
const PORTION: usize = 1024;

impl Node {
    /// Welcomes new seats in the name of every source here.
    pub(crate) fn welcome(&mut self, place: u32, fresh: &[usize]) {
        let Some(channel) = self.channels.get(place as usize).and_then(Option::as_ref) else { return };
        let mut frames = 0;
        for (number, source) in &channel.sources {
            let wanted = |at: usize| fresh.binary_search(&at).is_ok();
            frames += mark_seats(channel, *number, source, wanted, self.config.incarnation.0, &mut self.out);
        }
        self.counts.frames_out += frames;
    }

    /// Welcomes all seats in the name of a new source.
    pub(crate) fn welcome_all(&mut self, place: u32, number: u32) {
        let Some(channel) = self.channels.get(place as usize).and_then(Option::as_ref) else { return };
        let Some(source) = channel.sources.get(&number) else { return };
        self.counts.frames_out +=
            mark_seats(channel, number, source, |_| true, self.config.incarnation.0, &mut self.out);
    }

    /// Marks what is not marked, or not answered, and says when to come back.
    pub(crate) fn mark(&mut self, place: u32, number: u32, now: Instant) {
        let Some(channel) = self.channels.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let Some(source) = channel.sources.get_mut(&number) else { return };
        source.unanswered += 1;
        for tally in &mut source.tallies {
            tally.marked = tally.sent;
        }
        let again = now + MARK_AFTER.saturating_mul(1 << source.unanswered.min(TRIES));
        source.mark_due = (source.unanswered < TRIES).then_some(again);
        let due = source.mark_due;
        let source = &channel.sources[&number];
        let open = |at: usize| source.tallies[at].outstanding() > 0;
        self.counts.frames_out += mark_seats(channel, number, source, open, self.config.incarnation.0, &mut self.out);
        due.into_iter().for_each(|due| self.wake_by(due));
    }

    /// A source has said how much it has sent.
    pub(crate) fn marked(&mut self, from: &Name, mark: &Mark) {
        if mark.to != self.config.incarnation.0 {
            return;
        }
        let Some(place) = self.place(&mark.channel) else { return };
        if !self.config.policy.allows(from, Action::Send, &mark.channel) {
            self.counts.forbidden += 1;
            let (host, action, channel) = (from.clone(), Action::Send, mark.channel.clone());
            let why = self.config.policy.why_not(&host, action, &channel);
            return self.out.notice(Notice::Forbidden { host, action, channel, why });
        }
        let (Some(peer), Some(Some(channel))) = (self.peers.get_mut(from), self.channels.get_mut(place as usize))
        else {
            return;
        };
        if peer.inbound.len() >= Limits::MEMBERS && !peer.inbound.contains_key(&mark.source) {
            return self.counts.beyond_limit += 1;
        }
        let fresh = || Inbound { slot: place, last: 0, marked: 0, time: 0, entries: Vec::new() };
        let inbound = peer.inbound.entry(mark.source).or_insert_with(fresh);
        if inbound.slot != place {
            return self.counts.mismatched += 1;
        }
        inbound.last = inbound.last.max(mark.last);
        inbound.marked = inbound.marked.max(mark.last);
        for marked in &mark.sinks {
            book(inbound, channel, marked);
        }
        let sinks = mark.sinks.iter().filter(|marked| marked.sent > 0).map(|marked| marked.sink);
        let sinks: Vec<u32> = sinks.collect();
        if !sinks.is_empty() {
            self.report(from, mark.source, |entry| sinks.contains(&entry.sink));
        }
    }

    /// Tells a source what became of its events.
    pub(crate) fn report(&mut self, to: &Name, source: u32, of: impl Fn(&Entry) -> bool) {
        let Some(peer) = self.peers.get_mut(to) else { return };
        let (Some(incarnation), Some(inbound)) = (peer.incarnation, peer.inbound.get_mut(&source)) else { return };
        let mut reported = Vec::new();
        for entry in inbound.entries.iter_mut().filter(|entry| of(entry)) {
            entry.told = entry.fates.sum();
            entry.owes = !entry.is_settled();
            reported.push(entry.reported());
        }
        let last = inbound.marked;
        let mut frame = Vec::new();
        for portion in reported.chunks(PORTION) {
            let report = Report { to: incarnation, source, last, sinks: portion.to_vec() };
            report.write(&mut wire::begin(&mut frame, Kind::Report, self.config.incarnation.0));
            self.send(To::Host(to.clone().into()), crate::Lane::Control, &frame);
        }
    }

    /// A sinks' host has said what became of a source's events.
    pub(crate) fn reported(&mut self, from: &Name, report: &Report, now: Instant) {
        if report.to != self.config.incarnation.0 {
            return;
        }
        let Some(place) = self.sources.get(&report.source).copied() else { return };
        let Some(Some(channel)) = self.channels.get_mut(place as usize) else { return };
        let Some(span) = channel.roster.of_host(from).cloned() else { return };
        let seats = &channel.roster.seats[span.from..span.to];
        let Some(source) = channel.sources.get_mut(&report.source) else { return };
        for reported in &report.sinks {
            let Ok(at) = seats.binary_search_by_key(&reported.sink, |seat| seat.member.number) else { continue };
            let tally = &mut source.tallies[span.from + at];
            let Reported { fates, lost, .. } = *reported;
            let adds_up = fates.sum().saturating_add(lost) <= tally.sent;
            if tally.from == reported.from && fates.has_grown_from(&tally.fates) && adds_up {
                (tally.fates, tally.lost) = (fates, lost);
            }
        }
        source.unanswered = 0;
        self.unblock(place, report.source, now);
    }

    /// What a source of this host has sent to a sink of this host.
    pub(crate) fn own_tally(&mut self, source: u32, sink: u32) -> Option<&mut Tally> {
        let place = *self.sources.get(&source)?;
        let channel = self.at_mut(place)?;
        let local = channel.roster.local();
        let seats = &channel.roster.seats[local.clone()];
        let at = seats.binary_search_by_key(&sink, |seat| seat.member.number).ok()?;
        channel.sources.get_mut(&source)?.tallies.get_mut(local.start + at)
    }

    /// Sinks of this host leave: sources elsewhere are told before, what became of their events.
    pub(crate) fn close_books(&mut self, place: u32, leaves: impl Fn(u32) -> bool) {
        let mut told = Vec::new();
        for (host, peer) in &mut self.peers {
            for (source, inbound) in peer.inbound.iter_mut().filter(|(_, inbound)| inbound.slot == place) {
                let leaving = inbound.entries.iter_mut().filter(|entry| leaves(entry.sink));
                if leaving.map(Entry::close).count() > 0 {
                    told.push((host.clone(), *source));
                }
            }
        }
        for (host, source) in told {
            self.report(&host, source, |entry| leaves(entry.sink));
        }
    }

    /// Lets a waiting source go on where all sinks have room, or have been waited for long enough.
    pub(crate) fn unblock(&mut self, place: u32, number: u32, now: Instant) {
        let Some(Some(channel)) = self.channels.get_mut(place as usize) else { return };
        let Pressure::Block { patience } = channel.spec.pressure else { return };
        let mut full = Vec::new();
        for (at, seat) in channel.roster.seats.iter().enumerate() {
            full.push(channel.is_full(number, at, seat));
        }
        let Some(source) = channel.sources.get_mut(&number) else { return };
        let mut waits = false;
        for (tally, full) in source.tallies.iter_mut().zip(full) {
            if !full {
                (tally.blocked_since, tally.overdue) = (None, false);
            }
            tally.overdue |= tally.blocked_since.is_some_and(|since| now >= since + patience);
            waits |= tally.blocked_since.is_some() && !tally.overdue;
        }
        if source.waits_until.is_some() && !waits {
            source.waits_until = None;
            self.out.writable(crate::SourceId(number));
        }
    }

    /// Asks the sinks that hold a source up whether there is room by now, but not too often.
    pub(crate) fn probe(&mut self, place: u32, number: u32, now: Instant) {
        let Some(Some(channel)) = self.channels.get_mut(place as usize) else { return };
        let Some(source) = channel.sources.get_mut(&number) else { return };
        if source.probed.is_some_and(|probed| now < probed + PROBE) {
            return;
        }
        source.probed = Some(now);
        let source = &channel.sources[&number];
        let slow = |at: usize| source.tallies[at].blocked_since.is_some();
        self.counts.frames_out += mark_seats(channel, number, source, slow, self.config.incarnation.0, &mut self.out);
        self.wake_by(now + PROBE);
    }

    /// What was booked for sinks here of sources that are gone.
    pub(crate) fn fold(&mut self, inbound: BTreeMap<u32, Inbound>) {
        for inbound in inbound.into_values() {
            let Some(Some(channel)) = self.channels.get_mut(inbound.slot as usize) else { continue };
            for entry in inbound.entries {
                fold_entry(channel, &entry);
            }
        }
    }

    pub(crate) fn forget_inbound(&mut self, peer: super::peer::Peer) {
        self.fold(peer.inbound);
    }
}

impl Channel {
    /// Whether a sink has all the events that it can keep.
    pub(crate) fn is_full(&self, source: u32, at: usize, seat: &super::Seat) -> bool {
        if seat.info.capacity == 0 {
            return false;
        }
        if self.roster.local().contains(&at) {
            return self.sinks.get(&seat.member.number).is_some_and(super::Sink::is_full);
        }
        let Some(source) = self.sources.get(&source) else { return false };
        let window = self.window(seat.info.capacity, source.largest);
        source.tallies.get(at).is_some_and(|tally| tally.outstanding() >= window)
    }
}

fn fold_entry(channel: &mut Channel, entry: &Entry) {
    if let Some(sink) = channel.sinks.get_mut(&entry.sink) {
        sink.totals.sent = sink.totals.sent.saturating_add(entry.sent_at_least());
        sink.totals.lost = sink.totals.lost.saturating_add(entry.lost());
    }
}

/// Books what a source says it has sent to a sink. Another beginning is another count: the former is closed.
fn book(inbound: &mut Inbound, channel: &mut Channel, marked: &Marked) {
    if !channel.sinks.contains_key(&marked.sink) {
        return;
    }
    let fresh = Entry { sink: marked.sink, from: marked.from, sent: marked.sent, ..Entry::default() };
    match inbound.entries.binary_search_by_key(&marked.sink, |entry| entry.sink) {
        Err(at) => inbound.entries.insert(at, fresh),
        Ok(at) if inbound.entries[at].from != marked.from => {
            let former = std::mem::replace(&mut inbound.entries[at], fresh);
            fold_entry(channel, &former);
        }
        Ok(at) => inbound.entries[at].sent = inbound.entries[at].sent.max(marked.sent),
    }
}

/// Sends marks for the chosen seats of other hosts, one frame for each host. Gives how many.
fn mark_seats(
    channel: &Channel,
    number: u32,
    source: &Source,
    wanted: impl Fn(usize) -> bool,
    incarnation: u64,
    out: &mut Outputs,
) -> u64 {
    let (mut frames, mut frame) = (0, Vec::new());
    for span in channel.roster.spans.iter().filter(|span| !span.local) {
        let seats = (span.from..span.to).filter(|at| wanted(*at)).map(|at| {
            let (seat, tally) = (&channel.roster.seats[at], &source.tallies[at]);
            Marked { sink: seat.member.number, from: tally.from, sent: tally.sent }
        });
        for portion in seats.collect::<Vec<_>>().chunks(PORTION) {
            let (to, channel_id) = (span.incarnation, (*channel.id).clone());
            let mark = Mark { to, source: number, last: source.last, channel: channel_id, sinks: portion.to_vec() };
            mark.write(&mut wire::begin(&mut frame, Kind::Mark, incarnation));
            out.send(To::Host(span.host.clone()), channel.lane(), &frame);
            frames += 1;
        }
    }
    frames
}

/// Whether a report has become due without being asked for: the last one was not the end of it, or a waiting source
/// wants to know of room.
pub(crate) fn owes_report(entry: &Entry, capacity: Option<u32>) -> bool {
    let consumed = entry.fates.sum().saturating_sub(entry.told);
    match capacity {
        None => entry.owes && entry.is_settled(),
        Some(capacity) => consumed > 0 && (entry.is_settled() || consumed >= u64::from(capacity / 2).max(1)),
    }
}

/// When a source that has sent something marks at the latest.
pub(crate) fn mark_due(source: &mut Source, now: Instant) -> Option<Instant> {
    source.unanswered = 0;
    match source.mark_due {
        // An event after unanswered marks brings the next one forward.
        Some(due) if due <= now + MARK_AFTER => None,
        _ => {
            source.mark_due = Some(now + MARK_AFTER);
            source.mark_due
        }
    }
}
