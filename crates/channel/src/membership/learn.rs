//! Processes the records and changes that other hosts send.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Membership;
use super::neighbour::{Neighbour, Staging};
use crate::change::Change;
use crate::exit::Exit;
use crate::wire::{Changes, Digest, Full, Met};
use crate::{Config, Directory, HostRecord, Incarnation, Limits, MemberId, Notice};

/// The limit of parts in a record, and of changes in all of them; a larger record is ignored.
const MOST_PARTS: u16 = 256;
const MOST_CHANGES: usize = 2 * Limits::CHANNELS + Limits::HOST_MEMBERS + Limits::REGISTRATIONS;

/// The changes that bring a host's record up to `version`.
#[derive(Debug)]
pub(crate) struct News {
    pub changes: Vec<Change>,
    pub version: u64,
}

impl Membership {
    /// Returns the changes that are new. Returns `None` and asks for the whole record if earlier changes are missing.
    pub(crate) fn learn_changes(&mut self, from: &Name, told: Changes, now: Instant, exit: &mut Exit) -> Option<News> {
        let there = self.neighbours.get_mut(from)?;
        if !there.has_met() {
            there.has_missed = true;
            return None;
        }
        let known = self.directory.host(from)?.version;
        let count = told.changes.len() as u64;
        let after = told.before.checked_add(count)?;
        if told.before > known {
            exit.counts.gaps += 1;
            self.ask_soon(from, now, exit);
            return None;
        }
        let old = (known - told.before).min(count) as usize;
        Some(News { changes: told.changes.into_iter().skip(old).collect(), version: after.max(known) })
    }

    /// The number of another host's meeting with this one, and the number that it has heard. Returns false if the frame is
    /// of an earlier meeting.
    pub(crate) fn learn_meeting(&mut self, from: &Name, part: &Full) -> bool {
        let Some(there) = self.neighbours.get_mut(from).filter(|there| part.meeting >= there.theirs) else {
            return false;
        };
        there.theirs = part.meeting;
        there.hears(part.heard);
        true
    }

    /// The other host has confirmed a number. Returns the changes that the meeting's begin has waited for.
    pub(crate) fn learn_met(
        &mut self,
        from: &Name,
        met: &Met,
        config: &Config,
        now: Instant,
        exit: &mut Exit,
    ) -> Option<News> {
        self.neighbours.get_mut(from)?.hears(met.heard);
        self.begin_to_believe(from, config, now, exit)
    }

    /// One part of a host's whole record. The last part returns the changes that lead from the known record to the
    /// received one, once both hosts have met.
    pub(crate) fn learn_full(
        &mut self,
        from: &Name,
        part: Full,
        config: &Config,
        now: Instant,
        exit: &mut Exit,
    ) -> Option<News> {
        let neighbour = self.neighbours.get_mut(from)?;
        if part.part == 0 {
            neighbour.staging = Some(Staging { version: part.version, parts: 0, changes: Vec::new() });
        }
        let staging = neighbour.staging.as_mut()?;
        let fits = part.part == staging.parts && part.version == staging.version && part.part < MOST_PARTS;
        if !fits || staging.changes.len() + part.changes.len() > MOST_CHANGES {
            neighbour.staging = None;
            return None;
        }
        staging.parts += 1;
        staging.changes.extend(part.changes);
        if !part.last {
            return None;
        }
        neighbour.ask_due = None;
        neighbour.record = neighbour.staging.take();
        self.begin_to_believe(from, config, now, exit)
    }

    /// Believes the record that has arrived, if both hosts have met.
    fn begin_to_believe(&mut self, from: &Name, config: &Config, now: Instant, exit: &mut Exit) -> Option<News> {
        let there = self.neighbours.get_mut(from).filter(|there| there.has_met())?;
        let incarnation = Incarnation(there.incarnation?);
        let (record, has_missed) = (there.record.take(), std::mem::take(&mut there.has_missed));
        if self.directory.host(from).is_none() {
            exit.notice(Notice::HostAppeared(from.clone(), incarnation));
            self.directory.hosts.insert(from.clone(), HostRecord { incarnation, ..HostRecord::default() });
        }
        if has_missed {
            self.ask_soon(from, now, exit);
        }
        self.difference(from, record?, config, exit)
    }

