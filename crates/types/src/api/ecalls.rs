//! The bodies of ECalls: services, events, handlers, subscriptions.
//!
//! | call | body → answer |
//! |---|---|
//! | `GET /v1/services` | → list of [`ServiceInfo`] |
//! | `POST /v1/services` | [`ServiceRequest`] → 201 [`ServiceInfo`] |
//! | `DELETE /v1/services/{name}` | → 204 |
//! | `POST /v1/services/{name}/events` | [`EventRequest`] → [`Raised`] |
//! | `POST /v1/services/{name}/call` | [`CallRequest`] → [`CallAnswer`] |
//! | `GET /v1/handlers` | → list of [`HandlerInfo`] |
//! | `PUT`, `GET`, `DELETE /v1/handlers/{name}` | [`HandlerRequest`] → [`HandlerInfo`] |
//! | `POST /v1/subscriptions` | [`SubscriptionRequest`] → 201 [`SubscriptionInfo`] |
//! | `GET /v1/subscriptions[/{id}]` | → [`SubscriptionInfo`] |
//! | `PATCH /v1/subscriptions/{id}` | [`AttributeChange`] → [`SubscriptionInfo`] |
//! | `DELETE /v1/subscriptions/{id}` | → 204 |
//!
//! Services and subscriptions live as long as their lease: a connection to `ecalls.sock`
//! ([`crate::ecalls_wire`]), whose number the daemon tells. A subscription without one lives as long as the
//! process it watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Owner;
use crate::format::Format;
pub use crate::memory::Layout;

/// The number of a connection to `ecalls.sock`: what it asked for ends with it.
pub type LeaseId = u64;
/// The number of a service, for raising events; never used twice by one daemon.
pub type ServiceId = u32;
/// The number of a subscription; never used twice by one daemon.
pub type SubscriptionId = u64;

/// Who raises a service's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A hook in the kernel.
    Kernel,
    /// The daemon.
    Daemon,
    /// A process that registered it.
    User,
}

/// A service one can subscribe to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceInfo {
    /// Its number.
    pub id: ServiceId,
    /// Its name, such as `sched.wakeup`.
    pub name: String,
    /// What it tells.
    pub about: String,
    /// Who raises its events.
    pub origin: Origin,
    /// Where in the kernel, or who.
    pub hook: String,
    /// What an event looks like.
    pub format: Format,
    /// The same as a C declaration.
    pub declaration: String,
    /// What can be said at subscription.
    pub options: Vec<OptionInfo>,
    /// Whether its events concern one process, so that users may have those of their own.
    pub concerns_process: bool,
    /// Why it cannot be had here; none: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Whose it is; none for the kernel's and the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Its process; none for the kernel's and the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Subscriptions now.
    pub subscribers: u32,
    /// Events raised so far; for kernel services those its present subscriptions saw.
    pub raised: u64,
    /// Deliveries dropped so far: late, or without room.
    pub dropped: u64,
    /// Events that asked for the CPU scheduler's cooperation.
    pub cpu: u64,
    /// Instructions that a user's handlers may take for one event, together and at worst.
    #[serde(default)]
    pub max_instructions: u32,
}

/// An option of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OptionInfo {
    /// Its name.
    pub name: String,
    /// What it does, and its values.
    pub about: String,
    /// Whether it must be given.
    #[serde(default)]
    pub required: bool,
}

/// Announces a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ServiceRequest {
    /// The connection whose service it is.
    pub lease: LeaseId,
    /// Its name: letters, digits, `.`, `_` and `-`, with a dot inside.
    pub name: String,
    /// What it tells.
    #[serde(default)]
    pub about: String,
    /// What an event looks like, as C structure declarations; the last one is the event's.
    pub format: String,
    /// Whether other users may subscribe.
    #[serde(default)]
    pub open: bool,
}

/// Raises an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EventRequest {
    /// The subscriber it is for; −1 for all.
    #[serde(default = "all")]
    pub pid: i32,
    /// Its data.
    pub data: EventData,
    /// Dropped if it cannot be delivered within so many microseconds; 0: never late.
    #[serde(default)]
    pub deadline_us: u64,
    /// Asks the CPU scheduler to favour whoever is told: under `ext`, where its contract says `favour_events`.
    #[serde(default)]
    pub cpu: bool,
}

fn all() -> i32 {
    -1
}

/// An event's bytes, in one of two ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum EventData {
    /// Its bytes in hexadecimal.
    Hex(String),
    /// Its fields by name, as [`crate::event_json`] reads them.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    Fields(serde_json::Map<String, serde_json::Value>),
}

/// What became of a raised event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Raised {
    /// Subscriptions it was queued for.
    pub queued: u32,
    /// Subscriptions whose queue was full.
    pub dropped: u32,
}

/// Asks a service's owner, and waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// What is asked: the service's format, or hexadecimal.
    pub data: EventData,
    /// Given up after so many milliseconds.
    #[serde(default = "second")]
    pub timeout_ms: u64,
}

fn second() -> u64 {
    1_000
}

/// What a service's owner answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallAnswer {
    /// Its bytes in hexadecimal.
    pub data: String,
}

/// Gives a handler a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HandlerRequest {
    /// The connection whose handler it is; none: it stays until it is removed.
    #[serde(default)]
    pub lease: Option<LeaseId>,
    /// E-code.
    pub code: String,
    /// Whether other users may use it.
    #[serde(default)]
    pub open: bool,
}

