//! Connections to `ecalls.sock` and their messages. All input is hostile: it is bounded, checked, and answered or
//! counted.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use qfabric_linux::ecalls::{SocketModule, bind_socket_as};
use qfabric_shm::fds;
use qfabric_types::Owner;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{LeaseId, SubscriptionId};
use qfabric_types::ecalls_wire::{DescriptorSet, FromClient, FromDaemon, RaiseRequest, VERSION};

use super::handed::{Handed, HandedFor};
use super::memory::Down;
use super::raise::Event;
use super::registry::Lease;
use super::subscription::{Subscription, count};
use super::{Ecalls, Source, drop_aside, problems};
use crate::auth::{self, Peer, places_for};
use crate::closer::Foreign;
use crate::ending::contain;
use crate::problem;

/// Messages read from one connection per turn.
const MESSAGES_PER_TURN: usize = 64;
/// Connections of one user that have pages of ready sockets (root excepted).
const MODULES_OF_USER: usize = 8;
/// Connections of all users that have pages of ready sockets: each costs every socket of the host.
const MODULES: usize = 32;

impl Ecalls {
    /// Adds a connection, or refuses it.
    pub(super) fn accept_one(&self, socket: OwnedFd) {
        let peer = Peer::of(&socket);
        let uid = peer.as_ref().map_or(u32::MAX, |peer| peer.owner.uid);
        let socket = Arc::new(Foreign::new(socket, uid, &self.closer));
        let Ok(peer) = peer else { return };
        let mut registry = self.registry();
        let own = registry.leases.values().filter(|lease| lease.peer.owner.uid == peer.owner.uid).count();
        let most = places_for(uid, self.config().max_leases);
        let full = registry.leases.len() >= most
            || (peer.owner.uid != 0 && own >= self.config().max_leases_per_user)
            || self.closer.is_full(uid);
        if full {
            drop(registry);
            let problem = problems::limit("too many connections to ecalls.sock", most, "ecalls.max_leases");
            return send(&socket, &FromDaemon::Refused(&problem.to_string()), &[]);
        }
        let id = registry.number();
        let lease = Lease {
            peer,
            socket: socket.clone(),
            down: None,
            attributes: Vec::new(),
            sockets: None,
            opens_sockets: false,
            module_place: None,
        };
        registry.leases.insert(id, lease);
        drop(registry);
        if self.watch(&*socket, Source::Lease(id)).is_err() {
            self.end_lease(id);
        }
    }

