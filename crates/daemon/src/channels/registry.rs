//! Connections, and everything that was opened under each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::habit::Habit;
use qfabric_channel::{Origin, RegistrationId, SinkId, SourceId};
use qfabric_link::Attending;
use qfabric_shm::Duplex;
use qfabric_sync::{Guard, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::ChannelId;
use qfabric_types::channel_wire::Reassembler;

use super::ends::Ends;
use super::held::{Held, Spare};
use super::openings::Openings;
use super::problems;
use super::pump::Buffers;
use super::reporters::Reporters;
use crate::auth::Peer;
use crate::closer::Foreign;

/// The registry, under its lock.
pub(super) type Locked<'a> = Guard<'a, Registry, { rank::CHANNELS_REGISTRY }>;

#[derive(Default)]
pub(super) struct Registry {
    pub leases: BTreeMap<LeaseId, Lease>,
    /// The connection of each source and sink of this host.
    pub sources: HashMap<SourceId, LeaseId>,
    pub sinks: HashMap<SinkId, LeaseId>,
    pub registrations: HashMap<RegistrationId, LeaseId>,
    /// Sources and sinks for chains of ECalls.
    pub ends: Ends,
    /// The creation of each channel here, and the user that created it.
    creators: HashMap<ChannelId, (Origin, u32)>,
    /// The channels that users made active, to bound their number in a time.
    pub openings: Openings,
    /// The values that users report, to bound their number.
    pub reporters: Reporters,
    last: LeaseId,
    pub buffers: Buffers,
    /// For the events that connections keep.
    pub spare: Spare,
}

/// A connection, with everything that ends with it.
pub(super) struct Lease {
    pub peer: Peer,
    pub socket: Arc<Foreign>,
    /// Messages in both directions; none before the connection has sent its hello.
    pub duplex: Option<Duplex>,
    /// A message that arrives in parts.
    pub reassembler: Reassembler,
    pub habit: Habit,
    /// The network's thread waits for the socket; none: the socket's thread does.
    pub attending: Option<Attending>,
    /// Number of wake-ups whose packets may still be in the socket.
    pub wakes: u8,
    /// Channels that the connection has created or opened, with one entry for each time.
    pub opened: Vec<ChannelId>,
    pub sources: BTreeSet<SourceId>,
    pub sinks: BTreeMap<SinkId, Credit>,
    /// Registrations of the connection, each with the Q-channel of its group.
    pub registrations: BTreeMap<RegistrationId, ChannelId>,
    /// Messages that did not fit. While any wait, this service reads nothing from the connection, so that at most one
    /// answer, the answers of its kept events, and one notice for each of its members wait.
    pub outbox: VecDeque<Vec<u8>>,
    pub held: Held,
    /// Whether this service is reading the connection's messages now, and whether the connection has to be woken
    /// afterwards: one wake-up is enough for all answers of a turn.
    pub is_read: bool,
    pub owes_wake: bool,
}

/// Number of events of a sink that its reader has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    pub events: u32,
    /// Whether the sink's queue may contain events.
    pub ready: bool,
}

impl Lease {
    pub(super) fn members(&self) -> usize {
        self.sources.len() + self.sinks.len()
    }
}

impl Registry {
    /// Adds a connection; returns its number.
    pub(super) fn add(&mut self, peer: Peer, socket: Arc<Foreign>) -> LeaseId {
        self.last += 1;
        let lease = Lease {
            peer,
            socket,
            duplex: None,
            reassembler: Reassembler::default(),
            habit: Habit::default(),
            attending: None,
            wakes: 0,
            opened: Vec::new(),
            sources: BTreeSet::new(),
            sinks: BTreeMap::new(),
            registrations: BTreeMap::new(),
            outbox: VecDeque::new(),
            held: Held::default(),
            is_read: false,
            owes_wake: false,
        };
        self.leases.insert(self.last, lease);
        self.last
    }

    /// The connection, if it belongs to the caller.
    pub(super) fn lease(&mut self, peer: Peer, id: LeaseId) -> Result<&mut Lease, Problem> {
        let found = self.leases.get_mut(&id).filter(|lease| peer.may_touch(lease.peer.owner));
        found.ok_or_else(|| problems::no_such_lease(id))
    }

