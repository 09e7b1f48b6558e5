//! The bodies of the ECalls part of the API: services, events, handlers, subscriptions.
//!
//! | call | body → answer |
//! |---|---|
//! | `GET /v1/services` | → list of [`ServiceInfo`] |
//! | `POST /v1/services` | [`ServiceRequest`] → 201 [`ServiceInfo`] |
//! | `DELETE /v1/services/{name}` | → 204 |
//! | `POST /v1/services/{name}/events` | [`EventRequest`] → [`RaiseOutcome`] |
//! | `POST /v1/services/{name}/call` | [`CallRequest`] → [`CallAnswer`] |
//! | `GET /v1/handlers` | → list of [`HandlerInfo`] |
//! | `PUT`, `GET`, `DELETE /v1/handlers/{name}` | [`HandlerRequest`] → [`HandlerInfo`] |
//! | `POST /v1/subscriptions` | [`SubscriptionRequest`] → 201 [`SubscriptionInfo`] |
//! | `GET /v1/subscriptions[/{id}]` | → [`SubscriptionInfo`] |
//! | `POST /v1/deployments` | [`DeploymentRequest`] → list of [`DeploymentAnswer`] |
//! | `PATCH /v1/subscriptions/{id}` | [`AttributeChange`] → [`SubscriptionInfo`] |
//! | `DELETE /v1/subscriptions/{id}` | → 204 |
//!
//! A service or subscription lives as long as its lease: a connection to `ecalls.sock` ([`crate::ecalls_wire`]),
//! whose number the daemon sends. A subscription without a lease lives as long as the process it watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::channel::Name;
use crate::format::Format;
pub use crate::memory::Layout;
use crate::{Owner, Share};

/// The number of a connection to `ecalls.sock`. When the connection ends, the daemon removes everything requested
/// through it.
pub type LeaseId = u64;
/// The number of a service, for raising events; one daemon never uses a number twice.
pub type ServiceId = u32;
/// The number of a subscription; one daemon never uses a number twice.
pub type SubscriptionId = u64;

/// The origin of a service's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A hook in the kernel.
    Kernel,
    /// The daemon.
    Daemon,
    /// The process that registered the service.
    User,
    /// The sources of a channel, on this host and on others. The service exists while it has subscriptions.
    Channel,
}

/// A service that applications can subscribe to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceInfo {
    /// The service's number.
    pub id: ServiceId,
    /// The service's name, such as `sched.wakeup`.
    pub name: String,
    /// A description of the events.
    pub about: String,
    /// The origin of the events.
    pub origin: Origin,
    /// The place in the kernel, or the origin, in words.
    pub hook: String,
    /// The layout of an event.
    pub format: Format,
    /// The layout as a C declaration.
    pub declaration: String,
    /// Options of a subscription.
    pub options: Vec<OptionInfo>,
    /// Whether each event concerns one process. Users may then subscribe to the events of their own processes.
    pub concerns_process: bool,
    /// The reason why the service is unavailable on this host; absent if it is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The owner; absent for services of the kernel and the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The process that registered the service; absent for services of the kernel and the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Number of subscriptions now.
    pub subscribers: u32,
    /// Events raised so far. For kernel services, only events since the present subscriptions exist.
    pub raised: u64,
    /// Deliveries dropped so far, because they were late or found no room.
    pub dropped: u64,
    /// Events that requested the CPU scheduler's cooperation.
    pub cpu: u64,
    /// Most instructions that all handlers of one user may execute for one event, in the worst case.
    #[serde(default)]
    pub max_instructions: u32,
}

/// An option of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OptionInfo {
    /// The option's name.
    pub name: String,
    /// The effect of the option, and its values.
    pub about: String,
    /// Whether the option must be given.
    #[serde(default)]
    pub required: bool,
}

/// Registers a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ServiceRequest {
    /// The lease of the service: a connection to `ecalls.sock`.
    pub lease: LeaseId,
    /// The service's name: letters, digits, `.`, `_` and `-`, with a dot inside.
    pub name: String,
    /// A description of the events.
    #[serde(default)]
    pub about: String,
    /// The layout of an event, as declarations of C structures; the last structure is the event.
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
    /// The process of the subscriber that receives the event; −1 for all subscribers.
    #[serde(default = "all")]
    pub pid: i32,
    /// The event's data.
    pub data: EventData,
    /// The event is dropped if it cannot be delivered within this number of microseconds; 0: it is never late.
    #[serde(default)]
    pub deadline_us: u64,
    /// Asks the CPU scheduler to favour the receivers. Effective under `ext`, for contracts with `favour_events`.
    #[serde(default)]
    pub cpu: bool,
}

fn all() -> i32 {
    -1
}

/// The data of an event, in one of two forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum EventData {
    /// The bytes in hexadecimal.
    Hex(String),
    /// The fields by name, in the form that [`crate::event_json`] reads.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    Fields(serde_json::Map<String, serde_json::Value>),
}

/// The result of raising an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Raised))]
pub struct RaiseOutcome {
    /// Number of subscriptions for which the event was queued.
    pub queued: u32,
    /// Number of subscriptions whose queue was full.
    pub dropped: u32,
}