    /// Reads and handles the messages of a connection.
    pub(super) fn serve_lease(self: &Arc<Self>, id: LeaseId, buffer: &mut [u8]) {
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
                // A message longer than any valid one is cut; the connection can still be used.
                match FromClient::decode(&buffer[..got.length]).filter(|_| !got.is_cut) {
                    Some(message) => self.handle(id, peer, &socket, &message, &got.fds),
                    None => count(&self.totals.nonsense),
                }
            }
            if !self.close_aside(peer, got.fds) || is_over {
                return self.end_lease(id);
            }
        }
    }

    /// Closes descriptors that descriptors with a message. Returns whether the user may send more.
    fn close_aside(&self, peer: Peer, descriptors: Vec<OwnedFd>) -> bool {
        if descriptors.is_empty() {
            return true;
        }
        self.closer.close(peer.owner.uid, descriptors);
        !self.closer.is_full(peer.owner.uid)
    }

    fn handle(
        self: &Arc<Self>,
        id: LeaseId,
        peer: Peer,
        socket: &Arc<Foreign>,
        message: &FromClient<'_>,
        descriptors: &[OwnedFd],
    ) {
        let answer = match message {
            FromClient::Raise(raise) => return self.raised(peer, raise),
            FromClient::Reply { call, data } => return self.replied(id, *call, data),
            FromClient::Hello { version } => return welcome(socket, id, *version),
            FromClient::Take(subscription) => self.give_memory(socket, peer, *subscription),
            FromClient::TakeDown => self.give_down(socket, peer, id),
            FromClient::TakeSockets => self.give_sockets(socket, id),
            FromClient::Bind(slot) => self.bind(socket, id, *slot, descriptors),
        };
        if let Err(problem) = answer {
            send(socket, &FromDaemon::Refused(&problem.to_string()), &[]);
        }
    }

    fn raised(&self, peer: Peer, raise: &RaiseRequest<'_>) {
        let event = Event::now(raise.pid, raise.data, raise.deadline_us, raise.cpu);
        if self.raise_by_lease(peer, raise.service, &event).is_none() {
            count(&self.totals.nonsense);
        }
    }

    /// Only the connection that registered the service may answer a call.
    fn replied(&self, id: LeaseId, call: u64, data: &[u8]) {
        let mut registry = self.registry();
        let Some(service) = registry.calls.get(&call).map(|call| call.service) else { return };
        let owner = registry.services.get(&service).and_then(|service| service.owner);
        if owner.is_some_and(|owner| owner.lease == id)
            && let Some(call) = registry.calls.remove(&call)
        {
            // Fails if the caller has given up.
            let _ = call.answer.send(data.to_vec());
        }
    }

    fn give_memory(&self, socket: &Foreign, peer: Peer, id: SubscriptionId) -> Result<(), Problem> {
        let subscription = self.registry().subscription(id, peer)?.clone();
        let handed = Handed {
            uid: subscription.terms.owner.uid,
            bytes: subscription.terms.memory_bytes,
            objects: subscription.objects(&self.given_files).map_err(|error| unknown(&error))?,
            _module_place: None,
        };
        let call = subscription.call_fd();
        self.registry().handed.add(HandedFor::Subscription(id), handed);
        match &subscription.chain.up {
            Some(up) => up.with_fds(|fds| give(socket, DescriptorSet::UP | DescriptorSet::WAKE, &fds, call.as_ref())),
            None if call.is_some() => give(socket, 0, &[], call.as_ref()),
            None => {
                let message = format!("subscription {id} has no memory_up");
                return Err(problems::chain(message, "subscribe with memory_up"));
            }
        }
        Ok(())
    }

    fn give_down(&self, socket: &Foreign, peer: Peer, id: LeaseId) -> Result<(), Problem> {
        let config = self.config();
        self.check_room_now(|| self.registry().check_kept_connections(peer.owner, &config))?;
        let down = self.down_of(id)?;
        let objects = vec![down.object(&self.given_files).map_err(|error| unknown(&error))?];
        let handed = Handed { uid: peer.owner.uid, bytes: 0, objects, _module_place: None };
        self.registry().handed.add(HandedFor::Connection(id), handed);
        send(socket, &FromDaemon::Descriptors(DescriptorSet(DescriptorSet::DOWN)), &[down.fd()]);
        Ok(())
    }

    /// The session's memory_down, created at its first use.
    pub(super) fn down_of(&self, id: LeaseId) -> Result<Arc<Down>, Problem> {
        let made = self.registry().leases.get(&id).ok_or_else(|| problems::no_such_lease(id))?.down.clone();
        if let Some(down) = made {
            return Ok(down);
        }
        // Without the lock of the registry, for which events wait. If another thread was faster, its memory is used.
        let made = Down::new(self.kernel().is_ok());
        let fresh = Arc::new(made.map_err(|error| problem::internal(format!("cannot create memory_down: {error}")))?);
        let mut registry = self.registry();
        let lease = registry.leases.get_mut(&id).ok_or_else(|| problems::no_such_lease(id))?;
        let down = lease.down.get_or_insert_with(|| fresh.clone()).clone();
        drop(registry);
        Ok(down)
    }

    /// Gives the pages of the I/O module, which is opened at its first use: in a separate thread, because its programs
    /// are loaded and attached.
    fn give_sockets(self: &Arc<Self>, socket: &Arc<Foreign>, id: LeaseId) -> Result<(), Problem> {
        self.kernel().map_err(|why| problems::unavailable("sock.ready", &why.what, &why.remedy))?;
        let opened = self.registry().leases.get(&id).and_then(|lease| lease.sockets.clone());
        if let Some(module) = opened {
            give_module(socket, &module);
            return Ok(());
        }
        let place = self.check_room_now(|| self.begin_module(id))?;
        let (own, to) = (self.clone(), socket.clone());
        let open = move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 0);
            let opened = contain(|| own.open_module(id, &place));
            let opened = opened.unwrap_or_else(|why| Err(problem::internal(format!("the service panicked: {why}"))));
            own.registry().leases.get_mut(&id).into_iter().for_each(|lease| lease.opens_sockets = false);
            match opened {
                Ok(module) => give_module(&to, &module),
                Err(problem) => send(&to, &FromDaemon::Refused(&problem.to_string()), &[]),
            }
        };
        let started = std::thread::Builder::new().name("qf-ecalls-io".to_owned()).spawn(open);
        started.map(drop).map_err(|error| {
            self.registry().leases.get_mut(&id).into_iter().for_each(|lease| lease.opens_sockets = false);
            problem::internal(format!("cannot start a thread: {error}"))
        })
    }

    fn open_module(&self, id: LeaseId, place: &Arc<()>) -> Result<Arc<SocketModule>, Problem> {
        let side = self.kernel().map_err(|why| problems::unavailable("sock.ready", &why.what, &why.remedy))?;
        let module = Arc::new(SocketModule::open(&side.kernel).map_err(|error| error.problem())?);
        let objects = module.objects().map_err(|error| unknown(&error))?.into();
        let mut registry = self.registry();
        let lease = registry.leases.get_mut(&id).ok_or_else(|| problems::no_such_lease(id))?;
        (lease.sockets, lease.module_place) = (Some(module.clone()), Some(place.clone()));
        let uid = lease.peer.owner.uid;
        let handed = Handed { uid, bytes: 0, objects, _module_place: Some(place.clone()) };
        registry.handed.add(HandedFor::Sockets(id), handed);
        drop(registry);
        Ok(module)
    }

    /// Reserves a module for the connection. Each module has programs that run whenever a socket of the host becomes
    /// ready, so all modules together are limited. The place is free when the module and its pages are gone, not when
    /// the connection is: otherwise a client that connects, asks and leaves would start any number of threads and
    /// programs, and keep any number of pages.
    fn begin_module(&self, id: LeaseId) -> Result<Arc<()>, Problem> {
        let mut registry = self.registry();
        registry.modules.retain(|(_, place)| place.strong_count() > 0);
        let uid = registry.leases.get(&id).ok_or_else(|| problems::no_such_lease(id))?.peer.owner.uid;
        let own = registry.modules.iter().filter(|(of, _)| *of == uid).count();
        check_modules(uid, own, registry.modules.len())?;
        let lease = registry.leases.get_mut(&id).ok_or_else(|| problems::no_such_lease(id))?;
        if std::mem::replace(&mut lease.opens_sockets, true) {
            return Err(problems::chain("the pages of ready sockets are being opened", "wait for the first answer"));
        }
        let place = Arc::new(());
        registry.modules.push((uid, Arc::downgrade(&place)));
        Ok(place)
    }

    fn bind(&self, socket: &Foreign, id: LeaseId, slot: u32, descriptors: &[OwnedFd]) -> Result<(), Problem> {
        let module = self.registry().leases.get(&id).and_then(|lease| lease.sockets.clone());
        let none = || problems::chain("this connection has no pages of ready sockets", "ask for them first");
        let module = module.ok_or_else(none)?;
        let [bound] = descriptors else {
            return Err(problems::chain("the message must contain exactly one socket", "send one socket descriptor"));
        };
        let refused = |error: io::Error| problems::chain(format!("cannot bind the socket: {error}"), "send a socket");
        bind_socket_as(module.bind_fd(), bound.as_fd(), slot).map_err(refused)?;
        send(socket, &FromDaemon::Descriptors(DescriptorSet(0)), &[]);
        Ok(())
    }

    /// Ends everything that was requested through a connection that has closed.
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
        self.undeploy_of_lease(Some(id));
        let of_services: Vec<_> = services.into_iter().flat_map(|id| self.end_service(id)).collect();
        let own: Vec<_> = subscriptions.into_iter().filter_map(|id| self.end_subscription(id)).collect();
        drop_aside((lease, of_services, own));
    }

    /// Ends a subscription whose process has ended.
    pub(super) fn process_ended(&self, id: SubscriptionId) {
        let found = self.registry().subscriptions.get(&id).cloned();
        if let Some(subscription) = found {
            self.report_ended(&subscription, "its process has ended");
            drop_aside(self.end_subscription(id));
        }
    }

    /// Subscriptions of users whose processes no longer belong to them: the process that receives the events, or the
    /// process whose events they are. A grant for the whole service makes no difference, because it was not needed
    /// to name an own process.
    pub(super) fn lost_processes(&self) -> Vec<SubscriptionId> {
        let all: Vec<_> = self.registry().subscriptions.values().cloned().collect();
        let mut owned = HashMap::new();
        let mut is_lost = |owner: Owner, pid: i32| {
            pid > 0 && !*owned.entry((owner.uid, pid)).or_insert_with(|| auth::still_owns(owner, pid))
        };
        let of_users = all.iter().filter(|subscription| subscription.terms.owner.uid != 0);
        let lost = of_users.filter(|subscription| {
            let terms = &subscription.terms;
            [Some(terms.process_id), terms.only_pid].into_iter().flatten().any(|pid| is_lost(terms.owner, pid))
        });
        lost.map(|subscription| subscription.id).collect()
    }

    /// Ends such a subscription.
    pub(super) fn process_lost(&self, id: SubscriptionId) {
        let found = self.registry().subscriptions.get(&id).cloned();
        if let Some(subscription) = found {
            self.report_ended(&subscription, "its process runs as another user");
            drop_aside(self.end_subscription(id));
        }
    }

    pub(super) fn report_ended(&self, subscription: &Subscription, why: &str) {
        self.send_to(subscription.terms.lease, &FromDaemon::Ended { subscription: subscription.id, why });
    }

    pub(super) fn report_removed(&self, subscription: &Subscription, why: &str) {
        self.send_to(subscription.terms.lease, &FromDaemon::TakenOut { subscription: subscription.id, why });
    }

    /// Sends a message to a connection. Returns whether the connection exists.
    pub(super) fn send_to(&self, lease: Option<LeaseId>, message: &FromDaemon<'_>) -> bool {
        let find = |id| self.registry().leases.get(&id).map(|lease| lease.socket.clone());
        let Some(socket) = lease.and_then(find) else { return false };
        send(&socket, message, &[]);
        true
    }
}

