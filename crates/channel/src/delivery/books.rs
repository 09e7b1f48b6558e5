//! Accounts of the events that were sent, and of their outcomes.
//!
//! Only the source knows which sinks a lost frame was for. Therefore the source sends a *mark* from time to time: the number
//! of events that it has sent to each sink, behind the events under way. The sinks' host answers with a *report* of the
//! outcomes. Lost events are those that the source has sent and that have not arrived. A mark is also the *welcome* to a new
//! sink: events before it were not meant for the sink and are not counted, so both sides count the same events.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::Delivery;
use super::channel::{Channel, Source, Tally, Totals};
use super::link::{Entry, Inbound, Link};
use super::pipe::{Piece, Pipe};
use super::unread::SourceMut;
use crate::bundles::Wait;
use crate::exit::Exit;
use crate::output::Destination;
use crate::wire::{Kind, Mark, Marked, Report, begin};
use crate::{Action, Config, Lane, Limits, SinkCounts, SinkId};

/// The time from the first unmarked event to its mark.
const MARK_AFTER: Nanos = Nanos::from_millis(1_500);
/// The interval at which a waiting source asks whether there is room.
pub(super) const PROBE: Nanos = Nanos::from_millis(20);
/// The time from a mark to the next one, if it has no answer: it may be lost, like the events.
const AGAIN_AFTER: Nanos = Nanos::from_millis(300);
/// Marks without an answer, from the third on each after twice the time of the one before; then the source sends no
/// more until it has another event.
const TRIES: u32 = 5;
/// Events of a large window that are reported together, although no other event waits. A source with a smaller window,
/// because an earlier event was larger, asks when it has to wait.
const TOGETHER: u64 = 8;
/// Sources that have left and are asked about at the same time.
const DEPARTED_AT_ONCE: usize = 32;
/// Sinks in one mark or report.
const PORTION: usize = 1024;

impl Delivery {
    /// Welcomes new seats on behalf of every source here.
    pub(super) fn welcome(&mut self, place: u32, fresh: &[usize], exit: &mut Exit) {
        let Some(channel) = self.channels.at(place) else { return };
        for number in channel.sources.keys().copied().collect::<Vec<_>>() {
            let wanted = |at: usize, _: &Tally| fresh.binary_search(&at).is_ok();
            self.mark_seats(place, number, (Behind::Waits, Wait::NONE), wanted, exit);
        }
    }

    /// Welcomes all seats on behalf of a new source.
    pub(crate) fn welcome_all(&mut self, place: u32, number: u32, exit: &mut Exit) {
        self.mark_seats(place, number, (Behind::Waits, Wait::NONE), |_, _| true, exit);
    }

    /// Marks the events that are not marked or not reported, and sets the time of the next call.
    pub(super) fn mark(&mut self, place: u32, number: u32, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        let Some(source) = channel.sources.get_mut(&number) else { return };
        source.unanswered += 1;
        for tally in &mut source.tallies {
            tally.marked = tally.sent;
        }
        let again = match source.unanswered {
            1 => AGAIN_AFTER,
            unanswered => MARK_AFTER.saturating_mul(1 << (unanswered - 1).min(TRIES)),
        };
        let again = now + again;
        source.mark_due = (source.unanswered < TRIES).then_some(again);
        source.mark_due.into_iter().for_each(|due| exit.wake_by(due));
        let wait = Wait { now, slack: source.slack };
        self.mark_seats(place, number, (Behind::Later, wait), |_, tally| tally.outstanding() > 0, exit);
    }

