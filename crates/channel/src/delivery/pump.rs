//! Sends waiting frames when earlier frames have arrived.

use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::flow::AGAIN;
use super::link::{Link, Way};
use super::pipe::Next;
use super::{Delivery, books};
use crate::Pressure;
use crate::exit::Exit;
use crate::output::Destination;
use crate::wire::{Kind, begin};

impl Delivery {
    /// Sends waiting frames to all hosts that have room.
    pub(super) fn pump_all(&mut self, now: Instant, exit: &mut Exit) {
        let mut out = Vec::new();
        for link in self.links.values_mut() {
            let (name, ways) = link.ways_mut();
            ways.iter_mut().filter(|way| !way.pipe.is_empty()).for_each(|way| way.pump(name, now, exit, &mut out));
        }
        self.gone_out(out);
    }

    /// A host has answered a ping. Sends waiting frames, and lets sources go on that waited for room.
    pub(super) fn pump(&mut self, host: &Name, now: Instant, exit: &mut Exit) {
        let Some(link) = self.links.get_mut(host) else { return };
        let (mut is_drained, mut out) = (false, Vec::new());
        let (name, ways) = link.ways_mut();
        for way in ways.iter_mut().filter(|way| !way.pipe.is_empty()) {
            let was_drained = way.pipe.is_drained();
            way.pump(name, now, exit, &mut out);
            is_drained |= way.pipe.is_drained() && !was_drained;
        }
        self.gone_out(out);
        if is_drained {
            for (number, place) in self.channels.sources().collect::<Vec<_>>() {
                let source = self.channels.at(place).and_then(|channel| channel.sources.get(&number));
                if source.is_some_and(|source| source.waits_until.is_some()) {
                    self.unblock(place, number, now, exit);
                }
            }
        }
    }

    /// Sends waiting frames after a time limit, in case answers were lost or an event's deadline has passed.
    pub(super) fn pump_due(&mut self, now: Instant, exit: &mut Exit) {
        let waiting = self.links.values().filter(|link| link.waits());
        for host in waiting.map(|link| link.name.clone()).collect::<Vec<_>>() {
            self.pump(&host, now, exit);
            let Some(link) = self.links.get_mut(&*host) else { continue };
            let (name, ways) = link.ways_mut();
            ways.iter_mut().filter(|way| !way.pipe.is_empty()).for_each(|way| way.ask_again(name, now, exit));
        }
    }

    /// The time of the next such call.
    pub(super) fn pump_at(&self, now: Instant) -> Option<Instant> {
        self.links.values().any(Link::waits).then(|| now + AGAIN)
    }

    /// The pieces of these sources no longer wait.
    pub(super) fn gone_out(&mut self, sources: Vec<u32>) {
        for number in sources {
            let Some(place) = self.channels.of_source(number) else { continue };
            let source = self.channels.at_mut(place).and_then(|channel| channel.sources.get_mut(&number));
            source.into_iter().for_each(|source| source.waiting = source.waiting.saturating_sub(1));
        }
    }

    /// Lets a waiting source go on if all sinks have room or the patience has passed.
    pub(super) fn unblock(&mut self, place: u32, number: u32, now: Instant, exit: &mut Exit) {
        let Some(channel) = self.channels.at_mut(place) else { return };
        let Pressure::Block { patience } = channel.spec.pressure else { return };
        let mut full = vec![false; channel.roster.seats.len()];
        books::who_is_full(channel, &self.links, number, |pipe| !pipe.is_drained(), &mut full);
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
            exit.out.writable(crate::SourceId(number));
        }
    }
}

impl Link {
    fn waits(&self) -> bool {
        self.ways.iter().any(|way| !way.pipe.is_empty())
    }
}

impl Way {
    /// Sends waiting frames while there is room; collects the sources of completed pieces in `out`.
    fn pump(&mut self, host: &Arc<Name>, now: Instant, exit: &mut Exit, out: &mut Vec<u32>) {
        self.flow.lapse(now);
        while let Some(next) = self.pipe.next(now, |bytes| self.flow.has_room(bytes)) {
            let to = Destination::Host(host.clone());
            let bytes = match next {
                Next::Frame(frame) => exit.send_long(to, self.lane, frame.clone()),
                Next::Late(frame) => {
                    exit.send_raw(to, self.lane, &frame);
                    frame.len()
                }
                Next::Part(part) => {
                    let incarnation = exit.incarnation();
                    let write = |frame: &mut Vec<u8>| part.write(&mut begin(frame, Kind::Fragment, incarnation));
                    exit.send_sized(to, self.lane, part.bytes.len(), write);
                    part.bytes.len()
                }
            };
            out.extend(self.pipe.sent(now));
            if self.flow.sent_safely(bytes, self.stamp(now)) {
                self.ping(host, now, exit);
            }
        }
        if !self.pipe.is_empty() {
            exit.wake_by(now + AGAIN);
        }
    }

    /// Whether this number of bytes that must not be lost can be sent at once.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.pipe.is_empty() && self.flow.has_room(bytes)
    }

    fn ask_again(&mut self, host: &Arc<Name>, now: Instant, exit: &mut Exit) {
        if self.flow.is_asked_again(self.stamp(now)) {
            self.ping(host, now, exit);
        }
    }

    /// Sends a ping behind all frames to the host; its answer says when they had arrived.
    pub(super) fn ping(&self, host: &Arc<Name>, now: Instant, exit: &mut Exit) {
        let at = self.stamp(now).get();
        exit.send(Destination::Host(host.clone()), self.lane, Kind::Ping, |writer| writer.u64(at));
    }
}
