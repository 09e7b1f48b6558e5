//! One host's side of all channels.
//!
//! ```text
//! hold, join, groups ──> tell ──┄┄──> learn      who holds what, with which members: the directory
//! submit ──┄┄──> receive ──> take                events
//! books: marks there, reports back               what was sent, and what became of it
//! filters, ship                                  which sinks get an event, here and elsewhere
//! rules                                          who may be a member; others while there are members
//! ```

mod books;
mod channel;
mod clock;
mod filters;
mod flow;
mod groups;
mod hold;
mod join;
mod learn;
mod look;
mod peer;
mod receive;
mod rules;
mod seats;
mod ship;
mod submit;
mod take;
mod tell;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

pub(crate) use channel::{Channel, Roster, Seat, Sink, Tally};
use filters::Bound;
use peer::Peer;
use receive::Scratch;
use ship::Waiting;
use tell::Telling;

use crate::output::Outputs;
use crate::wire::{self, Kind, Reader, Unreadable};
use crate::{Config, Directory, Frame, HostRecord, Lane, Limits, MemberId, NodeCounts, Notice, Output};

/// One host's side of all channels. After every call, ask [`Node::poll`] for what it wants done until there is nothing
/// more, and call [`Node::wake`] at [`Node::next_wakeup`], which every call may change.
#[derive(Debug)]
pub struct Node {
    config: Config,
    host: Arc<Name>,
    /// This host's record is in it.
    directory: Directory,
    peers: BTreeMap<Name, Peer>,
    /// Channels that are open here, in places that stay.
    channels: Vec<Option<Channel>>,
    places: BTreeMap<ChannelId, u32>,
    /// The channel's place of each source and sink of this host.
    sources: BTreeMap<u32, u32>,
    sinks: BTreeMap<u32, u32>,
    bound: BTreeMap<u32, Bound>,
    requests: BTreeMap<u32, Waiting>,
    /// Last number given to a source, sink, registration or request.
    last_number: u32,
    /// Open channels of which another creation has become known.
    touched: BTreeSet<ChannelId>,
    /// Open channels whose roster has to be made anew.
    stale: BTreeSet<ChannelId>,
    /// Sinks that no source here has welcomed yet, by place of their channel.
    fresh: Vec<(u32, MemberId)>,
    telling: Telling,
    /// When the next thing may be due.
    due: Option<Instant>,
    scratch: Scratch,
    out: Outputs,
    counts: NodeCounts,
}

impl Node {
    /// A host that knows of no other.
    pub fn new(config: Config, now: Instant) -> Node {
        let mut directory = Directory::default();
        let record = HostRecord { incarnation: config.incarnation, ..HostRecord::default() };
        directory.hosts.insert(config.host.clone(), record);
        Node {
            host: Arc::new(config.host.clone()),
            config,
            directory,
            peers: BTreeMap::new(),
            channels: Vec::new(),
            places: BTreeMap::new(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            bound: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_number: 0,
            touched: BTreeSet::new(),
            stale: BTreeSet::new(),
            fresh: Vec::new(),
            telling: Telling::new(now),
            due: None,
            scratch: Scratch::default(),
            out: Outputs::default(),
            counts: NodeCounts::default(),
        }
    }

    /// The next thing that the calls before want done; none: nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.poll()
    }