    /// Sends marks for the chosen seats of other hosts, one frame for each host, behind the frames that the source has
    /// sent there.
    fn mark_seats(
        &mut self,
        place: u32,
        number: u32,
        (behind, wait): (Behind, Wait),
        wanted: impl Fn(usize, &Tally) -> bool,
        exit: &mut Exit,
    ) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        let (lane, id, incarnation) = (channel.lane(), channel.id.clone(), exit.incarnation());
        let Some(SourceMut { source, roster, .. }) = channel.source_mut(number) else { return };
        for span in roster.spans.iter().filter(|span| !span.local) {
            let seats = (span.from..span.to).filter(|at| wanted(*at, &source.tallies[*at])).map(|at| {
                let (seat, tally) = (&roster.seats[at], &source.tallies[at]);
                Marked { sink: seat.member.number, from: tally.from, sent: tally.sent }
            });
            let seats = seats.collect::<Vec<_>>();
            let links = &mut self.links;
            let link = links.get_mut(&*span.host);
            let meeting = link.as_ref().map_or(0, |link| link.meeting);
            let link = link.filter(|_| source.waiting > 0);
            let mut way = link.map(|link| link.way_mut(lane)).filter(|way| way.pipe.has(number));
            if way.is_some() && behind == Behind::Later {
                continue;
            }
            for portion in seats.chunks(PORTION) {
                let (to, channel) = (span.incarnation, (*id).clone());
                let (last, sinks) = (source.last, portion.to_vec());
                let mark = Mark { to, meeting, source: number, last, channel, sinks };
                let write = |frame: &mut Vec<u8>| mark.write(&mut begin(frame, Kind::Mark, incarnation));
                match &mut way {
                    None if lane == Lane::Control && exit.bundles.concern(wait.slack) => {
                        exit.ship(&[&span.host], wait, write);
                    }
                    None => _ = exit.send_written(Destination::Host(span.host.clone()), lane, write),
                    Some(way) => {
                        let mut frame = Vec::new();
                        write(&mut frame);
                        way.pipe.push(Piece::new(number, Arc::new(frame)));
                        source.waiting += 1;
                    }
                }
            }
        }
    }

    /// A source's host has sent a mark of the current meeting.
    pub(crate) fn marked(&mut self, from: &Name, mark: &Mark, config: &Config, exit: &mut Exit) {
        if mark.to != exit.incarnation() {
            return;
        }
        let Some(place) = self.channels.place(&mark.channel) else { return };
        if let Some(why) = config.refusal(from, Action::Send, &mark.channel) {
            return exit.forbidden(from, Action::Send, &mark.channel, why);
        }
        self.make_room(from, mark.source);
        let (Some(link), Some(channel)) = (self.links.get_mut(from), self.channels.at_mut(place)) else { return };
        if link.inbound.len() >= Limits::MEMBERS && !link.inbound.contains_key(&mark.source) {
            return exit.counts.beyond_limit += 1;
        }
        let fresh = || Inbound { slot: place, last: 0, marked: 0, time: 0, entries: Vec::new() };
        let inbound = link.inbound.entry(mark.source).or_insert_with(fresh);
        if inbound.slot != place {
            return exit.counts.mismatched += 1;
        }
        inbound.last = inbound.last.max(mark.last);
        inbound.marked = inbound.marked.max(mark.last);
        for marked in &mark.sinks {
            book(inbound, channel, marked);
        }
        let sinks = mark.sinks.iter().filter(|marked| marked.sent > 0).map(|marked| marked.sink);
        let sinks: Vec<u32> = sinks.collect();
        if !sinks.is_empty() {
            self.report(from, mark.source, |entry| sinks.contains(&entry.sink), exit);
        }
    }

    /// Reports the outcomes of a source's events.
    pub(super) fn report(&mut self, to: &Name, source: u32, of: impl Fn(&Entry) -> bool, exit: &mut Exit) {
        let Some(link) = self.links.get_mut(to) else { return };
        let Some(inbound) = link.inbound.get_mut(&source) else { return };
        let mut reported = Vec::new();
        for entry in inbound.entries.iter_mut().filter(|entry| of(entry)) {
            entry.told = entry.fates.sum();
            entry.owes = !entry.is_settled();
            reported.push(entry.reported());
        }
        let last = inbound.marked;
        for portion in reported.chunks(PORTION) {
            let report = Report { to: link.incarnation, meeting: link.meeting, source, last, sinks: portion.to_vec() };
            exit.send(Destination::Host(link.name.clone()), Lane::Control, Kind::Report, |writer| report.write(writer));
        }
    }

    /// A sinks' host has sent a report of the current meeting.
    pub(crate) fn reported(&mut self, from: &Name, report: &Report, now: Instant, exit: &mut Exit) {
        if report.to != exit.incarnation() {
            return;
        }
        let place = self.channels.of_source(report.source).or_else(|| self.channels.of_departed(report.source));
        let Some(place) = place else { return };
        let Some(channel) = self.channels.at_mut(place) else { return };
        let Some(mut about) = channel.source_mut(report.source) else { return };
        let Some(span) = about.roster.of_host(from) else { return };
        let (from, seats) = (span.from, &about.roster.seats[span.from..span.to]);
        for reported in &report.sinks {
            if let Ok(at) = seats.binary_search_by_key(&reported.sink, |seat| seat.member.number) {
                about.settle(from + at, reported);
            }
        }
        about.source.unanswered = 0;
        channel.forget_departed(now);
        self.unblock(place, report.source, now, exit);
        // The sources of a host share its part of the sink's queue.
        self.unblock_all(place, now, exit);
    }

    /// The tally of a source of this host for a sink of this host.
    pub(super) fn own_tally(&mut self, source: u32, sink: u32) -> Option<&mut Tally> {
        let channel = self.channels.at_mut(self.channels.of_source(source)?)?;
        let local = channel.roster.local();
        let seats = &channel.roster.seats[local.clone()];
        let at = seats.binary_search_by_key(&sink, |seat| seat.member.number).ok()?;
        channel.sources.get_mut(&source)?.tallies.get_mut(local.start + at)
    }

    /// Sinks of this host leave: sends final reports to sources of other hosts and removes the sinks' entries.
    pub(crate) fn close_books(&mut self, place: u32, leaves: impl Fn(u32) -> bool, exit: &mut Exit) {
        let mut told = Vec::new();
        for (host, link) in &mut self.links {
            for (source, inbound) in link.inbound.iter_mut().filter(|(_, inbound)| inbound.slot == place) {
                let leaving = inbound.entries.iter_mut().filter(|entry| leaves(entry.sink));
                if leaving.map(Entry::close).count() > 0 {
                    told.push((host.clone(), *source));
                }
            }
        }
        for (host, source) in told {
            self.report(&host, source, |entry| leaves(entry.sink), exit);
        }
        let inbound = self.links.values_mut().flat_map(|link| link.inbound.values_mut());
        for inbound in inbound.filter(|inbound| inbound.slot == place) {
            inbound.entries.retain(|entry| !leaves(entry.sink));
        }
    }

    /// Closes a channel and removes everything that this host has on it.
    pub(crate) fn end(&mut self, place: u32, exit: &mut Exit) -> Option<Channel> {
        self.close_books(place, |_| true, exit);
        for link in self.links.values_mut() {
            link.inbound.retain(|_, inbound| inbound.slot != place);
        }
        self.channels.close(place)
    }

    /// Asks the sinks that hold a source up whether there is room, at most once in [`PROBE`].
    pub(super) fn probe(&mut self, place: u32, number: u32, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        let Some(source) = channel.sources.get_mut(&number) else { return };
        if source.probed.is_some_and(|probed| now < probed + PROBE) {
            return;
        }
        source.probed = Some(now);
        let wanted = |_: usize, tally: &Tally| tally.blocked_since.is_some();
        self.mark_seats(place, number, (Behind::Later, Wait::NONE), wanted, exit);
        self.probe_departed(place, now, exit);
        exit.wake_by(now + PROBE);
    }

    /// Asks for the outcomes of the events of sources that have left, because these events may hold other sources up.
    pub(super) fn probe_departed(&mut self, place: u32, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        channel.forget_departed(now);
        let due = channel.departed.iter().filter(|(_, source)| source.probed.is_none_or(|at| now >= at + PROBE));
        let mut due: Vec<(Option<Instant>, u32)> = due.map(|(number, source)| (source.probed, *number)).collect();
        due.sort_unstable();
        due.truncate(DEPARTED_AT_ONCE);
        for (_, number) in due {
            let source = self.channels.at_mut(place).and_then(|channel| channel.departed.get_mut(&number));
            source.into_iter().for_each(|source| source.probed = Some(now));
            let wanted = |_: usize, tally: &Tally| tally.outstanding() > 0;
            self.mark_seats(place, number, (Behind::Later, Wait::NONE), wanted, exit);
        }
    }

    /// `None`: this host has no such sink.
    pub(crate) fn sink_counts(&self, id: SinkId) -> Option<SinkCounts> {
        let sink = self.channels.at(self.channels.of_sink(id.0)?)?.sinks.get(&id.0)?;
        let Totals { fates, sent, lost } = sink.totals;
        let mut counts = SinkCounts {
            sent,
            delivered: fates.delivered,
            filtered: fates.filtered,
            dropped: fates.dropped,
            late: fates.late,
            lost,
            queued: sink.queued(),
        };
        let inbound = self.links.values().flat_map(|link| link.inbound.values());
        for entry in inbound.flat_map(|inbound| &inbound.entries).filter(|entry| entry.sink == id.0) {
            // Saturating, because another host may state any number.
            counts.sent = counts.sent.saturating_add(entry.sent_at_least());
            counts.lost = counts.lost.saturating_add(entry.lost());
        }
        Some(counts)
    }

    /// Adds the entries of other hosts' sources that are gone to the totals of the sinks.
    pub(super) fn fold(&mut self, inbound: BTreeMap<u32, Inbound>) {
        for inbound in inbound.into_values() {
            let Some(channel) = self.channels.at_mut(inbound.slot) else { continue };
            for entry in inbound.entries {
                fold_entry(channel, &entry);
            }
        }
    }
}