fn check_modules(uid: u32, own: usize, all: usize) -> Result<(), Problem> {
    let most = places_for(uid, MODULES);
    if uid != 0 && own >= MODULES_OF_USER {
        let what = format!("user {uid} has {own} connections with pages of ready sockets");
        return Err(problems::limit(
            &what,
            MODULES_OF_USER,
            "nothing: use one connection for all sockets of a process",
        ));
    }
    match all >= most {
        true => {
            let what = format!("{all} connections have pages of ready sockets");
            Err(problems::limit(&what, most, "nothing: use one connection for all sockets of a process"))
        }
        false => Ok(()),
    }
}

/// The kernel does not say what the descriptors to be given belong to.
fn unknown(error: &io::Error) -> Problem {
    problem::internal(format!("cannot ask the kernel about shared memory: {error}"))
}

/// Gives the descriptors of a subscription: those of its memory, with their bits, and of the program that its process
/// calls.
fn give(socket: &Foreign, bits: u8, memory: &[BorrowedFd<'_>], call: Option<&OwnedFd>) {
    let given = DescriptorSet(bits | if call.is_some() { DescriptorSet::CALL } else { 0 });
    let descriptors: Vec<_> = memory.iter().copied().chain(call.map(AsFd::as_fd)).collect();
    send(socket, &FromDaemon::Descriptors(given), &descriptors);
}

fn give_module(socket: &Foreign, module: &SocketModule) {
    let given = DescriptorSet(DescriptorSet::WAKE | DescriptorSet::SOCKETS | DescriptorSet::BIND);
    send(socket, &FromDaemon::Descriptors(given), &[module.wake_fd(), module.page_fd(), module.bind_fd()]);
}

fn welcome(socket: &Foreign, id: LeaseId, version: u8) {
    match version {
        VERSION => send(socket, &FromDaemon::Welcome(id), &[]),
        other => {
            let why = format!(
                "this daemon speaks version {VERSION} of ecalls.sock, the client {other}; install the same version of both"
            );
            send(socket, &FromDaemon::Refused(&why), &[]);
        }
    }
}

/// A client that does not read its messages loses them: sending never blocks.
fn send(socket: &Foreign, message: &FromDaemon<'_>, with: &[BorrowedFd<'_>]) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    if let Err(error) = fds::send(socket, &bytes, with) {
        tracing::debug!(%error, "cannot send a message to a client of ECalls");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_ready_sockets_are_limited_for_each_user_and_for_all_users_together() {
        assert!(check_modules(5, MODULES_OF_USER - 1, MODULES / 2).is_ok());
        let refused = check_modules(5, MODULES_OF_USER, MODULES_OF_USER).unwrap_err();
        assert!(refused.message.contains("user 5 has 8"), "{refused:?}");
        let most = places_for(5, MODULES);
        assert!(most < MODULES && check_modules(5, 0, most).unwrap_err().message.contains("28 is the limit"));
        assert!(check_modules(0, MODULES_OF_USER, most).is_ok(), "root has the rest");
        assert!(check_modules(0, 0, MODULES).is_err());
    }
}