/// Calls the owner of a service and waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// The data of the call: fields in the service's format, or hexadecimal.
    pub data: EventData,
    /// The call fails after this number of milliseconds.
    #[serde(default = "second")]
    pub timeout_ms: u64,
}

fn second() -> u64 {
    1_000
}

/// The answer of a service's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallAnswer {
    /// The bytes in hexadecimal.
    pub data: String,
}

/// Stores a handler under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HandlerRequest {
    /// The lease of the handler; without a lease the handler stays until it is removed.
    #[serde(default)]
    pub lease: Option<LeaseId>,
    /// The handler as E-code.
    pub code: String,
    /// Whether other users may use the handler.
    #[serde(default)]
    pub open: bool,
}

/// A named handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerInfo {
    /// The handler's name.
    pub name: String,
    /// The handler as E-code.
    pub code: String,
    /// The owner of the handler.
    pub owner: Owner,
    /// Whether other users may use the handler.
    pub open: bool,
}

/// One step of a delivery chain (003 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The named handler; its verdict 0 ends the chain.
    KHandler,
    /// The handler given as text; its verdict 0 ends the chain.
    KCode,
    /// The rest of the chain runs in a handler thread of the daemon.
    KThread,
    /// The rest of the chain waits for the moment in a field of the event, such as the display time of a frame (000
    /// §3.5.2).
    Hold,
    /// A copy into the memory shared with the application.
    MemoryUp,
    /// A real-time signal.
    Signal,
    /// The event is submitted to a channel: it is redirected to this and other hosts (000 §3.4).
    Channel,
}

/// The beginning of the name of a service whose events are those of channels: `channel:NAME`, `channel:A+B`.
pub const CHANNEL_SERVICE: &str = "channel:";

impl Step {
    /// All steps, in the default order.
    pub const ALL: [Step; 7] =
        [Step::KThread, Step::KHandler, Step::KCode, Step::Hold, Step::MemoryUp, Step::Signal, Step::Channel];

    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Step::KHandler => "k_handler",
            Step::KCode => "k_code",
            Step::KThread => "k_thread",
            Step::Hold => "hold",
            Step::MemoryUp => "memory_up",
            Step::Signal => "signal",
            Step::Channel => "channel",
        }
    }
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let known = || Step::ALL.map(Step::name).join(", ");
        let found = Step::ALL.into_iter().find(|step| step.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a step of a chain; use {}", known()))
    }
}

/// The shared memory into which events are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MemoryUp {
    /// The layout of the memory.
    pub layout: Layout,
    /// Number of events that fit; a power of two.
    pub slots: u32,
    /// For the layout `bits`: the name of the field whose value is the slot; a newer event overwrites the older one
    /// in its slot. Absent: an event goes to the next free slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

impl Default for MemoryUp {
    fn default() -> Self {
        MemoryUp { layout: Layout::Ring, slots: 256, position: None }
    }
}

/// The treatment of an event during which a handler faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnFault {
    /// The chain ends, and the event is blocked.
    #[default]
    Block,
    /// The chain continues with the unchanged event.
    Pass,
}

/// Subscribes to a service: the paper's `struct ecalls`, with additions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// The lease of the subscription; without a lease it lives as long as the process it watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The name of the service.
    pub service: String,
    /// The process that receives the events; 0: the caller.
    pub process_id: i32,
    /// The real-time signal to send, 32 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The field whose value travels with the signal; absent: the first field of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_value: Option<String>,
    /// Whether the kernel sends the signal itself, if the signal is the only step that follows those in the kernel,
    /// and if the kernel can; otherwise the daemon sends it. A signal of the kernel has the `si_code` SI_KERNEL, and
    /// its value is lost for readers of a signalfd. A signal beyond the receiver's limit of pending ones may
    /// be lost without a count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub signal_by_kernel: bool,
    /// The name of a stored handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_handler: Option<String>,
    /// A handler as E-code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_code: Option<String>,
    /// Run handlers in a thread of the daemon.
    pub k_thread: bool,
    /// The field with the moment, in ns of CLOCK_MONOTONIC, until which an event is held: the steps after it follow
    /// then, in the order of the moments, and the moment is the time of the event from there on. An event that would
    /// wait for more than 10 s is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<String>,
    /// Write events into shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_up: Option<MemoryUp>,
    /// The channel to which events are submitted. If it does not exist, it is created for the format of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub channel: Option<Name>,
    /// The order of the steps named above; empty: thread, named handler, code, hold, memory, signal,
    /// channel.
    pub order: Vec<Step>,
    /// An event is late this number of microseconds after it happened; 0: it is never late. For an event that was held,
    /// the time counts from its moment.
    pub deadline_us: u64,
    /// Let every event favour the server of the receiving process, as if it had been raised with `cpu`. If the
    /// events are held, this happens at their moments.
    pub favour: bool,
    /// The wake-one group: of all subscriptions to this service with the same group, one receives each event, in
    /// turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Receive only events that concern this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_pid: Option<i32>,
    /// Options of the service.
    pub options: BTreeMap<String, String>,
    /// The treatment of an event during which a handler faults.
    pub on_fault: OnFault,
    /// Fuel: most instructions that the loops of one call of a handler may execute. Absent: the necessary number if
    /// the number of turns is known, else a part of [`ServiceInfo::max_instructions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u32>,
    /// Initial values of attributes, by name.
    pub attributes: BTreeMap<String, i64>,
}

