//! What is due.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Node;
use crate::Lane;
use crate::output::To;
use crate::wire::{self, Kind, Pong};

impl Node {
    /// When [`Node::wake`] is to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let digest = (!self.peers.is_empty()).then_some(self.telling.digest_due);
        [self.due, digest].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant) {
        if self.telling.digest_due <= now {
            self.digest(now);
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        self.ask_overdue(now);
        self.ping(now);
        self.mark_due(now);
        self.give_up(now);
        self.set_due(now);
    }

    fn ask_overdue(&mut self, now: Instant) {
        let overdue = self.peers.iter().filter(|(_, peer)| peer.ask_due.is_some_and(|due| due <= now));
        for host in overdue.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.ask(&host, now);
        }
    }

    fn ping(&mut self, now: Instant) {
        let due = self.peers.iter().filter(|(_, peer)| peer.clock.due.is_some_and(|due| due <= now));
        for host in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let mut frame = Vec::new();
            wire::begin(&mut frame, Kind::Ping, self.config.incarnation.0).u64(now.get());
            self.send(To::Host(host.clone().into()), Lane::Control, &frame);
            if let Some(peer) = self.peers.get_mut(&host) {
                peer.clock.pinged(now);
            }
        }
    }

    pub(crate) fn pinged(&mut self, from: &Name, t0: u64, now: Instant) {
        let mut frame = Vec::new();
        let mut writer = wire::begin(&mut frame, Kind::Pong, self.config.incarnation.0);
        writer.u64(t0);
        writer.u64(now.get());
        self.send(To::Host(from.clone().into()), Lane::Control, &frame);
    }

    pub(crate) fn answered(&mut self, from: &Name, pong: &Pong, now: Instant) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        // A ping that went behind events waited with them: it says nothing of clocks.
        if !peer.flow.answered(Instant::new(pong.t0), now) {
            peer.clock.answered(Instant::new(pong.t0), Instant::new(pong.t1), now);
        }
    }

    /// Sources whose marks are due, and those that wait.
    fn mark_due(&mut self, now: Instant) {
        for (number, place) in self.sources.iter().map(|(number, place)| (*number, *place)).collect::<Vec<_>>() {
            let Some(source) = self.at_mut(place).and_then(|channel| channel.sources.get_mut(&number)) else {
                continue;
            };
            let open = source.tallies.iter().any(|tally| tally.outstanding() > 0);
            let (due, waits) = (source.mark_due.is_some_and(|due| due <= now), source.waits_until.is_some());
            if due && open {
                self.mark(place, number, now);
            } else if due {
                source.mark_due = None;
            }
            if waits {
                self.probe(place, number, now);
                self.unblock(place, number, now);
            }
        }
    }

    /// The earliest of all that is due at some time.
    fn set_due(&mut self, now: Instant) {
        let peers = self.peers.values().flat_map(|peer| [peer.ask_due, peer.clock.due]);
        let channels = self.channels.iter().flatten().flat_map(|channel| channel.sources.values());
        let sources = channels.flat_map(|source| {
            let probe = now + super::books::PROBE;
            let probe = source.waits_until.map(|until| if until > now { until.min(probe) } else { probe });
            [source.mark_due, probe]
        });
        let requests = self.requests.values().map(|waiting| Some(waiting.until));
        let earliest = peers.chain(sources).chain(requests).flatten().min();
        self.due = [self.due, earliest].into_iter().flatten().min();
    }
}