    /// The connection of a source, if it belongs to the caller.
    pub(super) fn source(&mut self, peer: Peer, id: SourceId) -> Result<&mut Lease, Problem> {
        let lease = self.sources.get(&id).copied().unwrap_or(0);
        self.lease(peer, lease).map_err(|_| problems::not_your_member("source", id.0))
    }

    /// The connection of a sink, if it belongs to the caller.
    pub(super) fn sink(&mut self, peer: Peer, id: SinkId) -> Result<&mut Lease, Problem> {
        let lease = self.sinks.get(&id).copied().unwrap_or(0);
        self.lease(peer, lease).map_err(|_| problems::not_your_member("sink", id.0))
    }

    /// Whether a connection of this user holds the channel.
    pub(super) fn holds(&self, peer: Peer, channel: &ChannelId) -> bool {
        let mut own = self.leases.values().filter(|lease| peer.may_touch(lease.peer.owner));
        peer.owner.uid == 0 || own.any(|lease| lease.opened.contains(channel))
    }

    /// Records that a connection of this user has created the channel. `stands` says whether an earlier creation is
    /// still in force; other creations are removed.
    pub(super) fn created(
        &mut self,
        channel: ChannelId,
        by: (Origin, u32),
        stands: impl Fn(&ChannelId, &Origin) -> bool,
    ) {
        self.creators.retain(|channel, (origin, _)| stands(channel, origin));
        self.creators.insert(channel, by);
    }

    /// This user's creation of the channel here, if there was one; a different creation may be in force now.
    pub(super) fn creation(&self, uid: u32, channel: &ChannelId) -> Option<Origin> {
        let (origin, by) = self.creators.get(channel)?;
        (*by == uid).then(|| origin.clone())
    }

    pub(super) fn of_user(&self, uid: u32) -> impl Iterator<Item = &Lease> {
        self.leases.values().filter(move |lease| lease.peer.owner.uid == uid)
    }

    /// The channels that a user's connections, registrations and chains hold here.
    pub(super) fn channels_of(&self, uid: u32) -> BTreeSet<&ChannelId> {
        let of_connections =
            self.of_user(uid).flat_map(|lease| lease.opened.iter().chain(lease.registrations.values()));
        of_connections.chain(self.ends.channels_of(uid)).collect()
    }

    pub(super) fn forget_source(&mut self, lease: LeaseId, source: SourceId) {
        self.sources.remove(&source);
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.sources.remove(&source);
            lease.held.forget(source);
        }
    }

    pub(super) fn forget_sink(&mut self, lease: LeaseId, sink: SinkId) {
        self.sinks.remove(&sink);
        self.leases.get_mut(&lease).map(|lease| lease.sinks.remove(&sink));
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.sources.retain(|_, of| *of != id);
        self.sinks.retain(|_, of| *of != id);
        self.registrations.retain(|_, of| *of != id);
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closer::Closer;
    use qfabric_types::Owner;
    use rustix::event::{EventfdFlags, eventfd};

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: 1 } }
    }

    #[test]
    fn members_go_with_their_connection_and_belong_to_its_user() {
        let mut registry = Registry::default();
        let socket = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let socket = Arc::new(Foreign::new(socket, 7, &Closer::default()));
        let id = registry.add(peer(7), socket);
        registry.sinks.insert(SinkId(3), id);
        registry.lease(peer(7), id).unwrap().sinks.insert(SinkId(3), Credit::default());
        registry.lease(peer(7), id).unwrap().opened.push("video".parse().unwrap());
        assert!(registry.sink(peer(7), SinkId(3)).is_ok() && registry.sink(peer(0), SinkId(3)).is_ok());
        assert!(registry.sink(peer(8), SinkId(3)).is_err() && registry.lease(peer(8), id).is_err());
        let video = "video".parse().unwrap();
        assert!(registry.holds(peer(7), &video) && registry.holds(peer(0), &video) && !registry.holds(peer(8), &video));
        registry.remove(id).unwrap();
        assert!(registry.sink(peer(7), SinkId(3)).is_err() && !registry.holds(peer(7), &video));
    }
}
