//! What other hosts tell of themselves.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Node;
use super::peer::Staging;
use super::seats::Step;
use crate::wire::{Change, Changes, Digest, Full};
use crate::{Action, Directory, Limits, MemberId, Notice};

/// Parts of a record, and changes in all of them: beyond it a host is not believed.
const MOST_PARTS: u16 = 256;
const MOST_CHANGES: usize = 2 * Limits::CHANNELS + Limits::HOST_MEMBERS + Limits::REGISTRATIONS;

impl Node {
    /// Whether a frame is of a host that is there, and not of an earlier start of it.
    pub(crate) fn is_of_present(&mut self, from: &Name, incarnation: u64, now: Instant) -> bool {
        let Some(peer) = self.peers.get_mut(from) else { return false };
        match peer.incarnation {
            Some(known) if known == incarnation => return true,
            Some(known) if known > incarnation => return false,
            _ => {}
        }
        let inbound = std::mem::take(&mut peer.inbound);
        peer.staging = None;
        self.fold(inbound);
        self.is_new_start(from, incarnation, now);
        true
    }

    pub(crate) fn learn_changes(&mut self, from: &Name, told: Changes, now: Instant) {
        let Some(record) = self.directory.host(from) else { return };
        let (version, count) = (record.version, told.changes.len() as u64);
        let Some(after) = told.before.checked_add(count) else { return };
        if told.before > version {
            self.counts.gaps += 1;
            return self.ask_soon(from, now);
        }
        let known = (version - told.before).min(count) as usize;
        for change in told.changes.into_iter().skip(known) {
            self.follow(from, change);
        }
        self.set_version(from, after.max(version));
    }

    pub(crate) fn learn_full(&mut self, from: &Name, part: Full) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        if part.part == 0 {
            peer.staging = Some(Staging { version: part.version, parts: 0, changes: Vec::new() });
        }
        let Some(staging) = &mut peer.staging else { return };
        let fits = part.part == staging.parts && part.version == staging.version && part.part < MOST_PARTS;
        if !fits || staging.changes.len() + part.changes.len() > MOST_CHANGES {
            peer.staging = None;
            return;
        }
        staging.parts += 1;
        staging.changes.extend(part.changes);
        if part.last {
            peer.ask_due = None;
            if let Some(whole) = peer.staging.take() {
                self.replace(from, whole);
            }
        }
    }

    /// The record becomes what the host says it is.
    fn replace(&mut self, from: &Name, whole: Staging) {
        let Some(record) = self.directory.hosts.get(from) else { return };
        if whole.version < record.version {
            return;
        }
        let mut wanted = Directory::default();
        wanted.hosts.insert(from.clone(), crate::HostRecord { incarnation: record.incarnation, ..Default::default() });
        for change in whole.changes {
            if self.is_allowed(from, &change) && wanted.apply(from, change).is_err() {
                self.counts.beyond_limit += 1;
            }
        }
        for change in record.changes_to(&wanted.hosts[from]) {
            self.follow(from, change);
        }
        self.set_version(from, whole.version);
    }

    pub(crate) fn learn_digest(&mut self, from: &Name, digest: &Digest, now: Instant) {
        let known = self.directory.host(from).map_or(0, |record| record.version);
        if digest.version > known {
            self.counts.gaps += 1;
            self.ask_soon(from, now);
        }
    }

    /// Once, until the answer is there or overdue.
    fn ask_soon(&mut self, host: &Name, now: Instant) {
        if self.peers.get(host).is_some_and(|peer| peer.ask_due.is_none_or(|due| due <= now)) {
            self.ask(host, now);
        }
    }

    fn set_version(&mut self, host: &Name, version: u64) {
        if let Some(record) = self.directory.hosts.get_mut(host) {
            record.version = version;
        }
    }

    /// Whether the policy lets the host do what it says.
    fn is_allowed(&self, host: &Name, change: &Change) -> bool {
        self.denied(host, change).is_none()
    }

    /// This host's own changes were permitted before.
    fn denied(&self, host: &Name, change: &Change) -> Option<Action> {
        if *host == *self.host {
            return None;
        }
        let (who, action, channel) = match change {
            Change::Hold(channel, origin, _) => (&origin.creator, Action::Create, channel),
            Change::Sink(channel, ..) => (host, Action::Join, channel),
            Change::Source(channel, ..) => (host, Action::Send, channel),
            _ => return None,
        };
        (!self.config.policy.allows(who, action, channel)).then_some(action)
    }

    /// Carries out one step of a host's record; false: it was not to be.
    pub(crate) fn follow(&mut self, host: &Name, change: Change) -> bool {
        if let (Some(action), Some(channel)) = (self.denied(host, &change), change.channel()) {
            self.counts.forbidden += 1;
            let why = self.config.policy.why_not(host, action, channel);
            self.out.notice(Notice::Forbidden { host: host.clone(), action, channel: channel.clone(), why });
            return false;
        }
        let notices = self.notices_of(host, &change);
        let channel = change.channel().cloned();
        let step = Step::of(self, host, &change);
        let competes = self.competes(&change);
        self.forget_sources(host, &change);
        if self.directory.apply(host, change).is_err() {
            self.counts.beyond_limit += 1;
            return false;
        }
        if let Some(channel) = channel {
            self.reseat(host, &channel, step);
            if competes {
                self.touched.insert(channel);
            }
        }
        for notice in notices {
            self.out.notice(notice);
        }
        true
    }

    /// Whether it names another creation than the one that this host's opening goes back to: that one may stand.
    fn competes(&self, change: &Change) -> bool {
        let Change::Hold(channel, origin, _) = change else { return false };
        let mine = self.directory.host(&self.host).and_then(|record| record.channels.get(channel));
        mine.is_some_and(|mine| *origin != mine.origin)
    }

    /// What is booked of sources that go.
    fn forget_sources(&mut self, host: &Name, change: &Change) {
        if !matches!(change, Change::SourceGone(..) | Change::Release(_)) {
            return;
        }
        let Some(place) = change.channel().and_then(|channel| self.place(channel)) else { return };
        let Some(peer) = self.peers.get_mut(host) else { return };
        let goes = |number: u32, slot: u32| match change {
            Change::SourceGone(_, id) => id.0 == number,
            Change::Release(_) => slot == place,
            _ => false,
        };
        let inbound = std::mem::take(&mut peer.inbound);
        let (gone, stay) = inbound.into_iter().partition(|(number, inbound)| goes(*number, inbound.slot));
        peer.inbound = stay;
        self.fold(gone);
    }

    /// What is said of a change, before it is carried out.
    fn notices_of(&self, host: &Name, change: &Change) -> Vec<Notice> {
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
