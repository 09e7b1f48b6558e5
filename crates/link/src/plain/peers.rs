//! The connected hosts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_types::channel::{ChannelId, Name};

use super::connection::Connection;
use crate::MAX_HOSTS;

/// If both sides connected to each other there are two connections for a lane; frames are sent on the first.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub incarnation: Incarnation,
    connections: [Vec<Arc<Connection>>; 2],
    listens: HashSet<ChannelId>,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    hosts: HashMap<Name, Peer>,
}

impl Peers {
    /// Largest number of channels that a peer may listen to, of both planes.
    const MAX_LISTENS: usize = 2048;

    /// Adds a connection that has greeted. Returns false if it is refused, because there are too many hosts or its
    /// incarnation is an older one.
    pub(super) fn add(&mut self, host: &Name, incarnation: Incarnation, connection: Arc<Connection>) -> bool {
        if self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(host) {
            return false;
        }
        let peer = self.hosts.entry(host.clone()).or_insert_with(|| Peer { incarnation, ..Peer::default() });
        if peer.incarnation != incarnation {
            peer.connections.iter().flatten().for_each(|old| _ = old.end());
            *peer = Peer { incarnation, ..Peer::default() };
        }
        peer.connections[connection.lane as usize].push(connection);
        true
    }

    /// Whether a host is connected on both lanes.
    pub(super) fn is_complete(&self, host: &Name) -> bool {
        self.hosts.get(host).is_some_and(|peer| peer.connections.iter().all(|lane| !lane.is_empty()))
    }

    /// Removes a connection. Returns whether it was the last one for control, so that this incarnation of the host is
    /// gone.
    pub(super) fn remove(&mut self, host: &Name, incarnation: Incarnation, connection: &Connection) -> bool {
        let Some(peer) = self.hosts.get_mut(host).filter(|peer| peer.incarnation == incarnation) else { return false };
        peer.connections.iter_mut().for_each(|some| some.retain(|other| other.token != connection.token));
        let gone = peer.connections[Lane::Control as usize].is_empty();
        if gone {
            peer.connections.iter().flatten().for_each(|other| _ = other.end());
            self.hosts.remove(host);
        }
        gone
    }

    /// A peer starts or ends listening to a channel.
    pub(super) fn listens(&mut self, host: &Name, channel: ChannelId, wants: bool) {
        let Some(peer) = self.hosts.get_mut(host) else { return };
        if !wants {
            peer.listens.remove(&channel);
        } else if peer.listens.len() < Self::MAX_LISTENS {
            peer.listens.insert(channel);
        }
    }

    /// Calls `each` with one connection to each host that receives the frame.
    pub(super) fn of(&self, to: DestinationRef<'_>, lane: Lane, mut each: impl FnMut(&Arc<Connection>)) {
        let connection = if lane == Lane::Control { Lane::Control } else { Lane::Data };
        let mut one = |peer: &Peer| peer.connections[connection as usize].first().map(&mut each).unwrap_or_default();
        match to {
            DestinationRef::Everyone => self.hosts.values().for_each(one),
            DestinationRef::Host(host) => self.hosts.get(host).map(one).unwrap_or_default(),
            DestinationRef::Channel(channel) => {
                self.hosts.values().filter(|peer| peer.listens.contains(channel)).for_each(&mut one);
            }
        }
    }
}
