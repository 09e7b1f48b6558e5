//! Interfaces under packet scheduling: rights, admission, leases, and streams that follow attributes.
//!
//! | file | contents |
//! |---|---|
//! | `admission.rs` | whether a link carries a set of streams; the longest delay of a stream |
//! | `board.rs`, `steering.rs` | what monitors read of streams, and what policies decide about them |
//! | `config.rs` | the section `[net]` of the configuration, at the start and at SIGHUP |
//! | `follow.rs` | streams that follow the attributes of a subscription |
//! | `held.rs` | rates that are promised without a stream, for joint contracts and loans |
//! | `interface.rs` | one interface: its streams and the promises behind them |
//! | `leases.rs` | leases of streams, and freed rates |
//! | `lent.rs` | rates of loans to other hosts |
//! | `links.rs` | links that are open to all users |
//! | `namespaces.rs` | network namespaces of the daemon and of the caller, in refusals |
//! | `problems.rs` | refusals of the API |
//! | `promised.rs` | the promised rates of processes, for the status of applications |
//! | `reload.rs` | changed links of the configuration |
//! | `rights.rs` | what a caller may do with streams |
//! | `routes.rs` | the paths |
//!
//! The state ends with the daemon, which then restores the former queues of the interfaces; after a crash the next
//! start restores them. One lock protects the whole state: changes are rare, and packets never wait for the lock.
mod admission;
mod board;
mod config;
mod follow;
mod held;
mod interface;
mod leases;
mod lent;
mod links;
mod namespaces;
mod problems;
mod promised;
mod reload;
mod rights;
pub(crate) mod routes;
#[cfg(test)]
mod site;
mod steering;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use qfabric_linux::net::{Attachment, Book};
use qfabric_sync::{Lock, rank};
use qfabric_types::InterfaceName;
use qfabric_types::api::Problem;
use qfabric_types::api::net::{
    AttachRequest, InterfaceInfo, LinkRequest, StreamChange, StreamId, StreamInfo, StreamSpec,
};

use crate::auth::Peer;
use crate::channels::Fabric;
use crate::ecalls::Ecalls;
use crate::ending::Ending;
use crate::problem;
pub(crate) use board::Board;
pub use config::{LinkConfig, NetConfig, Rate};
pub(crate) use held::{HoldRequest, Links, RateRefusal};
use interface::Interface;
use leases::Lease;
pub(crate) use lent::{LoanOrder, RateAnswer};
use rights::Caller;

/// The interfaces of this host under packet scheduling.
pub(crate) struct Net {
    state: Lock<State, { rank::NET }>,
    /// A copy of the promised rates, which can be read while the state is locked for long.
    promised: Lock<Vec<promised::OfProcess>, { rank::PROMISED_RATES }>,
    /// Tells which subscriptions a caller may let a stream follow.
    ecalls: Weak<Ecalls>,
    board: Arc<Board>,
    /// The policies that get the readings of streams; unset until the service has begun, and without channels.
    fabric: OnceLock<Weak<Fabric>>,
}

struct State {
    book: Book,
    attached: BTreeMap<String, Interface>,
    /// Links of the configuration that are not open yet.
    configured: BTreeMap<InterfaceName, links::Pending>,
    /// The links of the configuration, open or not.
    in_file: BTreeSet<InterfaceName>,
    held: held::Ends,
    /// Everything is restored, and no interface can be attached any more.
    is_over: bool,
}

impl Net {
    /// No interface is attached yet; changes are recorded in `directory`. Streams follow the subscriptions of
    /// `ecalls`. A thread opens the configured `links`.
    pub(crate) fn new(
        directory: &Path,
        links: BTreeMap<InterfaceName, LinkRequest>,
        ecalls: &Arc<Ecalls>,
        ending: &Ending,
    ) -> std::io::Result<Arc<Net>> {
        let (book, in_file) = (Book::open(directory), links.keys().cloned().collect());
        let configured = links::pending(links);
        let held = held::Ends::default();
        let state = State { book, attached: BTreeMap::new(), configured, in_file, held, is_over: false };
        let (promised, board) = (Lock::default(), Arc::default());
        let (ecalls_of_net, fabric) = (Arc::downgrade(ecalls), OnceLock::new());
        let net = Arc::new(Net { state: state.into(), promised, ecalls: ecalls_of_net, board, fabric });
        follow::start(&net, ecalls, ending)?;
        Ok(net)
    }

    /// What streams count, and what policies decide about them.
    pub(crate) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// From now on the policies of this host get the readings of streams.
    pub(crate) fn report_to(&self, fabric: &Arc<Fabric>) {
        // Called once.
        let _ = self.fabric.set(Arc::downgrade(fabric));
    }

