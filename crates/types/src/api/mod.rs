//! The bodies of the local API (HTTP/JSON on a Unix socket). The daemon serves them; clients and the CLI use them;
//! `GET /v1/openapi.json` describes them.
//!
//! | call | body → answer |
//! |---|---|
//! | `POST /v1/applications` | [`ApplicationRequest`] → 201 [`Application`], or a [`Problem`] |
//! | `GET /v1/applications` | → list of [`Application`] |
//! | `GET /v1/applications/{id}` | → [`Application`] |
//! | `PATCH /v1/applications/{id}` | [`crate::Contract`] → [`Application`] |
//! | `DELETE /v1/applications/{id}` | → 204 |
//! | `PUT /v1/applications/{id}/energy` | → [`energy::EnergySaving`]: hold its deadlines at the lowest clock |
//! | `POST /v1/claims/{claim}` | at the lender: [`ApplicationRequest`] for a loan → 201 [`Application`] |
//! | `DELETE /v1/claims/{claim}` | at the host that asked for the loan: gives the loan back → 204 |
//! | `GET /v1/status` | → [`HostStatus`] |
//! | `GET /v1/limits` | → [`HostLimits`] |
//! | `PUT /v1/limits` | all [`HostLimits`]; only for root and the service's own user → [`HostLimits`] |
//! | `PATCH /v1/limits` | [`LimitsPatch`] with the changed limits; for the same users → all [`HostLimits`] |
//! | `GET /v1/energy` | → [`energy::EnergyStatus`] |
//! | `GET /v1/timeline` | → [`timeline::Timeline`]: a page of what just happened |
//! | `POST /v1/web` | → [`web::WebPage`]: the address of the web page with a token of the user |
//! | `GET /metrics` | → Prometheus text |
//!
//! The modules [`ecalls`], [`channel`], [`net`] and [`contracts`] contain the bodies of services, Q-channels, packet
//! scheduling and joint contracts.
//!
//! Besides the API's socket, `ring.sock` (SOCK_SEQPACKET) passes on an application's ring: the client sends the id
//! in decimal, and the daemon answers `ok` with two descriptors: the ring's memory (a sealed memfd of the size of
//! [`crate::ring::JobRing`]) and an eventfd that the client writes to wake the daemon. The connection is the lease:
//! when it closes, the application has left.

pub mod channel;
pub mod contracts;
mod dispatch;
pub mod ecalls;
pub mod energy;
mod lending;
mod limits;
pub mod memory;
mod memory_limits;
pub mod net;
mod shortage;
pub mod timeline;
mod version;
pub mod web;

pub use dispatch::DispatchTableStatus;
pub use lending::{Claim, Loan, LoanRate, NoClaim, Offer};
pub use limits::{Change, HostLimits, InvalidLimit, LimitsPatch};
pub use memory_limits::{HostMemoryLimits, MemoryLimitsPatch};
pub use shortage::Shortage;
pub use version::{LIBRARY_AGENT, is_compatible};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    AppId, Contract, Invariance, Nanos, Overload, Owner, Quality, Reservation, ServerCounts, Share, ThreadId,
    UtilityStatus,
};

/// The threads that a contract covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Covers))]
#[serde(rename_all = "lowercase")]
pub enum ApplicationScope {
    /// Every thread of the process and of its children, including threads that appear later.
    #[default]
    Program,
    /// A single thread.
    Thread(ThreadId),
}

/// A request for a contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplicationRequest {
    /// The process of the contract: the caller's own, or another process of the same user.
    pub pid: i32,
    /// The covered threads of the process.
    #[serde(default)]
    pub covers: ApplicationScope,
    /// The requested contract.
    pub contract: Contract,
}

/// An application and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Application {
    /// The application's number.
    pub id: AppId,
    /// The application's process.
    pub pid: i32,
    /// The owner of the process.
    pub owner: Owner,
    /// The contract in force.
    pub contract: Contract,
    /// The guaranteed share.
    pub guaranteed: Share,
    /// Whether the target interval can be kept for every job of the profile; absent without a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invariance: Option<Invariance>,
    /// The share that its controllers want now.
    pub wanted: Share,
    /// The share that is granted now.
    pub granted: Share,
    /// The overload, if the application's jobs are short. The same values are in the application's ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// The utility at the granted share, if the contract has utility functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utility: Option<UtilityStatus>,
    /// The period found in the activations, if the contract leaves the period to the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rhythm: Option<FoundRhythm>,
    /// The threads under reservation.
    pub threads: Vec<ThreadStatus>,
    /// The quality achieved so far.
    pub quality: Quality,
    /// CPU time of its jobs divided by the time they had, as a share of one CPU.
    pub used: Share,
    /// The CPU time reserved so far.
    #[serde(default)]
    pub reserved: ReservedTime,
    /// Counts of its servers, if the mechanism has servers with counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCounts>,
    /// The CPUs on which its servers are admitted; empty if the mechanism moves threads freely.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// The reserve of resident memory, if the contract asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<memory::MemoryStatus>,
    /// The streams of packets that end with the application's process, or that the process asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bandwidth: Vec<net::Bandwidth>,
    /// The clock, if the application saves energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<energy::EnergySaving>,
}

