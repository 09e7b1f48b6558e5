//! Joint contracts in the service: users ask for them through the API, and other hosts for their parts here.
//!
//! ```text
//!   API ── apply, list, end ──┐                       ┌── orders ──> Holds ─> control thread, memory, links
//!                             ├──> thread of contracts┤
//!   Member ── messages ───────┘   Coordinator,        └── messages ──> Member ──> group `contracts`
//!                                 Participant
//! ```
//! | file | contents |
//! |---|---|
//! | `thread.rs`, `thread/` | the thread: it owns coordinator, participant and book, and reads one clock |
//! | `calls.rs` | what the API and the network ask of the thread |
//! | `records.rs` | the contracts that users of this host asked for |
//! | `brokers.rs` | the brokers of this host behind the book ([`qfabric_broker::Holds`]) |
//! | `consents.rs` | who answers for the applications of this host |
//! | `lease.rs` | contracts and answers that end with a process |
//! | `config.rs` | the section `[joint]`: caps of initiators, reserved names, the default answer |
//! | `routes.rs`, `routes/`, `problems.rs` | the API's paths, and their refusals |

mod brokers;
mod calls;
mod config;
mod consents;
mod lease;
mod problems;
mod records;
pub(crate) mod routes;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use qfabric_host::manager::contracts::{ContractMessage, NotReadable};
use qfabric_types::LinkEnd;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{
    ConsentInfo, ConsentQuestion, ConsentRequest, JointContract, JointHolding, JointId, JointRequest, UpgradeOffer,
};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::channel::Name;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::api::answers::aside;
use crate::auth::{self, Peer};
use crate::problem;
use calls::{Call, ConsentCall, WAITING};
pub(crate) use calls::{ContractsReport, NotMade};
pub use config::{DefaultConsent, InitiatorCap, JointConfig, LinkKey};
pub(crate) use thread::{Parts, start_thread};

/// The way to the thread of contracts.
pub(crate) struct Contracts {
    /// The name of this host in contracts.
    host: Name,
    calls: SyncSender<Call>,
    dropped: AtomicU64,
    /// Number of the next lease.
    leases: AtomicU64,
}

impl Contracts {
    /// The name of this host in contracts.
    pub(crate) fn host(&self) -> &Name {
        &self.host
    }

    /// Makes a contract. The answer may take as long as all attempts.
    pub(crate) async fn apply(self: &Arc<Self>, peer: Peer, request: JointRequest) -> Result<JointContract, NotMade> {
        // Before the lease: the report of its end must not overtake the call that brings it.
        let groups = aside(move || Ok(auth::groups(peer))).await?;
        let lease = match request.lease_pid() {
            Some(pid) => Some(self.lease(peer, pid).await?),
            None => None,
        };
        let request = Box::new(request);
        self.ask(|reply| Call::Apply { peer, groups, request, lease, reply }).await?
    }

    /// The next upgrade that a host offers; `None`: there is none in this time.
    pub(crate) async fn next_offer(
        &self,
        peer: Peer,
        id: JointId,
        wait: Duration,
    ) -> Result<Option<UpgradeOffer>, Problem> {
        let (waiting, offer) = oneshot::channel();
        self.ask(|reply| Call::NextOffer { peer, id, waiting, reply }).await??;
        Ok(timeout(wait, offer).await.ok().and_then(Result::ok))
    }

    /// Accepts or declines an offer.
    pub(crate) async fn answer_offer(
        &self,
        peer: Peer,
        id: JointId,
        host: Name,
        is_accepted: bool,
    ) -> Result<(), Problem> {
        self.ask(|reply| Call::AnswerOffer { peer, id, host, is_accepted, reply }).await?
    }

    /// From now on the peer answers for an application, until a process ends if one is named.
    pub(crate) async fn consent(
        self: &Arc<Self>,
        peer: Peer,
        application: Name,
        request: ConsentRequest,
    ) -> Result<ConsentInfo, Problem> {
        let lease = match request.pid {
            Some(pid) => Some(self.lease(peer, pid).await?),
            None => None,
        };
        let policy = request.policy;
        self.ask(|reply| Call::Consent(ConsentCall::Set { peer, application, policy, lease, reply })).await?
    }

    pub(crate) async fn consents(&self, peer: Peer) -> Result<Vec<ConsentInfo>, Problem> {
        self.ask(|reply| Call::Consent(ConsentCall::List { peer, reply })).await
    }

    pub(crate) async fn end_consent(&self, peer: Peer, application: Name) -> Result<(), Problem> {
        self.ask(|reply| Call::Consent(ConsentCall::End { peer, application, reply })).await?
    }

    /// The next question; `None`: there is none in this time.
    pub(crate) async fn next_question(
        &self,
        peer: Peer,
        application: Name,
        wait: Duration,
    ) -> Result<Option<ConsentQuestion>, Problem> {
        let (waiting, question) = oneshot::channel();
        self.ask(|reply| Call::Consent(ConsentCall::Next { peer, application, waiting, reply })).await??;
        Ok(timeout(wait, question).await.ok().and_then(Result::ok))
    }

    pub(crate) async fn answer_question(
        &self,
        peer: Peer,
        application: Name,
        number: u64,
        is_accepted: bool,
    ) -> Result<(), Problem> {
        self.ask(|reply| Call::Consent(ConsentCall::Answer { peer, application, number, is_accepted, reply })).await?
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

    /// Applies a changed section `[joint]`. Contracts beyond a new cap stay, and get nothing more.
    pub(crate) async fn configure(&self, config: JointConfig) -> Result<(), Problem> {
        let config = Box::new(config);
        self.ask(|reply| Call::Configure { config, reply }).await
    }

    /// What this host holds for contracts.
    pub(crate) async fn look(&self) -> Result<Vec<JointHolding>, Problem> {
        self.ask(|reply| Call::Look { reply }).await
    }

    /// The counters.
    pub(crate) async fn count(&self) -> Result<ContractsReport, Problem> {
        let report = self.ask(|reply| Call::Count { reply }).await?;
        Ok(ContractsReport { dropped: self.dropped.load(Ordering::Relaxed), ..report })
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
