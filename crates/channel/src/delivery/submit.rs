//! From a source to the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::Format;
use qfabric_types::{Instant, Nanos};

use super::channel::{Channel, Roster, Tally};
use super::link::Link;
use super::scratch::Scratch;
use super::{Delivery, books, receive};
use crate::exit::Exit;
use crate::filter::{self, Choice, Draft};
use crate::output::To;
use crate::wire::{Header, Kind, write_attributes};
use crate::{AttributesRef, Event, Lane, Pressure, Sent, SourceId, Submission, SubmitError, Target};

/// What the steps of one submission share.
struct Step<'a> {
    channel: &'a mut Channel,
    scratch: &'a mut Scratch,
    links: &'a mut BTreeMap<Name, Link>,
    host: &'a Arc<Name>,
    now: Instant,
    exit: &'a mut Exit,
}

impl Delivery {
    /// See [`crate::Node::submit`].
    pub fn submit(
        &mut self,
        source: SourceId,
        event: &Submission<'_>,
        now: Instant,
        exit: &mut Exit,
    ) -> Result<Sent, SubmitError> {
        let gone = SubmitError::Gone(source.0);
        let place = self.channels.of_source(source.0).ok_or(gone.clone())?;
        let channel = self.channels.at_mut(place).ok_or(gone)?;
        check(channel, source.0, event, now)?;
        write_attributes(event.attributes, &mut self.scratch.attributes)?;
        let (scratch, links, host) = (&mut self.scratch, &mut self.links, &self.host);
        let mut step = Step { channel, scratch, links, host, now, exit };
        let done = step.run(source.0, event);
        let due = step.channel.sources.get_mut(&source.0).and_then(|source| match done {
            Ok(sent) if sent.remote > 0 => books::mark_due(source, now),
            _ => None,
        });
        due.into_iter().for_each(|due| exit.wake_by(due));
        match done {
            Err(SubmitError::WouldBlock { until }) => {
                self.probe(place, source.0, now, exit);
                exit.wake_by(until);
            }
            _ => self.after(),
        }
        done
    }
}

/// What can be said before anybody is asked.
fn check(channel: &mut Channel, source: u32, event: &Submission<'_>, now: Instant) -> Result<(), SubmitError> {
    let have = channel.spec.types.len();
    let known = channel.spec.types.get(usize::from(event.event_type));
    let least = known.ok_or(SubmitError::NoType { asked: event.event_type, have })?.format.size;
    let bytes = event.payload.len();
    if bytes < least as usize || bytes > Format::MAX_SIZE as usize {
        return Err(SubmitError::Size { bytes, least });
    }
    if event.priority > 7 {
        return Err(SubmitError::Priority(event.priority));
    }
    if let Some(deadline) = event.deadline.filter(|deadline| *deadline < now) {
        if let Some(source) = channel.sources.get_mut(&source) {
            source.counts.expired += 1;
        }
        return Err(SubmitError::Late { by: now.since(deadline) });
    }
    Ok(())
}

