//! Sends this host's record to other hosts: each change at once, the whole record to a host that appears or asks, and
//! now and then a digest with the record's version, by which the others find lost changes.

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::Membership;
use super::neighbour::Neighbour;
use super::telling::Batch;
use crate::Lane;
use crate::change::Change;
use crate::exit::Exit;
use crate::output::Destination;
use crate::wire::{Kind, Writer};

/// A host that asks again within this time gets no answer.
const BETWEEN_ANSWERS: Nanos = Nanos::from_millis(100);
/// A host that does not answer is asked, or told of the meeting, again after this time.
const BETWEEN_QUESTIONS: Nanos = Nanos::from_millis(500);

impl Membership {
    /// Adds a change of this host's record to the next [`Membership::flush`].
    pub(crate) fn announce(&mut self, change: &Change) {
        self.telling.changes.add(change);
    }

    /// Counts a change that has been applied to this host's record.
    pub(crate) fn count_change(&mut self) {
        if let Some(record) = self.directory.hosts.get_mut(&*self.host) {
            record.version += 1;
        }
    }

    /// Sends all pending changes to all other hosts.
    pub(crate) fn flush(&mut self, now: Instant, exit: &mut Exit) {
        if self.telling.changes.len() == 0 {
            return;
        }
        let mut before = self.version() - self.telling.changes.len() as u64;
        for (part, count) in self.telling.changes.portions() {
            if !self.neighbours.is_empty() {
                exit.send(Destination::Everyone, Lane::Control, Kind::Changes, |writer| {
                    writer.u64(before);
                    put_part(writer, part, count);
                });
            }
            before += u64::from(count);
        }
        self.telling.flushed(now);
        exit.wake_by(self.telling.digest_due);
    }

    /// Sends the whole record to one host.
    pub(crate) fn send_record(&mut self, to: &Name, now: Instant, exit: &mut Exit) {
        let (Some(record), Some(there)) = (self.own(), self.neighbours.get(to)) else { return };
        let (meeting, heard) = (there.meeting, there.theirs);
        let mut all = Batch::default();
        record.changes().iter().for_each(|change| all.add(change));
        let mut portions = all.portions();
        if portions.is_empty() {
            portions.push((&[], 0));
        }
        let (version, last, abilities) = (record.version, portions.len() - 1, exit.abilities());
        for (number, (part, count)) in portions.into_iter().enumerate() {
            exit.send(Destination::Host(to.clone().into()), Lane::Control, Kind::Full, |writer| {
                writer.u64(version);
                writer.u16(number as u16);
                writer.flag(number == last);
                writer.u64(meeting);
                writer.u64(heard);
                put_part(writer, part, count);
                writer.u8(abilities);
            });
        }
        if let Some(there) = self.neighbours.get_mut(to) {
            there.record_sent = Some(now);
            there.tell_due = (!there.is_confirmed).then_some(now + BETWEEN_QUESTIONS);
            there.tell_due.into_iter().for_each(|due| exit.wake_by(due));
        }
    }

    /// Confirms the meeting of another host that has told it. Tells this host's meeting in turn if that is not confirmed.
    pub(crate) fn confirm(&mut self, from: &Name, now: Instant, exit: &mut Exit) {
        let Some(there) = self.neighbours.get_mut(from) else { return };
        let next = there.record_sent.map(|sent| sent + BETWEEN_ANSWERS).filter(|next| *next > now);
        match next {
            None if !there.is_confirmed => self.send_record(from, now, exit),
            // Without this host's new number the other one would rely on the old one.
            Some(next) if there.is_renewed => {
                there.tell_due = Some(next);
                exit.wake_by(next);
            }
            _ => {
                let heard = there.theirs;
                exit.send(Destination::Host(from.clone().into()), Lane::Control, Kind::Met, |writer| writer.u64(heard));
            }
        }
    }

    /// Answers a host that asks for the whole record.
    pub(crate) fn answer(&mut self, from: &Name, now: Instant, exit: &mut Exit) {
        let record_sent = self.neighbours.get(from).and_then(|there| there.record_sent);
        if record_sent.is_none_or(|at| now.since(at) >= BETWEEN_ANSWERS) {
            self.send_record(from, now, exit);
        }
    }

    /// Asks a host for its whole record, and again if no answer arrives.
    pub(crate) fn ask(&mut self, host: &Name, now: Instant, exit: &mut Exit) {
        let Some(neighbour) = self.neighbours.get_mut(host) else { return };
        let again = now + BETWEEN_QUESTIONS;
        neighbour.ask_due = Some(again);
        exit.send(Destination::Host(host.clone().into()), Lane::Control, Kind::Ask, |_| {});
        exit.wake_by(again);
    }

    /// `None` if no other host is present.
    pub(crate) fn digest_due(&self) -> Option<Instant> {
        (!self.neighbours.is_empty()).then_some(self.telling.digest_due)
    }

    /// Sends the record's version to all other hosts, if a digest is due.
    pub(crate) fn digest(&mut self, now: Instant, exit: &mut Exit) {
        if self.telling.digest_due > now {
            return;
        }
        self.telling.next(now);
        let version = self.version();
        if !self.neighbours.is_empty() {
            exit.send(Destination::Everyone, Lane::Control, Kind::Digest, |writer| writer.u64(version));
        }
    }

    /// Asks or tells again each host whose answer is overdue, and sets the time of the next call.
    pub(crate) fn wake(&mut self, now: Instant, exit: &mut Exit) {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let overdue = |of: fn(&Neighbour) -> Option<Instant>| {
            let late = self.neighbours.iter().filter(|(_, there)| is_due(of(there)));
            late.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let (to_ask, to_tell) = (overdue(|there| there.ask_due), overdue(|there| there.tell_due));
        to_tell.iter().for_each(|host| self.send_record(host, now, exit));
        to_ask.iter().for_each(|host| self.ask(host, now, exit));
        let due = self.neighbours.values().flat_map(|there| [there.ask_due, there.tell_due]).flatten().min();
        due.into_iter().for_each(|due| exit.wake_by(due));
    }

    fn version(&self) -> u64 {
        self.own().map_or(0, |record| record.version)
    }
}

fn put_part(writer: &mut Writer<'_>, part: &[u8], count: u16) {
    writer.u16(count);
    writer.bytes(part);
}
