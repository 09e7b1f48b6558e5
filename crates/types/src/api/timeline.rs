//! The timeline: what just happened on a host, record by record (`GET /v1/timeline`). The daemon keeps the last 32768
//! records; when it discards some, it begins with the user who has the most.
//!
//! Times are in nanoseconds of CLOCK_MONOTONIC of the host. Records are numbered in the order in which the daemon
//! made them, for a user among the records that this user sees; their times may differ a little from this order. A user
//! sees the records of the user's own applications and processes; an administrator sees all.

use serde::{Deserialize, Serialize};

use crate::{AppId, Instant, Nanos, Owner, Reservation, Share, ThreadId};

/// One page of the timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timeline {
    /// The daemon's time when it wrote this page.
    pub now_ns: Instant,
    /// Number of the first record after this page: the value of `from` for the next page.
    pub next: u64,
    /// Records follow this page already.
    pub more: bool,
    /// Records between `from` and this page that the daemon has discarded to make room.
    pub lost: u64,
    /// The daemon has discarded no record of this time or later that the caller may see.
    #[serde(default)]
    pub complete_since_ns: Instant,
    /// Events of channels and ECalls of the user, or for an administrator of all users, that were not recorded since the
    /// daemon's start, because there were too many.
    pub skipped: u64,
    /// The applications that the records of this page name.
    pub applications: Vec<TimelineApplication>,
    pub records: Vec<TimelineRecord>,
}

/// An application of a timeline. It may have left since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineApplication {
    pub id: AppId,
    pub name: String,
    pub pid: i32,
    /// The user and group that the application counts against.
    pub owner: Owner,
}

/// One record of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineRecord {
    pub at_ns: Instant,
    #[serde(flatten)]
    pub event: TimelineEvent,
}

/// What a record of a timeline says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TimelineEvent {
    /// A contract came into force.
    Joined { app: AppId },
    /// A contract ended and all its threads are restored.
    Left { app: AppId },
    /// A job ended.
    Job {
        app: AppId,
        #[serde(flatten)]
        job: EndedJob,
    },
    /// The kernel carried out a reservation for a thread.
    Budget {
        app: AppId,
        thread: ThreadId,
        /// Q and P of the thread; `None`: the thread is under its former scheduler again.
        reservation: Option<Reservation>,
        /// The bandwidth of all threads of the application together.
        reserved: Share,
    },
    /// The application is granted less than its controller wants, or as much again.
    Granted { app: AppId, wanted: Share, granted: Share },
    /// The host decided something about the application: the text names what and the numbers.
    Decision { app: AppId, text: String },
    /// A service of ECalls delivered an event to a subscription of the process.
    Ecall { service: String, pid: i32 },
    /// A source of this host submitted an event to a channel, or a sink of this host received one.
    Channel {
        channel: String,
        /// Whether a sink received it; otherwise a source submitted it.
        received: bool,
        /// The same number on every host for the same event: it ties both ends of an arrow.
        flow: u64,
        pid: i32,
        bytes: u64,
    },
    /// A policy decided something about a channel: the text names what and the numbers.
    Policy { policy: String, channel: String, text: String },
}

impl TimelineEvent {
    /// The application that the record is about.
    pub fn app(&self) -> Option<AppId> {
        match *self {
            TimelineEvent::Joined { app }
            | TimelineEvent::Left { app }
            | TimelineEvent::Job { app, .. }
            | TimelineEvent::Budget { app, .. }
            | TimelineEvent::Granted { app, .. }
            | TimelineEvent::Decision { app, .. } => Some(app),
            TimelineEvent::Ecall { .. } | TimelineEvent::Channel { .. } | TimelineEvent::Policy { .. } => None,
        }
    }
}

/// A job that ended and was counted in the quality of its application.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndedJob {
    /// Number of the job, from 1, in the order in which the host counted them. A change of the period begins again.
    pub number: u64,
    /// r_k.
    pub release_ns: Instant,
    /// d_k = r_k + T.
    pub deadline_ns: Instant,
    /// f_k.
    pub finish_ns: Instant,
    /// c_k: the CPU time of the job.
    pub cost_ns: Nanos,
    /// The scheduling error ε_k; positive: late.
    pub error_ns: i64,
    /// The job ended after its deadline.
    pub missed: bool,
}