    fn state(&self) -> promised::Changing<'_> {
        promised::Changing::of(self)
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
        state.attach(interface, request)?;
        Ok(state.get(interface)?.info())
    }

    /// Restores the interface's former queue.
    pub(crate) fn detach(&self, peer: Peer, interface: &str) -> Result<(), Problem> {
        problems::check_permission(peer)?;
        self.state().detach(interface)
    }

    /// Opens a link to all users, or replaces its limits.
    pub(crate) fn open_link(
        &self,
        peer: Peer,
        interface: &str,
        request: &LinkRequest,
    ) -> Result<InterfaceInfo, Problem> {
        problems::check_permission(peer)?;
        self.state().open_link(interface, request)
    }

    /// Closes a link: the streams of ordinary users end.
    pub(crate) fn close_link(&self, peer: Peer, interface: &str) -> Result<(), Problem> {
        problems::check_permission(peer)?;
        self.state().close_link(interface)
    }

    /// Begins a stream if the caller may, and the link carries the stream beside the others.
    pub(crate) fn begin(&self, peer: Peer, interface: &str, spec: &StreamSpec) -> Result<StreamInfo, Problem> {
        let caller = Caller::of(peer);
        let mut state = self.state();
        let entry = state.open_to(interface, caller)?;
        let lease = lease(caller, spec)?;
        entry.begin(spec, lease, None)
    }

    /// Changes a stream if the caller may, and the link carries the change.
    pub(crate) fn change(
        &self,
        peer: Peer,
        interface: &str,
        id: StreamId,
        change: &StreamChange,
    ) -> Result<StreamInfo, Problem> {
        let caller = Caller::of(peer);
        let mut state = self.state();
        let entry = state.open_to(interface, caller)?;
        check_owner(entry, interface, id, caller)?;
        if let (Some(id @ 1..), Some(ecalls)) = (change.follow, self.ecalls.upgrade()) {
            ecalls.subscription(peer, id)?;
        }
        entry.change(id, change, caller)?;
        match change.follow {
            Some(0) => drop(entry.followed.remove(&id)),
            Some(subscription) => drop(entry.followed.insert(id, subscription)),
            None => {}
        }
        entry.stream(id)
    }

    /// Ends a stream of the caller: from now on its packets are best effort.
    pub(crate) fn end(&self, peer: Peer, interface: &str, id: StreamId) -> Result<(), Problem> {
        let caller = Caller::of(peer);
        let mut state = self.state();
        let entry = state.open_to(interface, caller)?;
        check_owner(entry, interface, id, caller)?;
        entry.end(id)
    }
}

/// Checks a new stream of a caller, and returns its lease.
fn lease(caller: Caller, spec: &StreamSpec) -> Result<Lease, Problem> {
    qfabric_linux::net::check(spec).map_err(|error| error.problem())?;
    let lease = Lease::of(caller, &spec.terms)?;
    if lease.is_ordinary {
        rights::check_stream(spec, lease.owner.uid)?;
    }
    Ok(lease)
}

/// Allows the owner of a stream, and callers who may change interfaces.
fn check_owner(entry: &Interface, interface: &str, id: StreamId, caller: Caller) -> Result<(), Problem> {
    match entry.broker.owner(id) {
        Some(owner) if !caller.is_privileged && owner.uid != caller.peer.owner.uid => {
            Err(problems::not_your_stream(interface, id, owner.uid, caller.peer.owner.uid))
        }
        _ => Ok(()),
    }
}

impl State {
    fn get(&mut self, interface: &str) -> Result<&mut Interface, Problem> {
        self.attached.get_mut(interface).ok_or_else(|| problems::not_attached(interface))
    }

    /// The interface, if the caller may have streams on it.
    fn open_to(&mut self, interface: &str, caller: Caller) -> Result<&mut Interface, Problem> {
        let uid = caller.peer.owner.uid;
        match self.attached.get_mut(interface) {
            Some(entry) if caller.is_privileged || entry.opened.is_some() => Ok(entry),
            None if caller.is_privileged => Err(problems::not_attached(interface)),
            _ => Err(problems::not_open(interface, uid)),
        }
    }

    fn attach(&mut self, interface: &str, request: &AttachRequest) -> Result<(), Problem> {
        let attachment = Attachment::attach(interface, request, &mut self.book).map_err(|error| error.problem())?;
        let info = attachment.info();
        let entry = Interface::new(interface, attachment)?;
        if let Some(gone) = self.attached.insert(interface.to_owned(), entry) {
            // An interface of this name that no longer exists: its record must not outlive it.
            gone.attachment.detach(&mut self.book).map_err(|error| error.problem())?;
        }
        tracing::info!(interface, mechanism = %info.mechanism, former = info.former, "packet scheduling begins");
        Ok(())
    }

    fn detach(&mut self, interface: &str) -> Result<(), Problem> {
        let entry = self.attached.get_mut(interface).ok_or_else(|| problems::not_attached(interface))?;
        // After an error the interface stays, and the next request or the end of the service tries again.
        entry.attachment.give_back(&mut self.book).map_err(|error| error.problem())?;
        self.attached.remove(interface);
        Ok(())
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
