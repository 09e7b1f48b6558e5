//! From a queue to the application.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::channel::Mode;
use super::join::gone;
use super::{Node, books};
use crate::counts::Fate;
use crate::queue::Waiting;
use crate::{Error, Pressure, SinkId, SourceId, Taken};

impl Node {
    /// Takes the next event of a queue: by priority, then in the channel's order; late ones are passed over. False:
    /// there is none. `into` is used again and again, so that taking needs no memory.
    pub fn take(&mut self, sink: SinkId, into: &mut Taken, now: Instant) -> Result<bool, Error> {
        let place = *self.sinks.get(&sink.0).ok_or(gone("sink", sink.0))?;
        loop {
            let Some(waiting) = self.pop(place, sink.0) else { return Ok(false) };
            let is_late = waiting.meta.deadline.is_some_and(|deadline| deadline < now);
            self.consumed(place, sink.0, &waiting, is_late, now);
            if !is_late {
                self.hand_over(place, sink.0, waiting, into);
                return Ok(true);
            }
        }
    }

    /// Of the events of a source that were taken from a queue, so many were of no use any more when their reader came to
    /// them: they were late, not delivered. More than were taken are not believed.
    pub fn came_late(&mut self, sink: SinkId, (host, source): (&Name, SourceId), events: u64) -> Result<(), Error> {
        let place = *self.sinks.get(&sink.0).ok_or(gone("sink", sink.0))?;
        let is_own = *host == *self.host;
        let late = if is_own {
            self.own_tally(source.0, sink.0).map_or(0, |tally| tally.fates.turn_late(events))
        } else {
            let inbound = self.peers.get_mut(host).and_then(|peer| peer.inbound.get_mut(&source.0));
            let entry = inbound.filter(|inbound| inbound.slot == place).and_then(|inbound| inbound.entry(sink.0));
            entry.map_or(0, |entry| entry.fates.turn_late(events))
        };
        let counted = self.at_mut(place).and_then(|channel| channel.sinks.get_mut(&sink.0));
        counted.into_iter().for_each(|sink| _ = sink.totals.fates.turn_late(late));
        if late > 0 && !is_own {
            self.report(host, source.0, |entry| entry.sink == sink.0);
        }
        Ok(())
    }

    fn pop(&mut self, place: u32, sink: u32) -> Option<Waiting> {
        let sink = self.at_mut(place)?.sinks.get_mut(&sink)?;
        let Mode::Queue(queue) = &mut sink.mode else { return None };
        queue.pop()
    }

    fn hand_over(&mut self, place: u32, sink: u32, waiting: Waiting, into: &mut Taken) {
        let Some(channel) = self.at_mut(place) else { return };
        into.meta = Some(waiting.meta);
        into.host = Some(waiting.host);
        into.channel = Some(channel.id.clone());
        let used = std::mem::replace(&mut into.bytes, waiting.bytes);
        if let Some(Mode::Queue(queue)) = channel.sinks.get_mut(&sink).map(|sink| &mut sink.mode) {
            queue.give_back(used);
        }
    }

    /// Books it, tells the source where it is waiting for that, and lets sources of this host go on.
    fn consumed(&mut self, place: u32, number: u32, waiting: &Waiting, is_late: bool, now: Instant) {
        let Some(channel) = self.channels.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let Some(sink) = channel.sinks.get_mut(&number) else { return };
        let fate = if is_late { Fate::Late } else { Fate::Delivered };
        sink.totals.fates.book(fate);
        let capacity = match (&sink.mode, channel.spec.pressure) {
            (Mode::Queue(queue), Pressure::Block { .. }) => Some(queue.capacity()),
            _ => None,
        };
        let source = waiting.meta.source.0;
        if *waiting.host == *self.host {
            self.own_tally(source, number).into_iter().for_each(|tally| tally.fates.book(fate));
            if capacity.is_some() {
                self.unblock_all(place, now);
            }
            return;
        }
        let peer = self.peers.get_mut(&*waiting.host);
        let Some(entry) = peer.and_then(|peer| peer.inbound.get_mut(&source)?.entry(number)) else { return };
        entry.fates.book(fate);
        if books::owes_report(entry, capacity) {
            self.report(&waiting.host, source, |entry| entry.sink == number);
        }
    }

    fn unblock_all(&mut self, place: u32, now: Instant) {
        let Some(channel) = self.at(place) else { return };
        let waiting = channel.sources.iter().filter(|(_, source)| source.waits_until.is_some());
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.unblock(place, number, now);
        }
    }
}
