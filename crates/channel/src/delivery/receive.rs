//! Gives an event, from the network or a source of this host, to the sinks of this host.

use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Delivery;
use super::channel::{Bound, Channel, Mode, Sink, Tally};
use super::link::{Inbound, Origin, Way};
use super::scratch::{Outcomes, Scratch};
use crate::counts::Fate;
use crate::exit::Exit;
use crate::filter::{self, Accounts, Changed, Choice, Copies, Draft, Sender};
use crate::output::Outputs;
use crate::wire::EventFrame;
use crate::{Event, EventType, Order, Pressure, SinkId, SourceId};

/// The place in which an event's outcome is recorded.
pub(crate) enum Books<'a> {
    /// The tallies of a source of this host, for this host's seats.
    Own(&'a mut [Tally]),
    /// The entries of another host's source, which are reported to it.
    Of(&'a mut Inbound),
}

impl Books<'_> {
    fn book(&mut self, at: usize, sink: u32, fate: Fate) {
        let fates = match self {
            Books::Own(tallies) => tallies.get_mut(at).map(|tally| &mut tally.fates),
            Books::Of(inbound) => inbound.entry(sink).map(|entry| &mut entry.fates),
        };
        fates.into_iter().for_each(|fates| fates.book(fate));
    }
}

impl Delivery {
    /// An event of another host has arrived.
    pub(crate) fn receive(&mut self, from: &Name, frame: &EventFrame<'_>, now: Instant, exit: &mut Exit) {
        let Some(link) = self.links.get_mut(from) else { return };
        if link.clock.heard(now) {
            exit.wake_by(now);
        }
        let header = &frame.header;
        let Some(inbound) = link.inbound.get_mut(&header.source) else { return exit.counts.unwelcome += 1 };
        let Some(channel) = self.channels.at_mut(inbound.slot) else { return };
        // Copies for single sinks have the number of the original event.
        let again = header.number == inbound.last;
        if header.number < inbound.last || header.number <= inbound.marked {
            return exit.counts.out_of_order += 1;
        }
        if frame.list.is_some_and(|(to, _)| to != exit.incarnation()) {
            return exit.counts.stranger += 1;
        }
        inbound.last = header.number;
        exit.counts.incomplete +=
            link.ways[Way::place(channel.lane())].assembly.followed_by(header.source, header.number);
        let known = channel.spec.types.get(usize::from(header.event_type));
        let is_short = |known: &EventType| !frame.is_withdrawn && frame.payload.len() < known.format.size as usize;
        if known.is_none_or(is_short) || frame.payload.len() > channel.most() {
            return exit.counts.mismatched += 1;
        }
        let sent = link.clock.ours(header.sent_ns, now);
        inbound.time = inbound.time.max(sent.get());
        let id = channel.id.clone();
        let event = Event {
            channel: &id,
            host: from,
            source: SourceId(header.source),
            number: header.number,
            event_type: header.event_type,
            priority: header.priority,
            sent,
            deadline: header.left_ns.map(|left| sent + qfabric_types::Nanos::new(left)),
            attributes: frame.attributes,
            payload: frame.payload,
        };
        if arrived(channel, inbound, frame, &mut self.scratch.chosen) == 0 {
            return exit.counts.out_of_order += u64::from(again);
        }
        let Scratch { chosen, changed, copies_in: copies, meant, outcome, .. } = &mut self.scratch;
        let (name, time, is_withdrawn) = (link.name.clone(), inbound.time, frame.is_withdrawn);
        let (sender, accounts, out) = (Sender::Host(from), &mut self.accounts, &mut exit.out);
        let mut dispatch =
            Dispatch { channel, changed, copies, meant, outcome, sender, accounts, now, is_withdrawn, out };
        dispatch.run(event, &name, time, chosen, &mut Books::Of(inbound));
        self.after();
    }

    /// Applies the effects of events on parameters, and on the accounts of evicted events.
    pub(super) fn after(&mut self) {
        while let Some((origin, sink)) = self.scratch.outcome.evicted.pop() {
            let fates = if *origin.host == *self.host {
                self.own_tally(origin.source, sink).map(|tally| &mut tally.fates)
            } else {
                let link = self.links.get_mut(&*origin.host);
                link.and_then(|link| Some(&mut link.account(&origin, sink)?.fates))
            };
            fates.into_iter().for_each(|fates| fates.book(Fate::Dropped));
        }
        while let Some((bound, value)) = self.scratch.outcome.parameters.pop() {
            self.turn(&bound, value);
        }
    }

    /// Sets the parameter of a bound sink. The filter may have been removed, and a new text may lack the parameter;
    /// then the value is ignored.
    fn turn(&mut self, bound: &Bound, value: i64) {
        let Some(channel) = self.channels.find_mut(&bound.filter.channel) else { return };
        let text = channel.filters.text(&bound.filter);
        if let Ok(place) = text.and_then(|text| text.parameter(bound.parameter.as_str())) {
            *place = value;
        }
    }
}