/// A named handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerInfo {
    /// Its name.
    pub name: String,
    /// E-code.
    pub code: String,
    /// Whose it is.
    pub owner: Owner,
    /// Whether other users may use it.
    pub open: bool,
}

/// One step of a delivery chain (003 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The named handler; its verdict 0 ends the chain.
    KHandler,
    /// The handler that came as text; its verdict 0 ends the chain.
    KCode,
    /// From here on the chain goes on in a handler thread.
    KThread,
    /// Into the memory shared with the application.
    MemoryUp,
    /// A real-time signal.
    Signal,
}

impl Step {
    /// All, in the order they are taken where none is given.
    pub const ALL: [Step; 5] = [Step::KThread, Step::KHandler, Step::KCode, Step::MemoryUp, Step::Signal];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Step::KHandler => "k_handler",
            Step::KCode => "k_code",
            Step::KThread => "k_thread",
            Step::MemoryUp => "memory_up",
            Step::Signal => "signal",
        }
    }
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let known = || Step::ALL.map(Step::name).join(", ");
        let found = Step::ALL.into_iter().find(|step| step.name() == text);
        found.ok_or_else(|| format!("{text:?} is no step of a chain; use {}", known()))
    }
}

/// The memory that events are written into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MemoryUp {
    /// How it is laid out.
    pub layout: Layout,
    /// Events it holds; a power of two.
    pub slots: u32,
    /// For bits: the field whose value is the slot, where the newest overwrites. None: the next free slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

impl Default for MemoryUp {
    fn default() -> Self {
        MemoryUp { layout: Layout::Ring, slots: 256, position: None }
    }
}

/// What becomes of an event at which a handler faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnFault {
    /// The chain ends.
    #[default]
    Block,
    /// The chain goes on with the event as it came.
    Pass,
}

/// Subscribes to a service: the paper's `struct ecalls`, and what it lacked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// The connection whose subscription it is; none: it lives as long as the process it watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The service's name.
    pub service: String,
    /// The process that is told; 0: the caller.
    pub process_id: i32,
    /// A real-time signal, 32 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The field that travels with the signal; none: the data's first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_value: Option<String>,
    /// The name of a handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_handler: Option<String>,
    /// A handler as E-code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_code: Option<String>,
    /// Handlers run in a thread of the daemon.
    pub k_thread: bool,
    /// Events are written into shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_up: Option<MemoryUp>,
    /// The order of the steps named above; empty: thread, named handler, code, memory, signal.
    pub order: Vec<Step>,
    /// An event is late so many microseconds after it happened; 0: never.
    pub deadline_us: u64,
    /// Every event favours the server of the process that is told, as if it had been raised with `cpu`.
    pub favour: bool,
    /// Of the subscriptions to this service with the same group, one is told, in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only events that concern this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_pid: Option<i32>,
    /// Options of the service.
    pub options: BTreeMap<String, String>,
    /// What becomes of an event at which a handler faults.
    pub on_fault: OnFault,
    /// Instructions that the loops of one call of a handler may take; none: what they need where their turns are known,
    /// else a part of [`ServiceInfo::max_instructions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u32>,
    /// First values of attributes.
    pub attributes: BTreeMap<String, i64>,
}

/// How a subscription stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It delivers.
    Active,
    /// Its handler faulted too often and was taken out.
    TakenOut {
        /// Why, with the numbers and the last fault.
        why: String,
    },
}

/// What a subscription did so far. Every dropped event is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriptionCounters {
    /// Events that reached it.
    pub events: u64,
    /// Events its handlers let pass.
    pub passed: u64,
    /// Events its handlers blocked.
    pub blocked: u64,
    /// Calls of its handlers that faulted.
    pub faults: u64,
    /// Events written into `memory_up`.
    pub memory: u64,
    /// Signals sent.
    pub signals: u64,
    /// Events dropped: `memory_up` was full.
    pub dropped_memory: u64,
    /// Events dropped on the way out of the kernel.
    pub dropped_ring: u64,
    /// Events dropped: the queue was full.
    pub dropped_queue: u64,
    /// Events dropped: their deadline had passed.
    pub late: u64,
    /// Signals the kernel refused (the receiver's limit of pending signals, or its end).
    pub dropped_signals: u64,
    /// Events dropped: another CPU was in the handler too long.
    pub contended: u64,
    /// CPU time its handlers took, in nanoseconds. Of those in the kernel: since a user other than root has one there.
    pub run_ns: u64,
}

/// A subscription as the daemon sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubscriptionInfo {
    /// Its number.
    pub id: SubscriptionId,
    /// The service.
    pub service: String,
    /// Whose it is.
    pub owner: Owner,
    /// The process that is told; 0: nobody in particular.
    pub process_id: i32,
    /// Only events that concern this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_pid: Option<i32>,
    /// Its lease, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The steps that run in the kernel.
    pub in_kernel: Vec<Step>,
    /// The steps that run in the daemon.
    pub in_daemon: Vec<Step>,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What is delivered.
    pub format: Format,
    /// The memory it writes into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_up: Option<MemoryUp>,
    /// Its attributes in the order of their numbers in `memory_down`, with their values.
    pub attributes: Vec<(String, i64)>,
    /// Instructions that its handlers take for one event at worst.
    #[serde(default)]
    pub instructions: u64,
    /// How it stands.
    pub state: State,
    /// What it did.
    pub counters: SubscriptionCounters,
    /// From its request to its being in place, in microseconds.
    pub installed_in_us: u64,
}

/// Changes attributes of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttributeChange {
    /// New values by name.
    pub attributes: BTreeMap<String, i64>,
}
