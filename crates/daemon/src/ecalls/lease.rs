//! `ecalls.sock`: connections, and what comes through them. Everything that arrives is hostile: bounded, checked,
//! and answered or counted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use qfabric_linux::ecalls::{SocketModule, bind_socket_as};
use qfabric_shm::fds;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{LeaseId, SubscriptionId};
use qfabric_types::ecalls_wire::{FromClient, FromDaemon, Given, Raise, VERSION};
use rustix::net::{SocketFlags, accept_with};

use super::memory::Down;
use super::raise::Event;
use super::registry::Lease;
use super::subscription::{Subscription, count};
use super::{Ecalls, Source, drop_aside, problems};
use crate::auth::{self, Peer};
use crate::closer::Foreign;
use crate::problem;

/// Messages read from one connection per turn.
const MESSAGES_PER_TURN: usize = 64;
/// Connections accepted per turn.
const ACCEPTED_PER_TURN: usize = 16;

impl Ecalls {
    /// Takes in who is waiting.
    pub(super) fn accept(&self, listener: &OwnedFd) {
        for _ in 0..ACCEPTED_PER_TURN {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.take_in(socket),
                Err(rustix::io::Errno::WOULDBLOCK) => return,
                Err(error) => return tracing::warn!(%error, "cannot accept a connection for ECalls"),
            }
        }
    }

    fn take_in(&self, socket: OwnedFd) {
        let peer = Peer::of(&socket);
        let uid = peer.as_ref().map_or(u32::MAX, |peer| peer.owner.uid);
        let socket = Arc::new(Foreign::new(socket, uid, &self.closer));
        let Ok(peer) = peer else { return };
        let mut registry = self.registry();
        let own = registry.leases.values().filter(|lease| lease.peer.owner.uid == peer.owner.uid).count();
        let full = registry.leases.len() >= self.config.max_leases
            || (peer.owner.uid != 0 && own >= self.config.max_leases_per_user)
            || self.closer.is_full(uid);
        if full {
            drop(registry);
            let problem =
                problems::limit("too many connections for ECalls", self.config.max_leases, "ecalls.max_leases");
            return send(&socket, &FromDaemon::Refused(&problem.to_string()), &[]);
        }
        let id = registry.number();
        let lease = Lease { peer, socket: socket.clone(), down: None, attributes: Vec::new(), sockets: None };
        registry.leases.insert(id, lease);
        drop(registry);
        if self.watch(&*socket, Source::Lease(id)).is_err() {
            self.end_lease(id);
        }
    }

    /// Reads what a connection has to say.
    pub(super) fn serve_lease(&self, id: LeaseId, buffer: &mut [u8]) {
        let found = self.registry().leases.get(&id).map(|lease| (lease.socket.clone(), lease.peer));
        let Some((socket, peer)) = found else { return };
        for _ in 0..MESSAGES_PER_TURN {
            let got = match fds::recv_all_now(&*socket, buffer) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.end_lease(id),
            };
            let is_over = got.length == 0 && !got.is_cut;
            if !is_over {
                // Longer than any message: the rest is gone, the connection is still good.
                match FromClient::decode(&buffer[..got.length]).filter(|_| !got.is_cut) {
                    Some(message) => self.obey(id, peer, &socket, &message, &got.fds),
                    None => count(&self.totals.nonsense),
                }
            }
            if !self.close_aside(peer, got.fds) || is_over {
                return self.end_lease(id);
            }
        }
    }

    /// Whether the user may go on sending some.
    fn close_aside(&self, peer: Peer, came: Vec<OwnedFd>) -> bool {
        if came.is_empty() {
            return true;
        }
        self.closer.close(peer.owner.uid, came);
        !self.closer.is_full(peer.owner.uid)
    }

    fn obey(&self, id: LeaseId, peer: Peer, socket: &Foreign, message: &FromClient<'_>, came: &[OwnedFd]) {
        let answer = match message {
            FromClient::Raise(raise) => return self.raised(peer, raise),
            FromClient::Reply { call, data } => return self.replied(id, *call, data),
            FromClient::Hello { version } => return welcome(socket, id, *version),
            FromClient::Take(subscription) => self.give_memory(socket, peer, *subscription),
            FromClient::TakeDown => self.give_down(socket, id),
            FromClient::TakeSockets => self.give_sockets(socket, id),
            FromClient::Bind(slot) => self.bind(socket, id, *slot, came),
        };
        if let Err(problem) = answer {
            send(socket, &FromDaemon::Refused(&problem.to_string()), &[]);
        }
    }

    fn raised(&self, peer: Peer, raise: &Raise<'_>) {
        let event = Event::now(raise.pid, raise.data, raise.deadline_us, raise.cpu);
        if self.raise_by_lease(peer, raise.service, &event).is_none() {
            count(&self.totals.nonsense);
        }
    }

    /// Only the service's own connection may answer for it.
    fn replied(&self, id: LeaseId, call: u64, data: &[u8]) {
        let mut registry = self.registry();
        let Some(service) = registry.calls.get(&call).map(|call| call.service) else { return };
        let owner = registry.services.get(&service).and_then(|service| service.owner);
        if owner.is_some_and(|owner| owner.lease == id)
            && let Some(call) = registry.calls.remove(&call)
        {
            // Nobody waits any more where the caller has given up.
            let _ = call.answer.send(data.to_vec());
        }
    }

    fn give_memory(&self, socket: &Foreign, peer: Peer, id: SubscriptionId) -> Result<(), Problem> {
        let subscription = self.registry().subscription(id, peer)?.clone();
        let none = || problems::chain(format!("subscription {id} has no memory_up"), "subscribe with one");
        let up = subscription.chain.up.as_ref().ok_or_else(none)?;
        let given = FromDaemon::Given(Given(Given::UP | Given::WAKE));
        up.with_fds(|fds| send(socket, &given, &fds));
        Ok(())
    }

    fn give_down(&self, socket: &Foreign, id: LeaseId) -> Result<(), Problem> {
        let down = self.down_of(id)?;
        send(socket, &FromDaemon::Given(Given(Given::DOWN)), &[down.fd()]);
        Ok(())
    }

    /// The session's memory_down, made at its first use.
    pub(super) fn down_of(&self, id: LeaseId) -> Result<Arc<Down>, Problem> {
        let made = self.registry().leases.get(&id).ok_or_else(|| problems::no_such_lease(id))?.down.clone();
        if let Some(down) = made {
            return Ok(down);
        }
        // Without the registry, for which events wait. Where another thread was faster, its memory is the session's.
        let made = Down::new(self.kernel().is_ok());
        let fresh = Arc::new(made.map_err(|error| problem::internal(format!("cannot make memory_down: {error}")))?);
        let mut registry = self.registry();
        let lease = registry.leases.get_mut(&id).ok_or_else(|| problems::no_such_lease(id))?;
        let down = lease.down.get_or_insert_with(|| fresh.clone()).clone();
        drop(registry);
        Ok(down)
    }

    fn give_sockets(&self, socket: &Foreign, id: LeaseId) -> Result<(), Problem> {
        let module = self.module_of(id)?;
        let given = FromDaemon::Given(Given(Given::WAKE | Given::SOCKETS | Given::BIND));
        send(socket, &given, &[module.wake_fd(), module.page_fd(), module.bind_fd()]);
        Ok(())
    }

    fn module_of(&self, id: LeaseId) -> Result<Arc<SocketModule>, Problem> {
        let side = self.kernel().map_err(|why| problems::unavailable("sock.ready", &why.what, &why.remedy))?;
        let opened = self.registry().leases.get(&id).and_then(|lease| lease.sockets.clone());
        if let Some(module) = opened {
            return Ok(module);
        }
        let module = SocketModule::open(&side.kernel).map_err(|error| error.problem())?;
        let module = Arc::new(module);
        let mut registry = self.registry();
        let lease = registry.leases.get_mut(&id).ok_or_else(|| problems::no_such_lease(id))?;
        let module_of_lease = lease.sockets.get_or_insert_with(|| module.clone()).clone();
        drop(registry);
        Ok(module_of_lease)
    }

    fn bind(&self, socket: &Foreign, id: LeaseId, slot: u32, came: &[OwnedFd]) -> Result<(), Problem> {
        let module = self.module_of(id)?;
        let [bound] = came else {
            return Err(problems::chain("no socket came along", "send exactly one"));
        };
        let refused =
            |error: io::Error| problems::chain(format!("the socket cannot be bound: {error}"), "send a socket");
        bind_socket_as(module.bind_fd(), bound.as_fd(), slot).map_err(refused)?;
        send(socket, &FromDaemon::Given(Given(0)), &[]);
        Ok(())
    }

    /// The connection has ended, and with it everything that was asked for under it.
    pub(super) fn end_lease(&self, id: LeaseId) {
        let mut registry = self.registry();
        let Some(lease) = registry.leases.remove(&id) else { return };
        let own = |owner: Option<super::ServiceOwner>| owner.is_some_and(|owner| owner.lease == id);
        let services: Vec<_> = registry.services.iter().filter(|(_, s)| own(s.owner)).map(|(id, _)| *id).collect();
        let held = |s: &&Arc<Subscription>| s.terms.lease == Some(id);
        let subscriptions: Vec<_> = registry.subscriptions.values().filter(held).map(|s| s.id).collect();
        registry.handlers.retain(|_, handler| handler.lease != Some(id));
        registry.calls.retain(|_, call| !services.contains(&call.service));
        drop(registry);
        self.forget(&*lease.socket);
        let of_services: Vec<_> = services.into_iter().flat_map(|id| self.end_service(id)).collect();
        let own: Vec<_> = subscriptions.into_iter().filter_map(|id| self.end_subscription(id)).collect();
        drop_aside((lease, of_services, own));
    }

    /// A process that a subscription is about has ended.
    pub(super) fn process_ended(&self, id: SubscriptionId) {
        let found = self.registry().subscriptions.get(&id).cloned();
        if let Some(subscription) = found {
            self.tell_ended(&subscription, "its process has ended");
            drop_aside(self.end_subscription(id));
        }
    }

    /// Subscriptions of users to processes that are not theirs any more.
    pub(super) fn lost_processes(&self) -> Vec<SubscriptionId> {
        let all: Vec<_> = self.registry().subscriptions.values().cloned().collect();
        let narrowed = all.iter().filter(|s| !self.config.grants(s.terms.owner, &s.terms.service_name));
        let lost = narrowed.filter(|s| s.terms.only_pid.is_some_and(|pid| !auth::still_owns(s.terms.owner, pid)));
        lost.map(|subscription| subscription.id).collect()
    }

    /// Ends such a subscription.
    pub(super) fn process_lost(&self, id: SubscriptionId) {
        let found = self.registry().subscriptions.get(&id).cloned();
        if let Some(subscription) = found {
            self.tell_ended(&subscription, "its process runs as another user");
            drop_aside(self.end_subscription(id));
        }
    }

    pub(super) fn tell_ended(&self, subscription: &Subscription, why: &str) {
        self.tell(subscription.terms.lease, &FromDaemon::Ended { subscription: subscription.id, why });
    }

    pub(super) fn tell_taken_out(&self, subscription: &Subscription, why: &str) {
        self.tell(subscription.terms.lease, &FromDaemon::TakenOut { subscription: subscription.id, why });
    }

    /// Tells a connection, if there is one; whether it could be told.
    pub(super) fn tell(&self, lease: Option<LeaseId>, message: &FromDaemon<'_>) -> bool {
        let find = |id| self.registry().leases.get(&id).map(|lease| lease.socket.clone());
        let Some(socket) = lease.and_then(find) else { return false };
        send(&socket, message, &[]);
        true
    }
}

fn welcome(socket: &Foreign, id: LeaseId, version: u8) {
    match version {
        VERSION => send(socket, &FromDaemon::Welcome(id), &[]),
        other => {
            let why = format!("the client speaks version {other}, this daemon {VERSION}; install the same of both");
            send(socket, &FromDaemon::Refused(&why), &[]);
        }
    }
}

/// A client that does not read what it is told misses it: the socket never makes us wait.
fn send(socket: &Foreign, message: &FromDaemon<'_>, with: &[BorrowedFd<'_>]) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    if let Err(error) = fds::send(socket, &bytes, with) {
        tracing::debug!(%error, "a client of ECalls was not told");
    }
}
