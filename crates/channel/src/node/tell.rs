//! What this host tells all others of itself: each change at once, everything to whoever appears or asks, and now and
//! then how much there is to know, so that a lost change is found.

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::Node;
use crate::output::To;
use crate::wire::{self, Change, Kind, Writer};
use crate::{Lane, Notice};

/// Digests follow a change after 1 s, 2 s, … up to this: what was lost is found soon, and quiet hosts are quiet.
const RAREST: Nanos = Nanos::from_millis(32_000);
const FIRST: Nanos = Nanos::from_millis(1_000);
/// A host that asks more often is not answered.
const BETWEEN_ANSWERS: Nanos = Nanos::from_millis(100);
/// Bytes of changes in one frame.
const BATCH: usize = 60 << 10;

/// What is to be told.
#[derive(Debug)]
pub(crate) struct Telling {
    /// Changes since the last flush, as they travel, and the end of each.
    changes: Vec<u8>,
    ends: Vec<usize>,
    pub digest_due: Instant,
    interval: Nanos,
    frame: Vec<u8>,
}

impl Telling {
    pub fn new(now: Instant) -> Telling {
        let (changes, ends, frame) = Default::default();
        Telling { changes, ends, digest_due: now + FIRST, interval: FIRST, frame }
    }

    /// Something changed: digests become frequent.
    pub fn again(&mut self, now: Instant) {
        self.interval = FIRST;
        self.digest_due = now + FIRST;
    }

    fn next(&mut self, now: Instant) {
        self.interval = self.interval.saturating_mul(2).min(RAREST);
        self.digest_due = now + self.interval;
    }
}

impl Node {
    /// Changes this host's record; the others hear of it at [`Node::flush`].
    pub(crate) fn change(&mut self, change: Change) {
        wire::encode_change(&change, &mut self.telling.changes);
        self.telling.ends.push(self.telling.changes.len());
        let host = self.host.clone();
        let done = self.follow(&host, change);
        debug_assert!(done, "limits are held before");
        if let Some(record) = self.directory.hosts.get_mut(&*host) {
            record.version += 1;
        }
    }

    /// Tells all others what has changed.
    pub(crate) fn flush(&mut self, now: Instant) {
        if self.telling.ends.is_empty() {
            return;
        }
        let ends = std::mem::take(&mut self.telling.ends);
        let changes = std::mem::take(&mut self.telling.changes);
        let mut before = self.version() - ends.len() as u64;
        let mut frame = std::mem::take(&mut self.telling.frame);
        for (part, count) in parts(&changes, &ends) {
            let mut writer = wire::begin(&mut frame, Kind::Changes, self.config.incarnation.0);
            writer.u64(before);
            put_part(&mut writer, part, count);
            self.send(To::Everyone, Lane::Control, &frame);
            before += u64::from(count);
        }
        self.telling.frame = frame;
        self.telling.again(now);
        self.wake_by(self.telling.digest_due);
    }

    /// Everything, to one host.
    pub(crate) fn tell_all(&mut self, to: &Name, now: Instant) {
        let Some(record) = self.directory.hosts.get(&*self.host) else { return };
        let (mut changes, mut ends) = (Vec::new(), Vec::new());
        for change in record.changes() {
            wire::encode_change(&change, &mut changes);
            ends.push(changes.len());
        }
        let mut all = parts(&changes, &ends);
        if all.is_empty() {
            all.push((&[], 0));
        }
        let (version, last) = (record.version, all.len() - 1);
        let mut frame = Vec::new();
        for (number, (part, count)) in all.into_iter().enumerate() {
            let mut writer = wire::begin(&mut frame, Kind::Full, self.config.incarnation.0);
            writer.u64(version);
            writer.u16(number as u16);
            writer.flag(number == last);
            put_part(&mut writer, part, count);
            self.send(To::Host(to.clone().into()), Lane::Control, &frame);
        }
        if let Some(peer) = self.peers.get_mut(to) {
            peer.told = Some(now);
        }
    }

    /// A host wants to know everything.
    pub(crate) fn asked(&mut self, from: &Name, now: Instant) {
        let told = self.peers.get(from).and_then(|peer| peer.told);
        if told.is_none_or(|told| now.since(told) >= BETWEEN_ANSWERS) {
            self.tell_all(from, now);
        }
    }

    /// Asks a host for everything, and again if no answer comes.
    pub(crate) fn ask(&mut self, host: &Name, now: Instant) {
        let Some(peer) = self.peers.get_mut(host) else { return };
        let again = now + Nanos::from_millis(500);
        peer.ask_due = Some(again);
        let mut frame = Vec::new();
        wire::begin(&mut frame, Kind::Ask, self.config.incarnation.0);
        self.send(To::Host(host.clone().into()), Lane::Control, &frame);
        self.wake_by(again);
    }

    /// Says how much there is to know.
    pub(crate) fn digest(&mut self, now: Instant) {
        self.telling.next(now);
        let mut frame = Vec::new();
        wire::begin(&mut frame, Kind::Digest, self.config.incarnation.0).u64(self.version());
        self.send(To::Everyone, Lane::Control, &frame);
    }

    /// Sends unless nobody is there.
    pub(crate) fn send(&mut self, to: To, lane: Lane, frame: &[u8]) {
        if !self.peers.is_empty() {
            self.counts.frames_out += 1;
            self.out.send(to, lane, frame);
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.directory.hosts.get(&*self.host).map_or(0, |record| record.version)
    }

    /// A host's record, and what is told of its members, goes.
    pub(crate) fn forget_record(&mut self, host: &Name) {
        let Some(record) = self.directory.hosts.get(host) else { return };
        for change in record.changes_to(&crate::HostRecord::default()) {
            self.follow(host, change);
        }
        self.directory.hosts.remove(host);
        self.forget_filters(host);
    }

    /// The first frame of a start of a host that was not known.
    pub(crate) fn is_new_start(&mut self, host: &Name, incarnation: u64, now: Instant) {
        self.forget_record(host);
        let Some(peer) = self.peers.get_mut(host) else { return };
        peer.incarnation = Some(incarnation);
        peer.ask_due = Some(now + super::peer::PATIENCE);
        let record = peer.record();
        self.out.notice(Notice::HostAppeared(host.clone(), record.incarnation));
        self.directory.hosts.insert(host.clone(), record);
        self.wake_by(now + super::peer::PATIENCE);
    }
}

/// Changes in portions that fit a frame, and how many there are in each.
fn parts<'a>(changes: &'a [u8], ends: &[usize]) -> Vec<(&'a [u8], u16)> {
    let (mut parts, mut from, mut count) = (Vec::new(), 0, 0);
    for (at, end) in ends.iter().enumerate() {
        count += 1;
        let next = ends.get(at + 1).copied();
        if next.is_none_or(|next| next - from > BATCH || count == u16::MAX) {
            parts.push((&changes[from..*end], count));
            (from, count) = (*end, 0);
        }
    }
    parts
}

fn put_part(writer: &mut Writer<'_>, part: &[u8], count: u16) {
    writer.u16(count);
    writer.bytes(part);
}