/// Counts the arrival for the sinks that the event is for and that have not received it before, and sets these sinks in
/// `chosen`. Returns their number.
fn arrived(channel: &Channel, inbound: &mut Inbound, frame: &EventFrame<'_>, chosen: &mut Vec<bool>) -> usize {
    chosen.clear();
    let (mut count, event) = (0, frame.header.number);
    for seat in &channel.roster.seats[channel.roster.local()] {
        let number = seat.member.number;
        let meant = seat.info.wants(frame.header.event_type) && frame.is_for(number);
        let entry = if meant { inbound.entry(number).filter(|entry| entry.last < event) } else { None };
        chosen.push(entry.is_some());
        if let Some(entry) = entry {
            entry.arrived += 1;
            entry.last = event;
            count += 1;
        }
    }
    count
}

/// The inputs for giving an event to this host's sinks.
pub(crate) struct Dispatch<'a> {
    pub channel: &'a mut Channel,
    pub changed: &'a mut Changed,
    pub copies: &'a mut Copies,
    pub meant: &'a mut Vec<bool>,
    pub outcome: &'a mut Outcomes,
    pub sender: Sender<'a>,
    pub accounts: &'a mut Accounts,
    pub now: Instant,
    /// The source has withdrawn the event: it is late, whatever the clocks say.
    pub is_withdrawn: bool,
    pub out: &'a mut Outputs,
}

impl Dispatch<'_> {
    /// `chosen` has one place for each of this host's seats. `time` orders events in queues.
    pub(super) fn run(
        &mut self,
        event: Event<'_>,
        host: &Arc<Name>,
        time: u64,
        chosen: &mut [bool],
        books: &mut Books<'_>,
    ) {
        let is_late = self.is_withdrawn || event.deadline.is_some_and(|deadline| deadline < self.now);
        self.meant.clear();
        self.meant.extend_from_slice(chosen);
        let Channel { filters, roster, sinks, spec, .. } = &mut *self.channel;
        let seats = &roster.seats[roster.local()];
        self.changed.clear();
        self.copies.clear();
        let mut draft = Draft { event, changed: self.changed, now: self.now, sender: self.sender };
        if !is_late && !filters.into.is_empty() {
            let (generation, copies, accounts) = (roster.generation, &mut *self.copies, &mut *self.accounts);
            let choice = Choice { generation, seats, chosen: &mut *chosen, copies, user: None, accounts };
            filter::choose(&mut filters.into, &mut draft, choice, self.out);
        }
        let common = draft.event();
        for (at, seat) in seats.iter().enumerate().filter(|(at, _)| self.meant[*at]) {
            let number = seat.member.number;
            let Some(sink) = sinks.get_mut(&number) else { continue };
            let event = Event { payload: self.copies.get(at).unwrap_or(common.payload), ..common };
            let fate = if is_late {
                Some(Fate::Late)
            } else if !chosen[at] {
                Some(Fate::Filtered)
            } else {
                let place = Place { host, time, rules: (spec.order, spec.pressure) };
                sink.accept(number, &event, &place, self.outcome, self.out)
            };
            if let Some(fate) = fate {
                sink.totals.fates.book(fate);
                books.book(at, number, fate);
            }
        }
    }
}

/// The inputs for an event's place in a queue, besides the event.
struct Place<'a> {
    host: &'a Arc<Name>,
    time: u64,
    rules: (Order, Pressure),
}

impl Sink {
    /// Returns the outcome; `None`: the event waits in the sink's queue.
    fn accept(
        &mut self,
        number: u32,
        event: &Event<'_>,
        place: &Place<'_>,
        outcome: &mut Outcomes,
        out: &mut Outputs,
    ) -> Option<Fate> {
        let queue = match &mut self.mode {
            Mode::Queue(queue) => queue,
            Mode::Bound(bound) => {
                outcome.parameters.extend(bound.field.read(event).map(|value| (bound.clone(), value)));
                return Some(Fate::Delivered);
            }
        };
        let (was_empty, totals) = (queue.len() == 0, &mut self.totals);
        let queued = queue.push(event, place.host, place.time, place.rules, &mut |older| {
            totals.fates.book(Fate::Dropped);
            outcome.evicted.push((Origin::of(older), number));
        });
        if !queued {
            return Some(Fate::Dropped);
        }
        if was_empty {
            out.ready(SinkId(number));
        }
        None
    }

    /// Number of events in the queue.
    pub(crate) fn queued(&self) -> u64 {
        match &self.mode {
            Mode::Queue(queue) => queue.len() as u64,
            Mode::Bound(_) => 0,
        }
    }

    /// Whether the queue has no room for another event of this number of bytes.
    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        matches!(&self.mode, Mode::Queue(queue) if queue.is_full_for(bytes))
    }
}
