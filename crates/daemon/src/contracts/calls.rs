//! What the API and the network ask of the thread of contracts.

use qfabric_host::manager::contracts::{ContractMessage, NotReadable};
use qfabric_types::LinkEnd;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{
    ConsentInfo, ConsentPolicy, ConsentQuestion, JointContract, JointHolding, JointId, JointRefusal, JointRequest,
    UpgradeOffer,
};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::channel::Name;
use tokio::sync::oneshot;

use super::JointConfig;
use super::lease::Lease;
use crate::auth::Peer;

/// Calls that may wait for the thread; a message beyond is lost, and sent again by its host.
pub(super) const WAITING: usize = 1_024;

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
pub(super) enum Call {
    Apply {
        peer: Peer,
        /// All groups of the peer's process.
        groups: Vec<u32>,
        request: Box<JointRequest>,
        lease: Option<Lease>,
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
    /// Waits for an offer of a host.
    NextOffer {
        peer: Peer,
        id: JointId,
        waiting: oneshot::Sender<UpgradeOffer>,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
    AnswerOffer {
        peer: Peer,
        id: JointId,
        host: Name,
        is_accepted: bool,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
    Consent(ConsentCall),
    /// The section `[joint]` has changed.
    Configure {
        config: Box<JointConfig>,
        reply: oneshot::Sender<()>,
    },
    /// What this host holds; made when asked for, because contracts in force have many messages.
    Look {
        reply: oneshot::Sender<Vec<JointHolding>>,
    },
    /// The counters.
    Count {
        reply: oneshot::Sender<ContractsReport>,
    },
    /// The process of this lease has ended.
    HolderEnded(u64),
    /// A message of another host.
    Heard(Name, Result<ContractMessage, NotReadable>),
    /// Another host is gone.
    Gone(Name),
    Stop,
}

/// A call about the consent of an application.
pub(super) enum ConsentCall {
    Set {
        peer: Peer,
        application: Name,
        policy: ConsentPolicy,
        lease: Option<Lease>,
        reply: oneshot::Sender<Result<ConsentInfo, Problem>>,
    },
    List {
        peer: Peer,
        reply: oneshot::Sender<Vec<ConsentInfo>>,
    },
    End {
        peer: Peer,
        application: Name,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
    /// Waits for a question.
    Next {
        peer: Peer,
        application: Name,
        waiting: oneshot::Sender<ConsentQuestion>,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
    Answer {
        peer: Peer,
        application: Name,
        number: u64,
        is_accepted: bool,
        reply: oneshot::Sender<Result<(), Problem>>,
    },
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