    /// The bytes of a frame that [`Node::poll`] gave, at most 256 KiB, until it is called again.
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.out.frame(frame)
    }

    /// The network says that a host is there.
    pub fn appeared(&mut self, host: &Name, now: Instant) {
        if *host == *self.host || self.peers.contains_key(host) {
            return;
        }
        if self.peers.len() >= Limits::HOSTS {
            self.counts.beyond_limit += 1;
            return;
        }
        self.peers.insert(host.clone(), Peer::new(host, now));
        // It asks again where this gets lost: no digest to all others for each that comes, which would be N² frames.
        self.tell_all(host, now);
        self.wake_by(now + peer::PATIENCE);
    }

    /// The network says that a host is gone.
    pub fn vanished(&mut self, host: &Name, now: Instant) {
        let Some(peer) = self.peers.remove(host) else { return };
        self.forget_inbound(peer);
        self.forget_record(host);
        self.out.notice(Notice::HostVanished(host.clone()));
        self.settle(now);
    }

    /// There is no network any more: all other hosts are gone.
    pub fn cut_off(&mut self, now: Instant) {
        for host in self.peers.keys().cloned().collect::<Vec<_>>() {
            self.vanished(&host, now);
        }
    }

    /// A frame of a host that the network has authenticated.
    pub fn arrive(&mut self, from: &Name, lane: Lane, frame: &[u8], now: Instant) {
        self.counts.frames_in += 1;
        let mut reader = Reader(frame);
        let prefix = match wire::read_prefix(&mut reader) {
            _ if frame.len() > Limits::FRAME => return self.counts.malformed += 1,
            Ok(prefix) => prefix,
            Err(Unreadable::OtherVersion(theirs)) => return self.other_version(from, theirs),
            Err(Unreadable::Malformed) => return self.counts.malformed += 1,
        };
        if !self.is_of_present(from, prefix.incarnation, now) {
            return self.counts.stranger += 1;
        }
        let _ = lane;
        if self.handle(from, prefix.kind, reader, now).is_err() {
            self.counts.malformed += 1;
        }
        // An event changes no members, unless it is the first word of a host's new start.
        if prefix.kind != Kind::Event || !self.stale.is_empty() {
            self.settle(now);
        }
    }

    fn handle(&mut self, from: &Name, kind: Kind, mut reader: Reader<'_>, now: Instant) -> Result<(), wire::Malformed> {
        let reader = &mut reader;
        match kind {
            Kind::Event => self.receive(from, &wire::EventFrame::read(reader)?, now),
            Kind::Changes => self.learn_changes(from, wire::Changes::read(reader)?, now),
            Kind::Full => self.learn_full(from, wire::Full::read(reader)?),
            Kind::Ask => self.asked(from, now),
            Kind::Digest => self.learn_digest(from, &wire::Digest::read(reader)?, now),
            Kind::Mark => self.marked(from, &wire::Mark::read(reader)?),
            Kind::Report => self.reported(from, &wire::Report::read(reader)?, now),
            Kind::Ping => self.pinged(from, wire::Ping::read(reader)?.t0, now),
            Kind::Pong => self.answered(from, &wire::Pong::read(reader)?, now),
            Kind::Shipped => self.shipped(from, wire::Shipped::read(reader)?),
            Kind::Answer => self.answer(from, wire::Answer::read(reader)?),
        }
        Ok(())
    }

    fn other_version(&mut self, from: &Name, theirs: u8) {
        self.counts.other_version += 1;
        let Some(peer) = self.peers.get_mut(from) else { return };
        if !std::mem::replace(&mut peer.other_version, true) {
            self.out.notice(Notice::OtherVersion { host: from.clone(), theirs, ours: wire::VERSION });
        }
    }

    /// What every method that changes members ends with.
    fn settle(&mut self, now: Instant) {
        while let Some(channel) = self.touched.pop_first() {
            self.stand(&channel, now);
        }
        // Who is new is told before it is welcomed by sources that are new themselves.
        self.flush(now);
        while let Some(channel) = self.stale.pop_first() {
            self.refresh(&channel);
        }
        self.welcome_fresh();
    }

    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    fn wake_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn place(&self, channel: &ChannelId) -> Option<u32> {
        self.places.get(channel).copied()
    }

    fn at(&self, place: u32) -> Option<&Channel> {
        self.channels.get(place as usize)?.as_ref()
    }

    fn at_mut(&mut self, place: u32) -> Option<&mut Channel> {
        self.channels.get_mut(place as usize)?.as_mut()
    }

    fn unix_ns(&self, now: Instant) -> u64 {
        now.get().wrapping_add(self.config.unix_offset_ns)
    }
}