/// The state of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The subscription delivers events.
    Active,
    /// The handler faulted too often and was removed from the chain.
    TakenOut {
        /// The reason, with the numbers and the last fault.
        why: String,
    },
}

/// Counts of a subscription since its start. Every dropped event is in one of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriptionCounters {
    /// Events that reached the subscription.
    pub events: u64,
    /// Events that its handlers let pass.
    pub passed: u64,
    /// Events that its handlers blocked.
    pub blocked: u64,
    /// Calls of its handlers that ended with a fault.
    pub faults: u64,
    /// Events written into `memory_up`.
    pub memory: u64,
    /// Signals sent.
    pub signals: u64,
    /// Events submitted to the channel.
    pub channel: u64,
    /// Events dropped because `memory_up` was full.
    pub dropped_memory: u64,
    /// Events dropped on the way from the kernel to the daemon.
    pub dropped_ring: u64,
    /// Events dropped because the queue was full, or because they would have been held for more than 10 s.
    pub dropped_queue: u64,
    /// Events dropped because their deadline had passed.
    pub late: u64,
    /// Signals that the kernel refused, because the receiver has ended or has too many pending signals.
    pub dropped_signals: u64,
    /// Events that the channel refused: a slow sink holds it up, the deadline has passed, or this host may no longer
    /// send on it.
    pub dropped_channel: u64,
    /// Events dropped because another CPU was in the handler for too long.
    pub contended: u64,
    /// Calls of its handlers, in the kernel and in the daemon. A chain in the kernel counts as one call.
    pub calls: u64,
    /// CPU time of its handlers, in nanoseconds. In the kernel it is counted only since a user other than root has
    /// a handler there.
    pub run_ns: u64,
}

/// The CPU time of all handlers of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserBudget {
    /// Largest share of one CPU (`ecalls.max_cpu_per_user`). Above it the user's handlers in the
    /// kernel are suspended.
    pub limit: Share,
    /// The share that the user's handlers took in the last complete second.
    pub used: Share,
}

/// A subscription and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubscriptionInfo {
    /// The number of the subscription.
    pub id: SubscriptionId,
    /// The name of the service.
    pub service: String,
    /// The owner of the subscription.
    pub owner: Owner,
    /// The host on which it runs, as that host described it in the last seconds; absent: this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub host: Option<Name>,
    /// Who installed it from another host; absent: a user of this host. Then `owner` is a number that stands for that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The process that receives the events; 0: no particular process.
    pub process_id: i32,
    /// The subscription receives only events that concern this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_pid: Option<i32>,
    /// The lease; absent if the subscription has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The steps that run in the kernel.
    pub in_kernel: Vec<Step>,
    /// The steps that run in the daemon.
    pub in_daemon: Vec<Step>,
    /// The wake-one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The layout of the delivered data.
    pub format: Format,
    /// The shared memory into which events are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_up: Option<MemoryUp>,
    /// The channel to which events are submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub channel: Option<Name>,
    /// Attributes with their values, in the order of their numbers in `memory_down`.
    pub attributes: Vec<(String, i64)>,
    /// Most instructions that its handlers execute for one event.
    #[serde(default)]
    pub instructions: u64,
    /// The state of the subscription.
    pub state: State,
    /// Whether the service has suspended its handlers; `state` says why. They run again after a new installation.
    #[serde(default)]
    pub suspended: bool,
    /// The CPU time of all handlers of the owner; absent for root, who has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<UserBudget>,
    /// Counts since its start.
    pub counters: SubscriptionCounters,
    /// The last lines that its handlers printed (`printf`), at most 16 of each handler, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<String>,
    /// Number of calls of `printf` since its start.
    #[serde(default)]
    pub prints: u64,
    /// Time from the request to the complete installation, in microseconds.
    pub installed_in_us: u64,
}

/// The user of another host who installed a handler here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Author {
    /// The host, which the network has authenticated.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Name,
    /// The number of the user there, as that host says.
    pub uid: u32,
}

/// Installs the same subscription on several hosts: the thesis's remote deployment (000 §3.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeploymentRequest {
    /// The hosts; this host may be one of them.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<Name>,
    /// A group of channels: all hosts that have a member in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub group: Option<Name>,
    /// On other hosts it may name a service of the kernel, handlers, attributes and a channel, and no process. Its lease
    /// is a connection to this host's daemon.
    pub subscription: SubscriptionRequest,
}

/// The answer of one host to a [`DeploymentRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeploymentAnswer {
    /// The host.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Name,
    /// The subscription, with its number on the host that was asked to deploy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionInfo>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Problem>,
}

/// Changes attributes of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttributeChange {
    /// New values, by name.
    pub attributes: BTreeMap<String, i64>,
}
