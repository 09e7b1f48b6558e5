//! The bodies of Q-channels: channels, members, filters, groups, hosts, monitors.
//!
//! | call | body → answer |
//! |---|---|
//! | `GET /v1/channels` | → list of [`ChannelInfo`] |
//! | `POST /v1/channels` | [`ChannelRequest`] → 201 [`ChannelInfo`] |
//! | `GET /v1/channels/{channel}` | → [`ChannelInfo`] |
//! | `POST /v1/channels/{channel}/open`, `/close` | [`Lease`] → [`ChannelInfo`], 204 |
//! | `POST /v1/channels/{channel}/sources` | [`SourceRequest`] → 201 [`Joined`] |
//! | `POST /v1/channels/{channel}/sinks` | [`SinkRequest`] → 201 [`Joined`] |
//! | `PATCH`, `DELETE /v1/sources/{number}`, `/v1/sinks/{number}` | [`AttributeChanges`] → 204 |
//! | `PUT /v1/channels/{channel}/filters/{direction}/{filter}` | [`FilterRequest`] → [`Installed`] |
//! | `PATCH` the same | [`ParameterRequest`] → [`Installed`] |
//! | `POST` the same `/remove` | [`FilterRemoval`] → [`Installed`] |
//! | `POST` the same `/bindings` | [`BindingRequest`] → 201 [`Joined`] |
//! | `GET /v1/groups` | → list of [`GroupInfo`] |
//! | `POST /v1/groups` | [`GroupRequest`] → 201 [`Registered`] |
//! | `DELETE /v1/registrations/{number}` | → 204 |
//! | `GET /v1/hosts` | → list of [`HostInfo`] |
//! | `POST /v1/access/reload` | → [`ReloadOutcome`] |
//! | `GET /v1/monitors` | → list of [`MonitorInfo`] |
//! | `PUT /v1/monitors/{attribute}` | [`MonitorRequest`] → [`MonitorInfo`] |
//! | `GET /v1/policies` | → list of [`PolicyInfo`] |
//! | `POST /v1/policies` | [`Policy`] → 201 [`PolicyInfo`] |
//! | `DELETE /v1/policies/{name}` | → 204 |
//! | `GET /v1/policies/{name}/why` | → list of [`Explanation`]; the name is that of a policy, channel or group |
//!
//! `{channel}` is a name, or `quality:NAME` for the hidden Q-channel of that name. Opened channels, members and
//! registrations live as long as their lease, a connection to `channels.sock` ([`crate::channel_wire`]).

mod access;
mod filters;
mod groups;
pub mod policies;

pub use access::*;
pub use filters::*;
pub use groups::*;
pub use policies::*;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::channel::{Name, Plane};
use crate::format::Format;

/// The number of a connection to `channels.sock`. When the connection ends, the daemon removes everything requested
/// through it.
pub type LeaseId = u64;

/// The order in which queued events of one priority are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// In order of submission, by the clock of the host that queues the events.
    #[default]
    Time,
    /// Earliest deadline first; events without a deadline come after the others.
    Deadline,
}

/// Back-pressure: the treatment of an event when a sink's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// The oldest event of the lowest priority is dropped.
    #[default]
    DropOldest,
    /// The new event is dropped.
    DropNewest,
    /// The source waits, at most for the channel's patience.
    Block,
}

/// Creates a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChannelRequest {
    /// The lease of the channel: a connection to `channels.sock`.
    pub lease: LeaseId,
    /// The channel's name.
    pub name: Name,
    /// The event types, as declarations of C structures. Each structure that is not a member of another one is a
    /// type, in this order.
    #[serde(default)]
    pub formats: String,
    /// The order of queued events.
    #[serde(default)]
    pub order: Order,
    /// The rule for a full queue.
    #[serde(default)]
    pub pressure: Pressure,
    /// With `block`: the longest time for which a slow sink may delay the others.
    #[serde(default = "second")]
    pub patience_ns: Nanos,
}

fn second() -> Nanos {
    Nanos::from_millis(1_000)
}

/// Names a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The number of the connection to `channels.sock`.
    pub lease: LeaseId,
}