/// Sets the seats that cannot take an event of the source now, because their queue or their host's pipe is full.
pub(super) fn who_is_full(
    channel: &Channel,
    links: &BTreeMap<Name, Link>,
    source: u32,
    is_crowded: impl Fn(&Pipe) -> bool,
    full: &mut [bool],
) {
    let Some(source) = channel.sources.get(&source) else { return };
    // Sources of other hosts have a part of each queue; without any, a source of this host may fill all of it.
    let is_shared = channel.roster.sources > channel.sources.len();
    // The window of one source alone never exceeds this host's part of a queue.
    let has_others = channel.sources.len() + channel.departed.len() > 1;
    for span in &channel.roster.spans {
        let is_bulk = !span.local && channel.lane() != Lane::Control;
        let crowded = is_bulk && links.get(&*span.host).is_some_and(|link| is_crowded(&link.way(channel.lane()).pipe));
        for (at, full) in full.iter_mut().enumerate().take(span.to).skip(span.from) {
            let seat = &channel.roster.seats[at];
            let is_beyond = |capacity| {
                let window = channel.window(capacity, source.largest);
                source.tallies.get(at).is_some_and(|tally| tally.outstanding() >= window)
            };
            *full = match (seat.info.capacity, span.local) {
                (0, _) => crowded,
                (capacity, true) => {
                    let sink = channel.sinks.get(&seat.member.number);
                    sink.is_some_and(|sink| sink.is_full_for(source.largest)) || is_shared && is_beyond(capacity)
                }
                (capacity, false) => {
                    let is_used_up = || has_others && channel.is_used_up(at, capacity, source.largest);
                    crowded || is_beyond(capacity) || is_used_up()
                }
            };
        }
    }
}

