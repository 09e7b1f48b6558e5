//! Takes events from a sink's queue.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::channel::Mode;
use super::link::Origin;
use super::{Delivery, books};
use crate::counts::Fate;
use crate::exit::Exit;
use crate::queue::Waiting;
use crate::{Error, Pressure, SinkId, SourceId, Taken};

impl Delivery {
    pub(crate) fn take(
        &mut self,
        sink: SinkId,
        into: &mut Taken,
        now: Instant,
        exit: &mut Exit,
    ) -> Result<bool, Error> {
        let place = self.channels.of_sink(sink.0).ok_or(Error::no_sink(sink))?;
        loop {
            let Some(waiting) = self.pop(place, sink.0) else { return Ok(false) };
            let is_late = waiting.meta.deadline.is_some_and(|deadline| deadline < now);
            self.consumed(place, sink.0, &waiting, is_late, now, exit);
            if !is_late {
                self.hand_over(place, sink.0, waiting, into);
                return Ok(true);
            }
        }
    }

    pub(crate) fn came_late(
        &mut self,
        sink: SinkId,
        (host, source): (&Name, SourceId),
        events: u64,
        exit: &mut Exit,
    ) -> Result<u64, Error> {
        let place = self.channels.of_sink(sink.0).ok_or(Error::no_sink(sink))?;
        let is_own = *host == *self.host;
        let late = if is_own {
            self.own_tally(source.0, sink.0).map_or(0, |tally| tally.fates.turn_late(events))
        } else {
            let inbound = self.links.get_mut(host).and_then(|link| link.inbound.get_mut(&source.0));
            let entry = inbound.filter(|inbound| inbound.slot == place).and_then(|inbound| inbound.entry(sink.0));
            entry.map_or(0, |entry| entry.fates.turn_late(events))
        };
        let counted = self.channels.at_mut(place).and_then(|channel| channel.sinks.get_mut(&sink.0));
        counted.into_iter().for_each(|sink| _ = sink.totals.fates.turn_late(late));
        if late > 0 && !is_own {
            self.report(host, source.0, |entry| entry.sink == sink.0, exit);
        }
        Ok(late)
    }

    fn pop(&mut self, place: u32, sink: u32) -> Option<Waiting> {
        let sink = self.channels.at_mut(place)?.sinks.get_mut(&sink)?;
        let Mode::Queue(queue) = &mut sink.mode else { return None };
        queue.pop()
    }

    fn hand_over(&mut self, place: u32, sink: u32, waiting: Waiting, into: &mut Taken) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        into.meta = Some(waiting.meta);
        into.host = Some(waiting.host);
        into.channel = Some(channel.id.clone());
        let used = std::mem::replace(&mut into.bytes, waiting.bytes);
        if let Some(Mode::Queue(queue)) = channel.sinks.get_mut(&sink).map(|sink| &mut sink.mode) {
            queue.give_back(used);
        }
    }

    /// Records the outcome, reports to the source if it waits for room, and lets waiting sources of this host go on.
    fn consumed(&mut self, place: u32, number: u32, waiting: &Waiting, is_late: bool, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        let Some(sink) = channel.sinks.get_mut(&number) else { return };
        let fate = if is_late { Fate::Late } else { Fate::Delivered };
        sink.totals.fates.book(fate);
        let capacity = match (&sink.mode, channel.spec.pressure) {
            (Mode::Queue(queue), Pressure::Block { .. }) => Some(queue.capacity()),
            _ => None,
        };
        let window = capacity.map(|capacity| channel.window(capacity, waiting.bytes.len()));
        let source = waiting.meta.source.0;
        if *waiting.host == *self.host {
            self.own_tally(source, number).into_iter().for_each(|tally| tally.fates.book(fate));
            if capacity.is_some() {
                self.unblock_all(place, now, exit);
            }
            return;
        }
        let Some(link) = self.links.get_mut(&*waiting.host) else { return };
        let Some(entry) = link.account(&Origin::of(waiting), number) else { return };
        entry.fates.book(fate);
        if books::owes_report(entry, window) {
            self.report(&waiting.host, source, |entry| entry.sink == number, exit);
        } else if window.is_some() {
            link.taken = Some((source, number));
        }
    }

    /// Lets those waiting sources of a channel go on that have room.
    pub(super) fn unblock_all(&mut self, place: u32, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at(place) else { return };
        let waiting = channel.sources.iter().filter(|(_, source)| source.waits_until.is_some());
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.unblock(place, number, now, exit);
        }
    }
}