/// A channel, as all hosts know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChannelInfo {
    /// The channel's name.
    pub name: Name,
    /// Data channel or hidden Q-channel.
    pub plane: Plane,
    /// The event types, in the order of their numbers.
    pub types: Vec<TypeInfo>,
    /// The order of queued events.
    pub order: Order,
    /// The rule for a full queue.
    pub pressure: Pressure,
    /// With `block`: the longest time for which a slow sink may delay the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ns: Option<Nanos>,
    /// The host that created the channel.
    pub creator: Name,
    /// Time of creation, in nanoseconds since 1970, by the clock of that host.
    pub created_unix_ns: u64,
    /// Whether the channel is open on this host.
    pub open_here: bool,
    /// The hosts on which the channel is open, with their members.
    pub hosts: Vec<Holding>,
    /// The filters of the channel on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterInfo>,
    /// The rates of events from this host to other hosts, if a policy decides them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paced: Vec<PaceInfo>,
}

/// A type of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TypeInfo {
    /// The layout of the events.
    pub format: Format,
    /// The layout as a C declaration.
    pub declaration: String,
}

/// A host on which a channel is open, with its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holding {
    /// The host's name.
    pub host: Name,
    /// The sources on the host.
    pub sources: Vec<SourceInfo>,
    /// The sinks on the host.
    pub sinks: Vec<SinkInfo>,
}

/// A source and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SourceInfo {
    /// The source's number on its host.
    pub number: u32,
    /// The application that the source belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Name>,
    /// Q-attributes, which filters can read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, i64>,
    /// Counts; present only for sources of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SourceCounts>,
}

/// A sink and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SinkInfo {
    /// The sink's number on its host.
    pub number: u32,
    /// The application that the sink belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Name>,
    /// Names of the event types that the sink receives.
    pub types: Vec<String>,
    /// Number of events that its queue holds; 0: each event is passed on at once.
    pub capacity: u32,
    /// Q-attributes, which OUT-filters can read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, i64>,
    /// Counts; present only for sinks of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SinkCounts>,
}

/// Counts of a source. Sinks of its own host are included. Within 2 s after its last event, if no event waits in a
/// queue: `sent = delivered + filtered + dropped + late + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SourceCounts {
    /// Events submitted.
    pub submitted: u64,
    /// Events refused because their deadline had passed; other counts do not include them.
    pub expired: u64,
    /// Number of times that the source had to wait.
    pub blocked: u64,
    /// Number of pairs of an event and a sink that the event was meant for.
    pub sent: u64,
    /// Delivered events, as reported by the sinks' hosts.
    pub delivered: u64,
    /// Events that a filter kept from a sink, here or at the sink's host.
    pub filtered: u64,
    /// Events not sent because the sink was too slow, or dropped because its queue was full or because it left.
    pub dropped: u64,
    /// Events dropped because their deadline had passed, or not sent because it would have passed.
    pub late: u64,
    /// Events lost on the way, or without a report because the sink's host was gone.
    pub lost: u64,
}

/// Counts of a sink. When no event is under way: `sent = delivered + filtered + dropped + late + lost + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SinkCounts {
    /// Events sent to the sink, as far as the sources have reported.
    pub sent: u64,
    /// Events passed to the application.
    pub delivered: u64,
    /// Events that IN-filters kept from the sink.
    pub filtered: u64,
    /// Events dropped because the queue was full.
    pub dropped: u64,
    /// Events dropped because their deadline had passed.
    pub late: u64,
    /// Events lost on the way.
    pub lost: u64,
    /// Events in the queue now.
    pub queued: u64,
}

/// Joins a channel as a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceRequest {
    /// The lease of the source: a connection to `channels.sock`.
    pub lease: LeaseId,
    /// The application that the source belongs to; for display.
    #[serde(default)]
    pub application: Option<Name>,
    /// Q-attributes, which filters can read.
    #[serde(default)]
    pub attributes: BTreeMap<String, i64>,
}

/// Joins a channel as a sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SinkRequest {
    /// The lease of the sink: a connection to `channels.sock`.
    pub lease: LeaseId,
    /// The application that the sink belongs to; for display.
    #[serde(default)]
    pub application: Option<Name>,
    /// Names of the event types to receive; empty: all types of the channel.
    #[serde(default)]
    pub types: Vec<String>,
    /// The sink's own declaration of the formats, as C structures; joining is refused if it cannot read the
    /// channel's events.
    #[serde(default)]
    pub formats: String,
    /// Q-attributes, which OUT-filters can read.
    #[serde(default)]
    pub attributes: BTreeMap<String, i64>,
    /// Number of events that the queue holds.
    #[serde(default = "queue")]
    pub capacity: u32,
}

fn queue() -> u32 {
    256
}

/// A new member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Joined {
    /// The member's number on this host.
    pub number: u32,
}

/// Changes Q-attributes of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttributeChanges {
    /// New values by name; null removes an attribute.
    pub attributes: BTreeMap<String, Option<i64>>,
}