impl Step<'_> {
    fn run(&mut self, number: u32, event: &Submission<'_>) -> Result<Sent, SubmitError> {
        let mut sent = Sent::default();
        let wanted = aim(&self.channel.roster, event, &mut self.scratch.chosen);
        let passed = self.filter(number, event, wanted);
        sent.filtered = (wanted - passed) as u32;
        let held = self.hold_back(number, event.payload.len())?;
        let late = self.leave_out_late(event);
        sent.dropped = held + late;
        let Some(source) = self.channel.sources.get_mut(&number) else { return Err(SubmitError::Gone(number)) };
        source.last += 1;
        sent.number = source.last;
        if passed > 0 {
            for (tally, chosen) in source.tallies.iter_mut().zip(&self.scratch.chosen) {
                tally.sent += u64::from(*chosen);
            }
            sent.remote = self.send(number, event, sent.number);
            if sent.remote > 0 && event.deadline.is_some() && self.channel.lane() == Lane::Data {
                self.follow(self.scratch.frame.len());
            }
            sent.local = self.give(number, event, sent.number);
        }
        let counts = &mut self.channel.sources.get_mut(&number).ok_or(SubmitError::Gone(number))?.counts;
        counts.submitted += 1;
        counts.sent += wanted as u64;
        counts.filtered += u64::from(sent.filtered);
        counts.dropped += u64::from(held);
        counts.late += u64::from(late);
        Ok(sent)
    }

    /// Lets the OUT-filters choose. Gives how many are left.
    fn filter(&mut self, number: u32, submission: &Submission<'_>, wanted: usize) -> usize {
        self.scratch.changed.clear();
        self.scratch.copies_out.clear();
        if self.channel.filters.out.is_empty() || wanted == 0 {
            return wanted;
        }
        let Scratch { chosen, attributes, changed, copies_out: copies, .. } = &mut *self.scratch;
        let source = self.channel.sources.get(&number);
        let (next, user) = source.map_or((0, None), |source| (source.last + 1, source.user));
        let id = self.channel.id.clone();
        let event = as_event(&id, self.host, number, next, submission, attributes, self.now);
        let mut draft = Draft { event, changed, now: self.now };
        let Channel { filters, roster, .. } = &mut *self.channel;
        let choice = Choice { generation: roster.generation, seats: &roster.seats, chosen, copies, user };
        filter::choose(&mut filters.out, &mut draft, choice, &mut self.exit.out)
    }

    /// Where the channel blocks: refuses while a sink is slow, and passes it over when it was waited for long enough.
    fn hold_back(&mut self, number: u32, bytes: usize) -> Result<u32, SubmitError> {
        let Pressure::Block { patience } = self.channel.spec.pressure else { return Ok(0) };
        if let Some(source) = self.channel.sources.get_mut(&number) {
            let idle = source.tallies.iter().all(|tally| tally.outstanding() == 0);
            source.largest = if idle { bytes } else { source.largest.max(bytes) };
        }
        let (mut until, mut dropped) = (None::<Instant>, 0);
        for at in 0..self.scratch.chosen.len() {
            if !self.scratch.chosen[at] {
                continue;
            }
            let full = self.channel.is_full(number, at, &self.channel.roster.seats[at]);
            let Some(source) = self.channel.sources.get_mut(&number) else { break };
            match wait_for(&mut source.tallies[at], full, self.now, patience) {
                Wait::No => {}
                Wait::Until(end) => until = Some(until.map_or(end, |until| until.min(end))),
                Wait::Over => {
                    self.scratch.chosen[at] = false;
                    dropped += 1;
                }
            }
        }
        let Some(until) = until else { return Ok(dropped) };
        if let Some(source) = self.channel.sources.get_mut(&number) {
            source.waits_until = Some(until);
            source.counts.blocked += 1;
        }
        Err(SubmitError::WouldBlock { until })
    }

    /// Passes over the sinks of hosts where the event would come too late; how many.
    fn leave_out_late(&mut self, event: &Submission<'_>) -> u32 {
        let Some(deadline) = event.deadline.filter(|_| self.channel.lane() == Lane::Data) else { return 0 };
        let (left, mut late) = (deadline.since(self.now), 0);
        for span in self.channel.roster.spans.iter().filter(|span| !span.local) {
            let chosen = &mut self.scratch.chosen[span.from..span.to];
            let flow = self.links.get_mut(&*span.host).map(|link| &mut link.flow);
            if chosen.contains(&true) && flow.is_some_and(|flow| !flow.is_in_time(left, self.now)) {
                late += filter::count(chosen) as u32;
                chosen.fill(false);
            }
        }
        late
    }

    /// So many bytes with a deadline have gone to the hosts of the chosen sinks: pings go behind them, where they are due.
    fn follow(&mut self, bytes: usize) {
        let t0 = self.now.get();
        for span in self.channel.roster.spans.iter().filter(|span| !span.local) {
            let goes_there = self.scratch.chosen[span.from..span.to].contains(&true);
            let link = self.links.get_mut(&*span.host).filter(|_| goes_there);
            if link.is_some_and(|link| link.flow.sent(bytes, self.now)) {
                self.exit.say(To::Host(span.host.clone()), Lane::Data, Kind::Ping, |writer| writer.u64(t0));
            }
        }
    }

    /// One frame for all where all hosts get it whole, else one for each host, and one for each sink whose own filters
    /// changed the event. All have the event's number.
    fn send(&mut self, number: u32, submission: &Submission<'_>, event_number: u64) -> u32 {
        let Scratch { chosen, attributes, changed, copies_out: copies, frame, sinks, .. } = &mut *self.scratch;
        let payload = changed.payload(submission.payload);
        let roster = &self.channel.roster;
        let header = Header {
            source: number,
            number: event_number,
            event_type: submission.event_type,
            priority: submission.priority,
            sent_ns: self.now.get(),
            left_ns: submission.deadline.map(|deadline| deadline.since(self.now).get()),
        };
        let (lane, incarnation) = (self.channel.lane(), self.exit.incarnation());
        let (remote, whole) = survey(roster, submission.event_type, chosen);
        if remote == 0 {
            return 0;
        }
        let local = roster.local();
        if whole && copies.iter().all(|(at, _)| local.contains(&at)) {
            header.write(frame, incarnation, None::<(u64, std::slice::Iter<'_, u32>)>, attributes, payload);
            self.exit.send(To::Channel(self.channel.id.clone()), lane, frame);
            return remote;
        }
        for span in roster.spans.iter().filter(|span| !span.local) {
            let mut frame_for = |sinks: &[u32], payload: &[u8]| {
                header.write(frame, incarnation, Some((span.incarnation, sinks.iter())), attributes, payload);
                self.exit.send(To::Host(span.host.clone()), lane, frame);
            };
            sinks.clear();
            for at in (span.from..span.to).filter(|at| chosen[*at]) {
                let sink = roster.seats[at].member.number;
                match copies.get(at) {
                    Some(copy) => frame_for(&[sink], copy),
                    None => sinks.push(sink),
                }
            }
            if !sinks.is_empty() {
                frame_for(sinks, payload);
            }
        }
        remote
    }

    /// To the chosen sinks of this host, by the IN-filters: copies for single sinks, then the common event.
    fn give(&mut self, number: u32, submission: &Submission<'_>, event_number: u64) -> u32 {
        let local = self.channel.roster.local();
        let Scratch { chosen, alone, attributes, changed, copies_out, copies_in: copies, meant, outcome, .. } =
            &mut *self.scratch;
        let chosen = &mut chosen[local.clone()];
        let given = filter::count(chosen);
        if given == 0 {
            return 0;
        }
        for (seat, chosen) in self.channel.roster.seats[local.clone()].iter().zip(&*chosen) {
            if let Some(sink) = self.channel.sinks.get_mut(&seat.member.number) {
                // Another host's source may have said that it sent as many as can be counted.
                sink.totals.sent = sink.totals.sent.saturating_add(u64::from(*chosen));
            }
        }
        let id = self.channel.id.clone();
        let mut event = as_event(&id, self.host, number, event_number, submission, attributes, self.now);
        let common = std::mem::take(changed);
        event.payload = common.payload(submission.payload);
        let time = self.now.get();
        let source = self.channel.sources.get_mut(&number);
        let mut tallies = source.map_or_else(Vec::new, |source| std::mem::take(&mut source.tallies));
        let mut books = receive::Books::Own(tallies.get_mut(local.clone()).unwrap_or_default());
        let (channel, now, out) = (&mut *self.channel, self.now, &mut self.exit.out);
        let mut dispatch = receive::Dispatch { channel, changed, copies, meant, outcome, now, out };
        for (at, payload) in copies_out.iter().filter(|(at, _)| local.contains(at)) {
            alone.clear();
            alone.resize(chosen.len(), false);
            std::mem::swap(&mut alone[at - local.start], &mut chosen[at - local.start]);
            dispatch.run(Event { payload, ..event }, self.host, time, alone, &mut books);
        }
        dispatch.run(event, self.host, time, chosen, &mut books);
        *changed = common;
        if let Some(source) = self.channel.sources.get_mut(&number) {
            source.tallies = tallies;
        }
        given as u32
    }
}

/// Sets who is to get it before filters choose: those who want the type, and are meant. Gives how many.
fn aim(roster: &Roster, event: &Submission<'_>, chosen: &mut Vec<bool>) -> usize {
    chosen.clear();
    let wanted = 1_u64 << event.event_type;
    chosen.extend(roster.types.iter().map(|types| types & wanted != 0));
    let meant = |host: &Name, number: u32| match event.target {
        Target::All => true,
        Target::Host(name) => host == name,
        Target::Sink(name, sink) => number == sink && host == name,
    };
    if event.target != Target::All {
        for (seat, chosen) in roster.seats.iter().zip(chosen.iter_mut()) {
            *chosen &= meant(&seat.member.host, seat.member.number);
        }
    }
    filter::count(chosen)
}

/// How many sinks elsewhere are chosen, and whether these are all on all hosts that want the type.
fn survey(roster: &Roster, event_type: u16, chosen: &[bool]) -> (u32, bool) {
    let (mut remote, mut whole) = (0, true);
    let wanted = 1_u64 << event_type;
    for span in roster.spans.iter().filter(|span| !span.local) {
        let mut here = 0;
        for (types, chosen) in roster.types[span.from..span.to].iter().zip(&chosen[span.from..span.to]) {
            here += u32::from(*chosen);
            whole &= *chosen || types & wanted == 0;
        }
        remote += here;
        // A host that wants nothing of it need not get it.
        whole &= here > 0;
    }
    (remote, whole)
}

enum Wait {
    No,
    Until(Instant),
    Over,
}

fn wait_for(tally: &mut Tally, full: bool, now: Instant, patience: Nanos) -> Wait {
    if !full {
        (tally.blocked_since, tally.overdue) = (None, false);
        return Wait::No;
    }
    let until = *tally.blocked_since.get_or_insert(now) + patience;
    tally.overdue |= now >= until;
    if tally.overdue { Wait::Over } else { Wait::Until(until) }
}

fn as_event<'a>(
    channel: &'a ChannelId,
    host: &'a Name,
    source: u32,
    number: u64,
    submission: &Submission<'a>,
    attributes: &'a [u8],
    now: Instant,
) -> Event<'a> {
    Event {
        channel,
        host,
        source: SourceId(source),
        number,
        event_type: submission.event_type,
        priority: submission.priority,
        sent: now,
        deadline: submission.deadline,
        attributes: AttributesRef::checked(attributes),
        payload: submission.payload,
    }
}
