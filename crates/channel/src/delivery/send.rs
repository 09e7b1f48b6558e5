//! Sends an event from a source to other hosts: at once if the network has room, otherwise behind the waiting frames.

use std::sync::Arc;

use qfabric_types::Nanos;
use qfabric_types::channel::Name;

use super::channel::{Channel, Roster, Span};
use super::pipe::Piece;
use super::scratch::Scratch;
use super::submit::Step;
use crate::bundles::Wait;
use crate::filter;
use crate::output::Destination;
use crate::wire::Header;
use crate::{Lane, Limits, Submission};

/// No list of sinks: the event is for all.
const ALL: Option<(u64, std::slice::Iter<'_, u32>)> = None;

impl Step<'_> {
    /// Passes over the sinks of hosts whose pipe has no room for a large event, or for an event behind one. Returns how
    /// many. On a channel that blocks the source has waited before.
    pub(super) fn leave_out_crowded(&mut self, number: u32, bytes: usize) -> u32 {
        let waits = self.channel.sources.get(&number).is_some_and(|source| source.waiting > 0);
        if self.channel.blocks() || !waits && bytes <= Limits::WHOLE {
            return 0;
        }
        let mut dropped = 0;
        for span in self.channel.roster.spans.iter().filter(|span| !span.local) {
            let chosen = &mut self.scratch.chosen[span.from..span.to];
            if self.links.get(&*span.host).is_some_and(|link| !link.way(self.channel.lane()).pipe.has_room(bytes)) {
                dropped += filter::count(chosen) as u32;
                chosen.fill(false);
            }
        }
        dropped
    }

    /// Passes over the sinks of hosts that the event would reach too late. Returns how many.
    pub(super) fn leave_out_late(&mut self, event: &Submission<'_>) -> u32 {
        let Some(deadline) = event.deadline.filter(|_| self.channel.lane() != Lane::Control) else { return 0 };
        let (left, mut late) = (deadline.since(self.now), 0);
        for span in self.channel.roster.spans.iter().filter(|span| !span.local) {
            let chosen = &mut self.scratch.chosen[span.from..span.to];
            if !chosen.contains(&true) {
                continue;
            }
            let Some(link) = self.links.get_mut(&*span.host) else { continue };
            let way = link.way_mut(self.channel.lane());
            if !way.flow.is_in_time(way.pipe.bytes(), (left, event.priority), self.now) {
                late += filter::count(chosen) as u32;
                chosen.fill(false);
            }
        }
        late
    }

    /// Sends one frame for all hosts if every host gets the unchanged event for all its sinks. Otherwise sends one
    /// frame to each host, and one for each sink whose own filters changed the event. All frames have the event's
    /// number. Returns the number of sinks on other hosts.
    pub(super) fn send(&mut self, number: u32, submission: &Submission<'_>, event_number: u64) -> u32 {
        let (remote, whole) = survey(&self.channel.roster, submission.event_type, &self.scratch.chosen);
        if remote == 0 {
            return 0;
        }
        let header = Header {
            source: number,
            number: event_number,
            event_type: submission.event_type,
            priority: submission.priority,
            sent_ns: self.now.get(),
            left_ns: submission.deadline.map(|deadline| deadline.since(self.now).get()),
        };
        let local = self.channel.roster.local();
        let whole = whole && self.scratch.copies_out.iter().all(|(at, _)| local.contains(&at));
        if self.has_to_wait(number, submission.payload) {
            self.queue(&header, submission, whole);
        } else {
            self.send_now(&header, submission, whole);
        }
        remote
    }

    /// The size of the event's longest payload, after the OUT-filters.
    pub(super) fn longest(&self, payload: &[u8]) -> usize {
        let Scratch { changed, copies_out, .. } = &*self.scratch;
        let longest = copies_out.iter().map(|(_, copy)| copy.len()).max().unwrap_or(0);
        longest.max(changed.payload(payload).len())
    }

    /// Whether the event goes through the hosts' pipes: it is large, earlier frames of its source wait there, or it
    /// must not be lost and the network has no room.
    fn has_to_wait(&self, number: u32, payload: &[u8]) -> bool {
        if self.channel.lane() == Lane::Control {
            return false;
        }
        let (chosen, longest) = (&self.scratch.chosen, self.longest(payload));
        let waits = self.channel.sources.get(&number).is_some_and(|source| source.waiting > 0);
        if waits || longest > Limits::WHOLE || !self.channel.blocks() {
            return waits || longest > Limits::WHOLE;
        }
        let mut spans = self.channel.roster.spans.iter().filter(|span| !span.local);
        spans.any(|span| {
            let goes_there = chosen[span.from..span.to].contains(&true);
            goes_there
                && self.links.get(&*span.host).is_some_and(|link| !link.way(self.channel.lane()).has_room(longest))
        })
    }

    /// The slack of an event: only Q-channels, whose frames do not wait in pipes, use it.
    fn slack(&self, submission: &Submission<'_>) -> Nanos {
        if self.channel.lane() != Lane::Control {
            return Nanos::ZERO;
        }
        let left = submission.deadline.map(|deadline| Nanos::new(deadline.since(self.now).get() / 2));
        submission.slack.min(Limits::SLACK).min(left.unwrap_or(Limits::SLACK))
    }

    /// Sends an event of a Q-channel to each host of a chosen sink, at once or with other frames.
    fn ship(&mut self, header: &Header, submission: &Submission<'_>, whole: bool, slack: Nanos) {
        let (incarnation, wait) = (self.exit.incarnation(), Wait { now: self.now, slack });
        let Scratch { chosen, attributes, changed, copies_out: copies, sinks, .. } = &mut *self.scratch;
        let (payload, roster) = (changed.payload(submission.payload), &self.channel.roster);
        if whole {
            let hosts: Vec<&Name> = roster
                .spans
                .iter()
                .filter(|span| !span.local && chosen[span.from..span.to].contains(&true))
                .map(|span| &*span.host)
                .collect();
            let write = |frame: &mut Vec<u8>| _ = header.write(frame, incarnation, ALL, attributes, payload);
            return self.exit.ship(&hosts, wait, write);
        }
        each(roster, chosen, copies, sinks, payload, |span, sinks, payload| {
            let list = Some((span.incarnation, sinks.iter()));
            let write = |frame: &mut Vec<u8>| _ = header.write(frame, incarnation, list, attributes, payload);
            self.exit.ship(&[&span.host], wait, write);
        });
    }

    fn send_now(&mut self, header: &Header, submission: &Submission<'_>, whole: bool) {
        let (lane, incarnation) = (self.channel.lane(), self.exit.incarnation());
        if lane == Lane::Control {
            let slack = self.slack(submission);
            let source = self.channel.sources.get_mut(&header.source);
            source.into_iter().for_each(|source| source.slack = slack);
            if self.exit.bundles.concern(slack) {
                return self.ship(header, submission, whole, slack);
            }
        }
        let Scratch { chosen, attributes, changed, copies_out: copies, sinks, .. } = &mut *self.scratch;
        let (payload, mut bytes) = (changed.payload(submission.payload), 0);
        if whole {
            let to = Destination::Channel(self.channel.id.clone());
            let write = |frame: &mut Vec<u8>| _ = header.write(frame, incarnation, ALL, attributes, payload);
            bytes = self.exit.send_sized(to, lane, payload.len(), write);
        } else {
            each(&self.channel.roster, chosen, copies, sinks, payload, |span, sinks, payload| {
                let list = Some((span.incarnation, sinks.iter()));
                let write = |frame: &mut Vec<u8>| _ = header.write(frame, incarnation, list, attributes, payload);
                let to = Destination::Host(span.host.clone());
                bytes = self.exit.send_sized(to, lane, payload.len(), write);
            });
        }
        if lane != Lane::Control && (header.left_ns.is_some() || self.channel.blocks()) {
            self.follow(bytes, header.left_ns.is_some());
        }
    }

    /// Counts bytes that were sent to the hosts of the chosen sinks, and sends pings behind them if they are due.
    fn follow(&mut self, bytes: usize, has_deadline: bool) {
        let must_arrive = self.channel.blocks();
        for span in self.channel.roster.spans.iter().filter(|span| !span.local) {
            let goes_there = self.scratch.chosen[span.from..span.to].contains(&true);
            let Some(link) = self.links.get_mut(&*span.host).filter(|_| goes_there) else { continue };
            let way = link.way_mut(self.channel.lane());
            let at = way.stamp(self.now);
            let is_asked = must_arrive && way.flow.sent_safely(bytes, at);
            let counted = if must_arrive { 0 } else { bytes };
            if is_asked || has_deadline && way.flow.sent(counted, at) {
                way.ping(&span.host, self.now, self.exit);
            }
        }
    }

    /// Puts the event into the pipe of each host; hosts that get the whole event share its bytes.
    fn queue(&mut self, header: &Header, submission: &Submission<'_>, whole: bool) {
        let (lane, incarnation) = (self.channel.lane(), self.exit.incarnation());
        let Scratch { chosen, attributes, changed, copies_out: copies, sinks, .. } = &mut *self.scratch;
        let payload = changed.payload(submission.payload);
        let Channel { roster, sources, .. } = &mut *self.channel;
        let mut waiting = 0;
        let mut push = |host: &Name, frame: Arc<Vec<u8>>, head: usize| {
            let Some(link) = self.links.get_mut(host) else { return };
            let (number, deadline) = (header.number, submission.deadline);
            link.way_mut(lane).pipe.push(Piece { number, deadline, head, ..Piece::new(header.source, frame) });
            waiting += 1;
        };
        if whole {
            let mut head = 0;
            let write = |frame: &mut Vec<u8>| head = header.write(frame, incarnation, ALL, attributes, payload);
            let frame = self.exit.out.written(write);
            let spans = roster.spans.iter().filter(|span| !span.local);
            spans.for_each(|span| push(&span.host, frame.clone(), head));
        } else {
            each(roster, chosen, copies, sinks, payload, |span, sinks, payload| {
                let (list, mut head) = (Some((span.incarnation, sinks.iter())), 0);
                let write = |frame: &mut Vec<u8>| head = header.write(frame, incarnation, list, attributes, payload);
                let frame = self.exit.out.written(write);
                push(&span.host, frame, head);
            });
        }
        let source = sources.get_mut(&header.source);
        source.into_iter().for_each(|source| source.waiting += waiting);
    }
}

/// Calls `give` for each frame that goes to some of a host's sinks: first the copies for single sinks, then the common
/// event.
fn each(
    roster: &Roster,
    chosen: &[bool],
    copies: &filter::Copies,
    sinks: &mut Vec<u32>,
    payload: &[u8],
    mut give: impl FnMut(&Span, &[u32], &[u8]),
) {
    for span in roster.spans.iter().filter(|span| !span.local) {
        sinks.clear();
        for at in (span.from..span.to).filter(|at| chosen[*at]) {
            let sink = roster.seats[at].member.number;
            match copies.get(at) {
                Some(copy) => give(span, &[sink], copy),
                None => sinks.push(sink),
            }
        }
        if !sinks.is_empty() {
            give(span, sinks, payload);
        }
    }
}

/// How many sinks of other hosts are chosen, and whether all sinks of all hosts that receive the type are chosen.
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
        // A host without a sink for the type need not get the event.
        whole &= here > 0;
    }
    (remote, whole)
}