/// The reservations of all threads of an application together, as two sums that only grow. The difference of two
/// readings is the reserved time between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Reserved))]
pub struct ReservedTime {
    /// Sum of Q/P over time: the CPU time that the threads could have used.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// Time since the first reservation.
    #[serde(rename = "over_ns")]
    pub over: Nanos,
}

impl ReservedTime {
    /// Mean of Q/P between an `earlier` reading and this one, as a fraction of one CPU; `None` if no time lies
    /// between.
    pub fn mean_since(self, earlier: ReservedTime) -> Option<f64> {
        let over = self.over.get().checked_sub(earlier.over.get()).filter(|&over| over > 0)?;
        let cpu_time = self.cpu_time.get().checked_sub(earlier.cpu_time.get())?;
        Some(cpu_time as f64 / over as f64)
    }
}

/// A period found in the activations of a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundRhythm {
    /// T.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// The confidence, from 0 to 1: 1 for activations without jitter.
    pub confidence: f64,
    /// Time until it was found, from the first activation or from the loss of the previous period.
    #[serde(rename = "after_ns")]
    pub after: Nanos,
}

/// One thread of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThreadStatus {
    pub tid: ThreadId,
    /// The reservation of the thread, if there is one.
    pub reservation: Option<Reservation>,
}

/// The state of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostStatus {
    /// The daemon's version.
    pub version: String,
    /// The mechanism that applies reservations.
    pub mechanism: String,
    /// U_lub: the largest share that may be promised in total.
    pub capacity: Share,
    /// The sum of the guarantees for classes A and B.
    pub guaranteed: Share,
    /// The sum of the grants.
    pub granted: Share,
    /// All applications.
    pub applications: Vec<Application>,
    /// The CPUs, if servers are admitted on each CPU separately; empty if only the sum counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuStatus>,
    /// The dispatch tables in force, one per CPU with a group; empty under other mechanisms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<DispatchTableStatus>,
    /// If the requested mechanism is not in force: the kernel's message when it ended the mechanism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Shares and memory kept for applications that other hosts refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<Loan>,
    /// Parts of joint contracts that this host holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joint: Vec<contracts::JointHolding>,
    /// The contracts of the daemon's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configured: Vec<ConfiguredContract>,
    /// The memory that this host promises; absent from daemons that promise none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<memory::HostMemory>,
}

/// A contract of the daemon's configuration, for what a unit or a control group runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfiguredContract {
    /// The name of the contract.
    pub name: String,
    /// The unit, or the path of the control group.
    pub place: String,
    /// One for each process that is no child of another. Empty: nothing runs there, or all processes were refused.
    pub applications: Vec<AppId>,
    /// Why the last process got no contract, with the next step; absent if every process has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The promises on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuStatus {
    /// The number of the CPU.
    pub cpu: u32,
    /// The largest share that may be promised on the CPU.
    pub capacity: Share,
    /// The guaranteed share, with windows taken into account.
    pub guaranteed: Share,
    /// The share that servers hold on the CPU now.
    pub granted: Share,
}

/// The reason why a request was refused. A refusal changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Stable name of the reason, such as `over_committed`, for programs.
    pub code: String,
    /// The refusal, with its values and limits.
    pub message: String,
    /// The suggested next step.
    pub next_step: String,
    /// For `over_committed`: the requested share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Share>,
    /// For `over_committed`: the free share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Share>,
    /// For `over_committed`: the applications that hold the rest.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Holder>))]
    pub holders: Box<[Holder]>,
    /// For `over_committed`, if hosts lend to each other: the offer of a host that keeps the requested share and
    /// memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Box<Offer>>,
    /// For a refusal of another resource than the processor: the amounts as numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Box<Shortage>>,
}

/// Many functions return a refusal; a larger one would slow down their successful returns (clippy's
/// `result_large_err`).
const _: () = assert!(size_of::<Problem>() < 128);

impl Problem {
    /// A refusal with its code, message and next step.
    pub fn new(code: &str, message: impl Into<String>, next_step: impl Into<String>) -> Problem {
        Problem { code: code.to_owned(), message: message.into(), next_step: next_step.into(), ..Problem::default() }
    }

    /// The same refusal with `place` in front of its message: the file, the key or the part of a request that it is
    /// about.
    pub fn at(self, place: impl fmt::Display) -> Problem {
        Problem { message: format!("{place}: {}", self.message), ..self }
    }
}

/// The one place that joins message and next step: `asked for 0.5 CPU, 0.2 CPU is free; ask for less`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { code, message, next_step, .. } = self;
        match (message.as_str(), next_step.as_str()) {
            ("", _) => write!(f, "refused: {code}"),
            (message, "") => f.write_str(message),
            (message, next_step) => write!(f, "{message}; {next_step}"),
        }
    }
}

/// An application and the promised share that it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// The application's number.
    pub id: AppId,
    /// The application's name.
    pub name: String,
    /// Its guaranteed share.
    pub share: Share,
}
