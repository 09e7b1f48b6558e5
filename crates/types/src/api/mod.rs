//! The bodies of the local API (HTTP/JSON on a Unix socket). The daemon serves them, clients and the CLI
//! read them; `GET /v1/openapi.json` describes them.
//!
//! | call | body → answer |
//! |---|---|
//! | `POST /v1/applications` | [`ApplicationRequest`] → 201 [`Application`], or a [`Problem`] |
//! | `GET /v1/applications` | → list of [`Application`] |
//! | `GET /v1/applications/{id}` | → [`Application`] |
//! | `PATCH /v1/applications/{id}` | [`crate::Contract`] → [`Application`] |
//! | `DELETE /v1/applications/{id}` | → 204 |
//! | `POST /v1/claims/{claim}` | [`ApplicationRequest`] for what this host keeps → 201 [`Application`] |
//! | `DELETE /v1/claims/{claim}` | at the host that asked: given back → 204 |
//! | `GET /v1/status` | → [`HostStatus`] |
//! | `GET /v1/limits` | → [`HostLimits`] |
//! | `PUT /v1/limits` | [`HostLimits`], all of them; for the service's own user and root → [`HostLimits`] |
//! | `PATCH /v1/limits` | [`LimitsPatch`], those that change; for the same users → [`HostLimits`], all of them |
//! | `GET /metrics` | → Prometheus text |
//!
//! Services, subscriptions and handlers have bodies of their own: [`ecalls`]; so have Q-channels: [`channel`].
//!
//! Beside the API's socket, `ring.sock` (SOCK_SEQPACKET) hands an application's ring out: the client sends
//! the id in decimal, the daemon answers `ok` with two descriptors, the ring's memory (a sealed memfd the
//! size of [`crate::ring::JobRing`]) and an eventfd to write to for waking. The connection is the lease:
//! when it closes, the application has left.

pub mod channel;
pub mod ecalls;
mod lending;
mod limits;
pub mod net;

pub use lending::{Claim, Loan, NoClaim, Offer};
pub use limits::{Change, HostLimits, InvalidLimit, LimitsPatch};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AppId, Contract, Invariance, Nanos, Overload, Owner, Quality, Reservation, ServerCounts, Share, ThreadId};

/// Which threads a contract covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Covers {
    /// Every thread of the process and of its children, new ones as they appear.
    #[default]
    Program,
    /// One thread.
    Thread(ThreadId),
}

/// Asks for a contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplicationRequest {
    /// The process it is for: the caller's own, or another of the same user.
    pub pid: i32,
    /// Which of its threads.
    #[serde(default)]
    pub covers: Covers,
    /// What is asked for.
    pub contract: Contract,
}

/// One application as the host sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Application {
    /// Its number.
    pub id: AppId,
    /// Its process.
    pub pid: i32,
    /// Whose it is.
    pub owner: Owner,
    /// What it asked for.
    pub contract: Contract,
    /// What is guaranteed to it.
    pub guaranteed: Share,
    /// Whether its target interval can be kept at every job of its profile; none without a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invariance: Option<Invariance>,
    /// What its controller wants now.
    pub wanted: Share,
    /// What it has now.
    pub granted: Share,
    /// Its jobs are short of what they need; it was told so, if it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// The period that was found in its activations, where the contract leaves that to the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rhythm: Option<FoundRhythm>,
    /// The threads under reservation.
    pub threads: Vec<ThreadStatus>,
    /// What it achieved so far.
    pub quality: Quality,
    /// CPU time its jobs used over the time they had, as a share of one CPU.
    pub used: Share,
    /// What was reserved for it so far.
    #[serde(default)]
    pub reserved: Reserved,
    /// What its servers counted, where the mechanism has servers that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCounts>,
    /// The CPUs that its servers are admitted on; empty where the mechanism moves threads freely.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
}

/// What was reserved for all threads of an application together: two sums that only grow. The difference of two readings
/// is what was reserved between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reserved {
    /// Sum of Q/P over time: the CPU time that could have been used.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// Time since its first reservation.
    #[serde(rename = "over_ns")]
    pub over: Nanos,
}

impl Reserved {
    /// Mean of Q/P between an `earlier` reading and this one, as a fraction of one CPU; none where no time lies between.
    pub fn mean_since(self, earlier: Reserved) -> Option<f64> {
        let over = self.over.get().checked_sub(earlier.over.get()).filter(|&over| over > 0)?;
        let cpu_time = self.cpu_time.get().checked_sub(earlier.cpu_time.get())?;
        Some(cpu_time as f64 / over as f64)
    }
}

/// A period that was found in the activations of a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundRhythm {
    /// T.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// How sharp it is: 1 for activations without jitter.
    pub confidence: f64,
    /// Time from the first activation, or from the loss of the previous period, until it was found.
    #[serde(rename = "after_ns")]
    pub after: Nanos,
}

/// One thread of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThreadStatus {
    /// The thread.
    pub tid: ThreadId,
    /// Its reservation, if it has one.
    pub reservation: Option<Reservation>,
}

/// The whole host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostStatus {
    /// The daemon's version.
    pub version: String,
    /// Which mechanism carries reservations out.
    pub mechanism: String,
    /// U_lub: what may be promised in all.
    pub capacity: Share,
    /// What is guaranteed to classes A and B.
    pub guaranteed: Share,
    /// What is granted now.
    pub granted: Share,
    /// Who holds it.
    pub applications: Vec<Application>,
    /// Every CPU on which servers are admitted one by one; empty where only the sum counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuStatus>,
    /// Why the mechanism asked for is not in force, if it is not: what the kernel said when it ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// What is kept for applications that other hosts refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<Loan>,
}

/// What is promised on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuStatus {
    /// Which.
    pub cpu: u32,
    /// What may be promised on it.
    pub capacity: Share,
    /// What is guaranteed on it, windows taken into account.
    pub guaranteed: Share,
    /// What servers hold on it now.
    pub granted: Share,
}

/// Why a call was refused. Nothing was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Stable name of the reason, such as `over_committed`.
    pub code: String,
    /// What happened, with the values and limits.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
    /// For `over_committed`: what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Share>,
    /// For `over_committed`: what is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Share>,
    /// For `over_committed`: who holds the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// For `over_committed`, where hosts lend to each other: which one keeps what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Box<Offer>>,
}

impl Problem {
    /// A refusal with its stable name, what happened, and what to do about it.
    pub fn new(code: &str, message: impl Into<String>, next_step: impl Into<String>) -> Problem {
        Problem { code: code.to_owned(), message: message.into(), next_step: next_step.into(), ..Problem::default() }
    }
}

/// The one place that makes a sentence of message and next step: `asked for 0.5 CPU, 0.2 CPU is free; ask for less`.
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

/// Who holds how much of what is promised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// The application.
    pub id: AppId,
    /// Its name.
    pub name: String,
    /// What is guaranteed to it.
    pub share: Share,
}
