//! Who has what: connections, and what was opened under each.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use qfabric_channel::{Origin, RegistrationId, SinkId, SourceId};
use qfabric_shm::Duplex;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::ChannelId;
use qfabric_types::channel_wire::Whole;
use qfabric_types::{Instant, Nanos};

use super::problems;
use crate::auth::Peer;
use crate::closer::Foreign;

/// All connections.
#[derive(Default)]
pub(super) struct Registry {
    pub leases: BTreeMap<LeaseId, Lease>,
    /// Whose a source or a sink of this host is.
    pub sources: HashMap<SourceId, LeaseId>,
    pub sinks: HashMap<SinkId, LeaseId>,
    pub registrations: HashMap<RegistrationId, LeaseId>,
    /// The user who created a channel here, and that creation.
    creators: HashMap<ChannelId, (Origin, u32)>,
    last: LeaseId,
}

/// A connection, and what ends with it.
pub(super) struct Lease {
    pub peer: Peer,
    pub socket: Arc<Foreign>,
    /// Its messages, in both directions; none before it has said hello.
    pub duplex: Option<Duplex>,
    /// A message of it that comes in parts.
    pub whole: Whole,
    pub habit: Habit,
    /// What it creates or opens, each as often as it did.
    pub opened: Vec<ChannelId>,
    pub sources: BTreeSet<SourceId>,
    pub sinks: BTreeMap<SinkId, Credit>,
    pub registrations: Vec<RegistrationId>,
    /// Messages that there was no room for. While there are any, nothing is read from it, so that there are at
    /// most one answer, and a word on each of its members.
    pub outbox: VecDeque<Vec<u8>>,
}

/// How often a connection wakes this service: which thread is to hear it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Habit {
    /// When it last did.
    woke: Instant,
    /// So many times in a row soon after the time before.
    quick: u8,
    /// It is heard by the socket's thread.
    pub is_busy: bool,
}

/// Who wakes this service again within this time does it often.
const OFTEN: Nanos = Nanos::from_micros(100);
/// So many times in a row, and it is busy, until it is quiet for some time.
const QUICK: u8 = 16;
const QUIET: Nanos = Nanos::from_millis(10);

impl Habit {
    /// It has woken this service. True: another thread is to hear it from now on.
    pub fn woke(&mut self, now: Instant) -> bool {
        let since = now.since(std::mem::replace(&mut self.woke, now));
        self.quick = if since < OFTEN { self.quick.saturating_add(1) } else { 0 };
        let is_busy = if self.is_busy { since < QUIET } else { self.quick >= QUICK };
        std::mem::replace(&mut self.is_busy, is_busy) != is_busy
    }
}

/// How many events of a sink its reader has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    pub events: u32,
    /// Whether its queue may hold something.
    pub ready: bool,
}

impl Lease {
    /// How many sources and sinks it has.
    pub fn members(&self) -> usize {
        self.sources.len() + self.sinks.len()
    }
}

impl Registry {
    /// A new connection's number.
    pub fn add(&mut self, peer: Peer, socket: Arc<Foreign>) -> LeaseId {
        self.last += 1;
        let lease = Lease {
            peer,
            socket,
            duplex: None,
            whole: Whole::default(),
            habit: Habit::default(),
            opened: Vec::new(),
            sources: BTreeSet::new(),
            sinks: BTreeMap::new(),
            registrations: Vec::new(),
            outbox: VecDeque::new(),
        };
        self.leases.insert(self.last, lease);
        self.last
    }

    /// The connection, if it is the caller's.
    pub fn lease(&mut self, peer: Peer, id: LeaseId) -> Result<&mut Lease, Problem> {
        let found = self.leases.get_mut(&id).filter(|lease| peer.may_touch(lease.peer.owner));
        found.ok_or_else(|| problems::no_such_lease(id))
    }

    /// The connection that a source belongs to, if it is the caller's.
    pub fn source(&mut self, peer: Peer, id: SourceId) -> Result<&mut Lease, Problem> {
        let lease = self.sources.get(&id).copied().unwrap_or(0);
        self.lease(peer, lease).map_err(|_| problems::not_your_member("source", id.0))
    }

    /// The connection that a sink belongs to, if it is the caller's.
    pub fn sink(&mut self, peer: Peer, id: SinkId) -> Result<&mut Lease, Problem> {
        let lease = self.sinks.get(&id).copied().unwrap_or(0);
        self.lease(peer, lease).map_err(|_| problems::not_your_member("sink", id.0))
    }

    /// Whether a connection of this user holds the channel.
    pub fn holds(&self, peer: Peer, channel: &ChannelId) -> bool {
        let mut own = self.leases.values().filter(|lease| peer.may_touch(lease.peer.owner));
        peer.owner.uid == 0 || own.any(|lease| lease.opened.contains(channel))
    }

    /// A connection of this user has created the channel. `stands` says whether an earlier creation still does; others
    /// are forgotten.
    pub fn created(&mut self, channel: ChannelId, by: (Origin, u32), stands: impl Fn(&ChannelId, &Origin) -> bool) {
        self.creators.retain(|channel, (origin, _)| stands(channel, origin));
        self.creators.insert(channel, by);
    }

    /// The creation of the channel by this user here, if there was one; another one may stand by now.
    pub fn creation(&self, uid: u32, channel: &ChannelId) -> Option<Origin> {
        let (origin, by) = self.creators.get(channel)?;
        (*by == uid).then(|| origin.clone())
    }

    /// The connections of one user.
    pub fn of_user(&self, uid: u32) -> impl Iterator<Item = &Lease> {
        self.leases.values().filter(move |lease| lease.peer.owner.uid == uid)
    }

    /// A source has ended.
    pub fn forget_source(&mut self, lease: LeaseId, source: SourceId) {
        self.sources.remove(&source);
        self.leases.get_mut(&lease).map(|lease| lease.sources.remove(&source));
    }

    /// A sink has ended.
    pub fn forget_sink(&mut self, lease: LeaseId, sink: SinkId) {
        self.sinks.remove(&sink);
        self.leases.get_mut(&lease).map(|lease| lease.sinks.remove(&sink));
    }

    /// Takes it off the books.
    pub fn remove(&mut self, id: LeaseId) -> Option<Lease> {
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
    fn who_wakes_the_service_often_is_busy_until_it_is_quiet() {
        let (mut habit, mut now) = (Habit::default(), Instant::ZERO + QUIET);
        let mut woke = |us: u64| {
            now = now + Nanos::from_micros(us);
            (habit.woke(now), habit.is_busy)
        };
        assert!((0..100).all(|_| woke(150) == (false, false)));
        let changed = (1..100).find(|_| woke(20) == (true, true));
        assert_eq!(changed, Some(16));
        assert_eq!([woke(20), woke(2_000), woke(11_000)], [(false, true), (false, true), (true, false)]);
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
