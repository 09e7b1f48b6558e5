//! Joint contracts in the service: users ask for them through the API, and other hosts for their parts here.
//!
//! ```text
//!   API ── apply, list, end ──┐                       ┌── orders ──> Book ──> control thread, memory, links
//!                             ├──> thread of contracts┤
//!   Member ── messages ───────┘   Coordinator,        └── messages ──> Member ──> group `contracts`
//!                                 Participant
//! ```
//! | file | contents |
//! |---|---|
//! | `thread.rs` | the thread: it owns coordinator, participant and book, and reads one clock |
//! | `records.rs` | the contracts that users of this host asked for |
//! | `book.rs`, `brokers.rs` | what this host holds for contracts, in its brokers |
//! | `config.rs` | the caps of initiators, section `[joint]` |
//! | `routes.rs`, `problems.rs` | the API's paths, and their refusals |

mod book;
mod brokers;
mod config;
mod problems;
mod records;
pub(crate) mod routes;
mod thread;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use qfabric_host::manager::contracts::{ContractMessage, NotReadable};
use qfabric_types::LinkEnd;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointContract, JointHolding, JointId, JointRefusal, JointRequest};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::channel::Name;
use tokio::sync::oneshot;

use crate::auth::Peer;
use crate::problem;
pub use config::{InitiatorCap, JointConfig, LinkKey};
pub(crate) use thread::{ContractsThread, Parts};

/// Calls that may wait for the thread; a message beyond is lost, and sent again by its host.
const WAITING: usize = 1_024;

/// Why a contract was not made.
pub(crate) enum NotMade {
    /// A host refused its part.
    Refused(Box<JointRefusal>),
    /// The request is not possible, whatever is free.
    Problem(Problem),
}

impl From<Problem> for NotMade {
    fn from(problem: Problem) -> NotMade {
        NotMade::Problem(problem)
    }
}

/// Something for the thread.
enum Call {
    Apply {
        peer: Peer,
        request: Box<JointRequest>,
        reply: oneshot::Sender<Result<JointContract, NotMade>>,
    },
    List {
        peer: Peer,
        reply: oneshot::Sender<Vec<JointContract>>,
    },
    End {
        peer: Peer,
        id: JointId,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
    Rate {
        id: JointId,
        end: LinkEnd,
        reply: oneshot::Sender<Option<HeldRateId>>,
    },
    /// What this host holds, and the counters; made when asked for, because contracts in force have many messages.
    Look {
        reply: oneshot::Sender<(Vec<JointHolding>, ContractsReport)>,
    },
    /// A message of another host.
    Heard(Name, Result<ContractMessage, NotReadable>),
    /// Another host is gone.
    Gone(Name),
    Stop,
}

/// Counters of contracts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContractsReport {
    /// Contracts in force that users of this host asked for.
    pub in_force: usize,
    /// Parts that this host holds or has committed, for contracts of all hosts.
    pub parts: usize,
    pub made: u64,
    pub refused: u64,
    /// Contracts in force that ended because of a host, not because a user ended them.
    pub lost: u64,
    pub upgraded: u64,
    /// Parts that this host freed because their time was over.
    pub expired: u64,
    /// Messages that were lost because too many waited.
    pub dropped: u64,
}

/// The way to the thread of contracts.
pub(crate) struct Contracts {
    /// The name of this host in contracts.
    host: Name,
    calls: SyncSender<Call>,
    dropped: AtomicU64,
}

impl Contracts {
    /// The name of this host in contracts.
    pub(crate) fn host(&self) -> &Name {
        &self.host
    }

    /// Makes a contract. The answer may take as long as all attempts.
    pub(crate) async fn apply(&self, peer: Peer, request: JointRequest) -> Result<JointContract, NotMade> {
        let request = Box::new(request);
        self.ask(|reply| Call::Apply { peer, request, reply }).await?
    }

    /// The contracts that the peer may end. The others are not shown, because the number of a contract is the right to
    /// its parts on other hosts.
    pub(crate) async fn list(&self, peer: Peer) -> Result<Vec<JointContract>, Problem> {
        self.ask(|reply| Call::List { peer, reply }).await
    }

    pub(crate) async fn show(&self, peer: Peer, id: &JointId) -> Result<JointContract, Problem> {
        let found = self.list(peer).await?.into_iter().find(|contract| contract.id == *id);
        found.ok_or_else(|| problems::no_such_contract(id))
    }

    pub(crate) async fn end(&self, peer: Peer, id: JointId) -> Result<(), Problem> {
        self.ask(|reply| Call::End { peer, id, reply }).await?
    }

    /// The rate that a contract has on a link of this host.
    pub(crate) async fn rate(&self, id: JointId, end: LinkEnd) -> Result<HeldRateId, Problem> {
        let refused = problems::no_such_rate(&id, &end);
        self.ask(|reply| Call::Rate { id, end, reply }).await?.ok_or(refused)
    }

    /// What this host holds for contracts, and the counters.
    pub(crate) async fn look(&self) -> Result<(Vec<JointHolding>, ContractsReport), Problem> {
        let (holdings, report) = self.ask(|reply| Call::Look { reply }).await?;
        Ok((holdings, ContractsReport { dropped: self.dropped.load(Ordering::Relaxed), ..report }))
    }

    /// Passes a message of another host to the thread. Never waits.
    pub(crate) fn heard(&self, host: Name, message: Result<ContractMessage, NotReadable>) {
        self.pass(Call::Heard(host, message));
    }

    /// Another host is gone. Never waits.
    pub(crate) fn gone(&self, host: Name) {
        self.pass(Call::Gone(host));
    }

    fn pass(&self, call: Call) {
        if self.calls.try_send(call).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.calls.try_send(call(reply)).map_err(|refused| match refused {
            TrySendError::Full(_) => problem::busy(WAITING),
            TrySendError::Disconnected(_) => problem::stopping(),
        })?;
        answer.await.map_err(|_| problem::stopping())
    }
}