    /// The changes that lead from the known record to the received one, without changes that the policy denies.
    fn difference(&self, from: &Name, whole: Staging, config: &Config, exit: &mut Exit) -> Option<News> {
        let record = self.directory.host(from).filter(|record| whole.version >= record.version)?;
        let mut wanted = Directory::default();
        let empty = HostRecord { incarnation: record.incarnation, ..HostRecord::default() };
        wanted.hosts.insert(from.clone(), empty);
        for change in whole.changes {
            if config.denied(from, &change).is_none() && wanted.apply(from, change).is_err() {
                exit.counts.beyond_limit += 1;
            }
        }
        Some(News { changes: record.changes_to(&wanted.hosts[from]), version: whole.version })
    }

    pub(crate) fn learn_digest(&mut self, from: &Name, digest: &Digest, now: Instant, exit: &mut Exit) {
        if !self.neighbours.get(from).is_some_and(Neighbour::has_met) {
            return;
        }
        let known = self.directory.host(from).map_or(0, |record| record.version);
        if digest.version > known {
            exit.counts.gaps += 1;
            self.ask_soon(from, now, exit);
        }
    }

    /// Asks at most once until the answer has arrived or is overdue.
    fn ask_soon(&mut self, host: &Name, now: Instant, exit: &mut Exit) {
        if self.neighbours.get(host).is_some_and(|there| there.ask_due.is_none_or(|due| due <= now)) {
            self.ask(host, now, exit);
        }
    }

    /// Call this after all changes up to `version` are applied.
    pub(crate) fn set_version(&mut self, host: &Name, version: u64) {
        if let Some(record) = self.directory.hosts.get_mut(host) {
            record.version = version;
        }
    }

    /// The notices for a change; call this before the change is applied.
    pub(super) fn notices_of(&self, host: &Name, change: &Change) -> Vec<Notice> {
        let member = |number| MemberId { host: host.clone(), number };
        let record = self.directory.host(host);
        let held = change.channel().and_then(|channel| record?.channels.get(channel));
        match change {
            Change::Hold(..) => vec![],
            Change::Source(channel, id, info) => {
                let known = held.is_some_and(|held| held.sources.contains_key(id));
                let joined = Notice::SourceJoined(channel.clone(), member(id.0), info.clone());
                if known { vec![] } else { vec![joined] }
            }
            Change::Sink(channel, id, info) => {
                let known = held.is_some_and(|held| held.sinks.contains_key(id));
                let say = if known { Notice::SinkChanged } else { Notice::SinkJoined };
                vec![say(channel.clone(), member(id.0), info.clone())]
            }
            Change::SourceGone(channel, id) => vec![Notice::SourceLeft(channel.clone(), member(id.0))],
            Change::SinkGone(channel, id) => vec![Notice::SinkLeft(channel.clone(), member(id.0))],
            Change::Release(channel) => {
                let Some(held) = held else { return vec![] };
                let sources = held.sources.keys().map(|id| Notice::SourceLeft(channel.clone(), member(id.0)));
                let sinks = held.sinks.keys().map(|id| Notice::SinkLeft(channel.clone(), member(id.0)));
                sources.chain(sinks).collect()
            }
            Change::Register(_, registration) => vec![Notice::Registered(host.clone(), registration.clone())],
            Change::Unregister(id) => {
                let gone = record.and_then(|record| record.registrations.get(id)).cloned();
                gone.map(|registration| Notice::Unregistered(host.clone(), registration)).into_iter().collect()
            }
        }
    }
}
