//! Interfaces under packet scheduling: rights, admission, and streams that follow attributes.
//!
//! | file | contents |
//! |---|---|
//! | `admission.rs` | whether a link carries a set of streams |
//! | `follow.rs` | streams that follow the attributes of a subscription |
//! | `problems.rs` | refusals of the API |
//! | `routes.rs` | the paths |
//!
//! The state ends with the daemon, which then restores the former queues of the interfaces; after a crash the next
//! start restores them. One lock protects the whole state: changes are rare, and packets never wait for the lock.
mod admission;
mod follow;
mod problems;
pub(crate) mod routes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use qfabric_linux::net::{Attachment, Book, NetError};
use qfabric_sync::{Guard, Lock, assert_may_block, rank};
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::SubscriptionId;
use qfabric_types::api::net::{AttachRequest, InterfaceInfo, StreamChange, StreamId, StreamInfo, StreamSpec};

use crate::auth::Peer;
use crate::ecalls::Ecalls;
use crate::ending::Ending;
use crate::problem;

/// The interfaces of this host under packet scheduling.
pub(crate) struct Net {
    state: Lock<State, { rank::NET }>,
}

struct State {
    book: Book,
    attached: BTreeMap<String, Interface>,
    /// Everything is restored, and no interface can be attached any more.
    is_over: bool,
}

struct Interface {
    attachment: Attachment,
    /// The subscription that each stream follows.
    followed: BTreeMap<StreamId, SubscriptionId>,
}

impl Net {
    /// No interface is attached yet; changes are recorded in `directory`. Streams follow the subscriptions of
    /// `ecalls`.
    pub(crate) fn new(directory: &Path, ecalls: &Arc<Ecalls>, ending: &Ending) -> std::io::Result<Arc<Net>> {
        let state = State { book: Book::open(directory), attached: BTreeMap::new(), is_over: false };
        let net = Arc::new(Net { state: state.into() });
        follow::start(&net, ecalls, ending)?;
        Ok(net)
    }

    fn state(&self) -> Guard<'_, State, { rank::NET }> {
        self.state.lock()
    }

    /// Blocks all requests until dropped, as a slow netlink exchange does.
    #[cfg(test)]
    pub(crate) fn hold_up(&self) -> impl Sized + '_ {
        self.state()
    }

    /// Restores all interfaces at the end of the service, even if another thread still holds this value.
    pub(crate) fn put_back(&self) {
        self.state().put_back();
    }

    pub(crate) fn list(&self) -> Vec<InterfaceInfo> {
        self.state().attached.values().map(Interface::info).collect()
    }

    pub(crate) fn show(&self, interface: &str) -> Result<InterfaceInfo, Problem> {
        Ok(self.state().get(interface)?.info())
    }

    /// Puts an interface under packet scheduling.
    pub(crate) fn attach(
        &self,
        peer: Peer,
        interface: &str,
        request: &AttachRequest,
    ) -> Result<InterfaceInfo, Problem> {
        problems::check_permission(peer)?;
        let mut state = self.state();
        if state.is_over {
            return Err(problem::stopping());
        }
        let State { book, attached, .. } = &mut *state;
        let attachment = Attachment::attach(interface, request, book).map_err(|error| error.problem())?;
        let entry = Interface { attachment, followed: BTreeMap::new() };
        let info = entry.info();
        attached.insert(interface.to_owned(), entry);
        tracing::info!(interface, mechanism = %info.mechanism, former = info.former, "packet scheduling begins");
        Ok(info)
    }

    /// Restores the interface's former queue.
    pub(crate) fn detach(&self, peer: Peer, interface: &str) -> Result<(), Problem> {
        problems::check_permission(peer)?;
        self.state().detach(interface)
    }

    /// Begins a stream if the link carries it beside the others.
    pub(crate) fn begin(&self, peer: Peer, interface: &str, spec: &StreamSpec) -> Result<StreamInfo, Problem> {
        problems::check_permission(peer)?;
        let mut state = self.state();
        let entry = state.get(interface)?;
        qfabric_linux::net::check(spec).map_err(|error| error.problem())?;
        admission::check(&entry.attachment, None, &entry.attachment.kept(spec))?;
        let id = entry.attachment.begin(spec).map_err(|error| error.problem())?;
        entry.stream(id)
    }

    /// Changes a stream if the link carries the change.
    pub(crate) fn change(
        &self,
        peer: Peer,
        interface: &str,
        id: StreamId,
        change: &StreamChange,
    ) -> Result<StreamInfo, Problem> {
        problems::check_permission(peer)?;
        let mut state = self.state();
        let entry = state.get(interface)?;
        let spec = entry.attachment.spec(id).map_err(|error| error.problem())?.changed(change);
        entry.set(id, &spec)?;
        match change.follow {
            Some(0) => drop(entry.followed.remove(&id)),
            Some(subscription) => drop(entry.followed.insert(id, subscription)),
            None => {}
        }
        entry.stream(id)
    }

    /// Ends a stream: from now on its packets are best effort.
    pub(crate) fn end(&self, peer: Peer, interface: &str, id: StreamId) -> Result<(), Problem> {
        problems::check_permission(peer)?;
        let mut state = self.state();
        let entry = state.get(interface)?;
        entry.attachment.end(id).map_err(|error| error.problem())?;
        entry.followed.remove(&id);
        Ok(())
    }
}

impl State {
    fn get(&mut self, interface: &str) -> Result<&mut Interface, Problem> {
        self.attached.get_mut(interface).ok_or_else(|| problems::not_attached(interface))
    }

    fn detach(&mut self, interface: &str) -> Result<(), Problem> {
        let entry = self.attached.remove(interface).ok_or_else(|| problems::not_attached(interface))?;
        entry.attachment.detach(&mut self.book).map_err(|error| error.problem())
    }
}

impl State {
    fn put_back(&mut self) {
        self.is_over = true;
        for interface in self.attached.keys().cloned().collect::<Vec<_>>() {
            if let Err(problem) = self.detach(&interface) {
                tracing::error!(interface, "the former queue of the interface is not restored: {}", problem.message);
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl Interface {
    fn info(&self) -> InterfaceInfo {
        assert_may_block("asking the kernel about an interface");
        let mut info = self.attachment.info();
        for stream in &mut info.streams {
            stream.follows = self.followed.get(&stream.id).copied();
        }
        info
    }

    fn stream(&self, id: StreamId) -> Result<StreamInfo, Problem> {
        let none = || NetError::NoStream { interface: self.info().interface, id }.problem();
        self.info().streams.into_iter().find(|stream| stream.id == id).ok_or_else(none)
    }

    fn set(&mut self, id: StreamId, spec: &StreamSpec) -> Result<(), Problem> {
        qfabric_linux::net::check(spec).map_err(|error| error.problem())?;
        admission::check(&self.attachment, Some(id), &self.attachment.kept(spec))?;
        self.attachment.change(id, spec).map_err(|error| error.problem())
    }
}
