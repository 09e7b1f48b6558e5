//! Submits an event: checks, filters, back-pressure, and delivery to this host's sinks and other hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};

use super::channel::{Channel, Roster, Tally};
use super::link::Link;
use super::pipe::Pipe;
use super::scratch::Scratch;
use super::{Delivery, books, receive};
use crate::exit::Exit;
use crate::filter::{self, Accounts, Choice, Draft, Sender};
use crate::wire::write_attributes;
use crate::{AttributesRef, Event, Pressure, Sent, SourceId, Submission, SubmitError, Target};

/// The state that the steps of one submission share.
pub(super) struct Step<'a> {
    pub channel: &'a mut Channel,
    pub scratch: &'a mut Scratch,
    pub links: &'a mut BTreeMap<Name, Link>,
    pub host: &'a Arc<Name>,
    pub accounts: &'a mut Accounts,
    pub now: Instant,
    pub exit: &'a mut Exit,
}

impl Delivery {
    pub(crate) fn submit(
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
        let accounts = &mut self.accounts;
        let mut step = Step { channel, scratch, links, host, accounts, now, exit };
        let done = step.run(source.0, event);
        let (mut due, mut waits) = (None, false);
        if let Some(source) = step.channel.sources.get_mut(&source.0) {
            let has_sent = done.as_ref().is_ok_and(|sent| sent.remote > 0);
            due = if has_sent { books::mark_due(source, now) } else { None };
            waits = source.waiting > 0;
        }
        due.into_iter().for_each(|due| exit.wake_by(due));
        if waits {
            self.pump_all(now, exit);
        }
        match done {
            Err(SubmitError::WouldBlock { until }) => {
                self.probe(place, source.0, now, exit);
                exit.wake_by(until);
            }
            // A source that passes a sink over does not wait, so nothing else asks about those that have left.
            Ok(Sent { dropped: 1.., .. }) => {
                self.after();
                self.probe_departed(place, now, exit);
            }
            _ => self.after(),
        }
        done
    }
}

/// The checks that need no sink and no filter.
fn check(channel: &mut Channel, source: u32, event: &Submission<'_>, now: Instant) -> Result<(), SubmitError> {
    let have = channel.spec.types.len();
    let known = channel.spec.types.get(usize::from(event.event_type));
    let least = known.ok_or(SubmitError::NoType { asked: event.event_type, have })?.format.size;
    let bytes = event.payload.len();
    let most = channel.most();
    if bytes < least as usize || bytes > most {
        return Err(SubmitError::Size { bytes, least, most });
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
        let held = self.hold_back(number, self.longest(event.payload) + self.scratch.attributes.len())?;
        let held = held + self.leave_out_crowded(number, event.payload.len());
        let late = self.leave_out_late(event);
        sent.dropped = held + late;
        let mut of = self.channel.source_mut(number).ok_or(SubmitError::Gone(number))?;
        of.source.last += 1;
        sent.number = of.source.last;
        if passed > 0 {
            of.sent(&self.scratch.chosen);
            sent.remote = self.send(number, event, sent.number);
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

    /// Runs the OUT-filters. Returns how many sinks are left.
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
        let sender = Sender::of(user, self.host);
        let mut draft = Draft { event, changed, now: self.now, sender };
        let Channel { filters, roster, .. } = &mut *self.channel;
        let (generation, seats, accounts) = (roster.generation, &roster.seats[..], &mut *self.accounts);
        let choice = Choice { generation, seats, chosen, copies, user, accounts };
        filter::choose(&mut filters.out, &mut draft, choice, &mut self.exit.out)
    }

    /// On a channel that blocks: refuses while a sink is slow, and passes the sink over after the patience. Returns how
    /// many sinks are passed over.
    fn hold_back(&mut self, number: u32, bytes: usize) -> Result<u32, SubmitError> {
        let Pressure::Block { patience } = self.channel.spec.pressure else { return Ok(0) };
        self.channel.source_mut(number).into_iter().for_each(|mut of| of.grow(bytes));
        let (mut until, mut dropped) = (None::<Instant>, 0);
        let Scratch { full, chosen, .. } = &mut *self.scratch;
        full.clear();
        full.resize(chosen.len(), false);
        books::who_is_full(self.channel, self.links, number, Pipe::is_full, full);
        for at in 0..self.scratch.chosen.len() {
            if !self.scratch.chosen[at] {
                continue;
            }
            let full = self.scratch.full[at];
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

    /// Gives the event to the chosen sinks of this host through the IN-filters: first the copies for single sinks, then
    /// the common event.
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
                // Saturating, because a mark of another host may have set the largest number.
                sink.totals.sent = sink.totals.sent.saturating_add(u64::from(*chosen));
            }
        }
        let id = self.channel.id.clone();
        let mut event = as_event(&id, self.host, number, event_number, submission, attributes, self.now);
        let common = std::mem::take(changed);
        event.payload = common.payload(submission.payload);
        let time = self.now.get();
        let source = self.channel.sources.get_mut(&number);
        let (user, mut tallies) =
            source.map_or_else(Default::default, |source| (source.user, std::mem::take(&mut source.tallies)));
        let sender = Sender::of(user, self.host);
        let mut books = receive::Books::Own(tallies.get_mut(local.clone()).unwrap_or_default());
        let (channel, accounts) = (&mut *self.channel, &mut *self.accounts);
        let (now, is_withdrawn, out) = (self.now, false, &mut self.exit.out);
        let mut dispatch =
            receive::Dispatch { channel, changed, copies, meant, outcome, sender, accounts, now, is_withdrawn, out };
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

/// Sets the sinks that may receive the event before filters choose: those of the target that receive the type. Returns
/// how many.
fn aim(roster: &Roster, event: &Submission<'_>, chosen: &mut Vec<bool>) -> usize {
    chosen.clear();
    let wanted = 1_u64 << event.event_type;
    let (name, sink) = match event.target {
        Target::All => {
            chosen.extend(roster.types.iter().map(|types| types & wanted != 0));
            return filter::count(chosen);
        }
        Target::Host(name) => (name, None),
        Target::Sink(name, sink) => (name, Some(sink)),
    };
    // Only the host's own seats are compared: there may be thousands of others.
    chosen.resize(roster.seats.len(), false);
    let Some(span) = roster.of_host(name) else { return 0 };
    let seats = span.from..span.to;
    let receivers = roster.seats[seats.clone()].iter().zip(&roster.types[seats.clone()]);
    for (chosen, (seat, types)) in chosen[seats].iter_mut().zip(receivers) {
        *chosen = sink.is_none_or(|sink| seat.member.number == sink) && types & wanted != 0;
    }
    filter::count(chosen)
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
