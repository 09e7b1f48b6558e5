//! Timed work for events: pings for clocks, marks, and notice to sources that wait.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::link::Entry;
use super::{Delivery, books, link};
use crate::Lane;
use crate::exit::Exit;
use crate::output::Destination;
use crate::wire::{Kind, Pong};

impl Delivery {
    pub(crate) fn wake(&mut self, now: Instant, exit: &mut Exit) {
        for link in self.links.values_mut().filter(|link| link.clock.due.is_some_and(|due| due <= now)) {
            let at = link::stamp(Lane::Control, now).get();
            exit.send(Destination::Host(link.name.clone()), Lane::Control, Kind::Ping, |writer| writer.u64(at));
            link.clock.pinged(now);
        }
        self.give_up_stale(now, exit);
        self.end_overdue(now);
        self.pump_due(now, exit);
        for (number, place) in self.channels.sources().collect::<Vec<_>>() {
            self.attend(place, number, now, exit);
        }
        self.due(now).into_iter().for_each(|due| exit.wake_by(due));
    }

    /// Handles a source that waits or whose mark is due.
    fn attend(&mut self, place: u32, number: u32, now: Instant, exit: &mut Exit) {
        let channel = self.channels.at_mut(place);
        let Some(source) = channel.and_then(|channel| channel.sources.get_mut(&number)) else { return };
        let open = source.tallies.iter().any(|tally| tally.outstanding() > 0);
        let (due, waits) = (source.mark_due.is_some_and(|due| due <= now), source.waits_until.is_some());
        if due && open {
            self.mark(place, number, now, exit);
        } else if due {
            source.mark_due = None;
        }
        if waits {
            self.probe(place, number, now, exit);
            self.unblock(place, number, now, exit);
        }
    }

    /// The earliest due time.
    fn due(&self, now: Instant) -> Option<Instant> {
        let pings = self.links.values().map(|link| link.clock.due);
        let sources = self.channels.iter().flat_map(|channel| channel.sources.values());
        let sources = sources.flat_map(|source| {
            let probe = now + books::PROBE;
            let probe = source.waits_until.map(|until| if until > now { until.min(probe) } else { probe });
            [source.mark_due, probe]
        });
        let incomplete = self.links.values().flat_map(|link| &link.ways).map(|way| way.assembly.due());
        pings.chain(sources).chain(incomplete).chain([self.pump_at(now), self.ends_at()]).flatten().min()
    }

    /// A host asks for the difference of the clocks, or whether its frames have arrived.
    pub(crate) fn pinged(&mut self, from: &Name, t0: u64, now: Instant, exit: &mut Exit) {
        let Some(link) = self.links.get_mut(from) else { return };
        let (to, is_bulk) = (link.name.clone(), link::stamped(Instant::new(t0)) == Some(Lane::Bulk));
        // A report that goes with the answer costs neither host a write and a wake-up of its own.
        if let Some((source, sink)) = link.taken.take_if(|_| is_bulk) {
            let is_due = |entry: &Entry| entry.sink == sink && entry.is_settled() && entry.fates.sum() > entry.told;
            self.report(from, source, is_due, exit);
        }
        exit.send(Destination::Host(to), Lane::Control, Kind::Pong, |writer| {
            writer.u64(t0);
            writer.u64(now.get());
        });
    }

    pub(crate) fn answered(&mut self, from: &Name, pong: &Pong, now: Instant, exit: &mut Exit) {
        let (Some(link), at) = (self.links.get_mut(from), Instant::new(pong.t0)) else { return };
        match link::stamped(at) {
            Some(Lane::Control) => link.clock.answered(at, Instant::new(pong.t1), now),
            // A ping that went behind events has waited with them, so it says nothing about clocks.
            Some(lane) if link.way_mut(lane).flow.answered(at, now) => self.pump(from, now, exit),
            _ => {}
        }
    }
}