fn fold_entry(channel: &mut Channel, entry: &Entry) {
    if let Some(sink) = channel.sinks.get_mut(&entry.sink) {
        sink.totals.sent = sink.totals.sent.saturating_add(entry.sent_at_least());
        sink.totals.lost = sink.totals.lost.saturating_add(entry.lost());
    }
}

/// Records the number of events that a mark states for a sink. A different first event begins a new count and closes
/// the old one.
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

/// How a mark is sent if events of the source wait for the host: it has to arrive behind them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// The mark waits with the events.
    Waits,
    /// The mark is made later.
    Later,
}

/// Whether a report is due without a mark: the last report was sent before all events had outcomes, or a waiting source
/// needs to know about room. Each report is a frame and wakes the source's host, so a reader that keeps up with a source
/// does not cause one for each event.
pub(super) fn owes_report(entry: &Entry, window: Option<u64>) -> bool {
    let consumed = entry.fates.sum().saturating_sub(entry.told);
    match window {
        None => entry.owes && entry.is_settled(),
        Some(window) => {
            let due = if entry.is_settled() { (window / 16).min(TOGETHER) } else { window / 4 };
            consumed >= due.max(1)
        }
    }
}

/// The time of the next mark of a source that has sent events.
pub(super) fn mark_due(source: &mut Source, now: Instant) -> Option<Instant> {
    source.unanswered = 0;
    match source.mark_due {
        // An event after unanswered marks brings the next mark forward.
        Some(due) if due <= now + MARK_AFTER => None,
        _ => {
            source.mark_due = Some(now + MARK_AFTER);
            source.mark_due
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Fates;

    /// The reports while a reader takes each event as it arrives.
    fn reports(events: u64, window: u64) -> u64 {
        let (mut entry, mut reports) = (Entry::default(), 0);
        for event in 1..=events {
            entry.arrived = event;
            entry.fates = Fates { delivered: event, ..Fates::default() };
            if owes_report(&entry, Some(window)) {
                entry.told = event;
                reports += 1;
            }
        }
        reports
    }

    #[test]
    fn a_reader_that_keeps_up_reports_several_events_of_a_large_window_together() {
        let windows = [1, 8, 31, 32, 64, 128, 4096];
        assert_eq!(windows.map(|window| reports(120, window)), [120, 120, 120, 60, 30, 15, 15]);
    }
}
