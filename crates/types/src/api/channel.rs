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
//! | `POST /v1/access/reload` | → [`Reloaded`] |
//! | `GET /v1/monitors` | → list of [`MonitorInfo`] |
//! | `PUT /v1/monitors/{attribute}` | [`MonitorRequest`] → [`MonitorInfo`] |
//! | `GET /v1/policies` | → list of [`PolicyInfo`] |
//! | `POST /v1/policies` | [`Policy`] → 201 [`PolicyInfo`] |
//! | `DELETE /v1/policies/{name}` | → 204 |
//!
//! `{channel}` is a name, or `quality:NAME` for the hidden Q-channel of that name. What is opened, joined or registered
//! lives as long as its lease, a connection to `channels.sock` ([`crate::channel_wire`]).

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

/// The number of a connection to `channels.sock`.
pub type LeaseId = u64;

/// In which order queued events of one priority are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As they were submitted, by the clock of the host that queues them.
    #[default]
    Time,
    /// Earliest deadline first; those without one after the others.
    Deadline,
}

/// What happens to an event when a sink's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// The oldest of the lowest priority makes room.
    #[default]
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// Sources wait, for at most the channel's patience.
    Block,
}

/// Creates a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChannelRequest {
    /// The connection that holds it.
    pub lease: LeaseId,
    /// Its name.
    pub name: Name,
    /// What its events look like, as C structure declarations: each that is no other's member is a type of events, in
    /// this order.
    #[serde(default)]
    pub formats: String,
    /// Order.
    #[serde(default)]
    pub order: Order,
    /// Back-pressure.
    #[serde(default)]
    pub pressure: Pressure,
    /// With `block`: how long a slow sink may hold up the others.
    #[serde(default = "second")]
    pub patience_ns: Nanos,
}

fn second() -> Nanos {
    Nanos::from_millis(1_000)
}

/// Names a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Its number.
    pub lease: LeaseId,
}

/// A channel as all hosts together hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChannelInfo {
    /// Its name.
    pub name: Name,
    /// Data, or the hidden Q-channel.
    pub plane: Plane,
    /// Its types of events, by number.
    pub types: Vec<TypeInfo>,
    /// Order.
    pub order: Order,
    /// Back-pressure.
    pub pressure: Pressure,
    /// With `block`: how long a slow sink may hold up the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ns: Option<Nanos>,
    /// The host that created it.
    pub creator: Name,
    /// When, nanoseconds since 1970 by its clock.
    pub created_unix_ns: u64,
    /// Whether this host holds it.
    pub open_here: bool,
    /// Who holds it.
    pub hosts: Vec<Holding>,
    /// The filters of it on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterInfo>,
    /// How events of this host's sources are paced, where a policy decides that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paced: Vec<PaceInfo>,
}

/// One type of a channel's events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TypeInfo {
    /// Its layout.
    pub format: Format,
    /// The same as a C declaration.
    pub declaration: String,
}

/// What one host holds of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holding {
    /// The host.
    pub host: Name,
    /// Its sources.
    pub sources: Vec<SourceInfo>,
    /// Its sinks.
    pub sinks: Vec<SinkInfo>,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SourceInfo {
    /// Its number on its host.
    pub number: u32,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Name>,
    /// What filters can know of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, i64>,
    /// What was counted, where it is this host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SourceCounts>,
}

/// A sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SinkInfo {
    /// Its number on its host.
    pub number: u32,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Name>,
    /// Names of the types it wants.
    pub types: Vec<String>,
    /// Events it can keep; 0: it is called at once.
    pub capacity: u32,
    /// What OUT-filters can know of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, i64>,
    /// What was counted, where it is this host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SinkCounts>,
}

/// What was counted of a source. Sinks of its own host are in it like all others. Within 2 s after its last event, where
/// no event waits in a queue: `sent = delivered + filtered + dropped + late + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SourceCounts {
    /// Events submitted.
    pub submitted: u64,
    /// Events refused because their deadline had passed; they are in no other count.
    pub expired: u64,
    /// Times it was told to wait.
    pub blocked: u64,
    /// Sinks that events were meant for, one for each event.
    pub sent: u64,
    /// Delivered, as the sinks' hosts report.
    pub delivered: u64,
    /// Passed over by filters, here or at the sink's host.
    pub filtered: u64,
    /// Passed over because the sink was too slow, or dropped because its queue was full or it left.
    pub dropped: u64,
    /// Dropped at the sink's host because their deadline had passed, or here because it would have.
    pub late: u64,
    /// Lost on the way, or without a word of what became of them when the sink's host was gone.
    pub lost: u64,
}

/// What was counted of a sink. After quiet: `sent = delivered + filtered + dropped + late + lost + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SinkCounts {
    /// Sent to it, as far as the sources have said.
    pub sent: u64,
    /// Given to the application.
    pub delivered: u64,
    /// Passed over by IN-filters.
    pub filtered: u64,
    /// Dropped because its queue was full.
    pub dropped: u64,
    /// Dropped because their deadline had passed.
    pub late: u64,
    /// Lost on the way.
    pub lost: u64,
    /// In its queue now.
    pub queued: u64,
}

/// Joins a channel as a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceRequest {
    /// The connection whose source it is.
    pub lease: LeaseId,
    /// Whose it is; for people.
    #[serde(default)]
    pub application: Option<Name>,
    /// What filters can know of it.
    #[serde(default)]
    pub attributes: BTreeMap<String, i64>,
}

/// Joins a channel as a sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SinkRequest {
    /// The connection whose sink it is.
    pub lease: LeaseId,
    /// Whose it is; for people.
    #[serde(default)]
    pub application: Option<Name>,
    /// Names of the types it wants; none: all of the channel's.
    #[serde(default)]
    pub types: Vec<String>,
    /// Its own idea of the formats, as C structure declarations: refused where it cannot read the channel's.
    #[serde(default)]
    pub formats: String,
    /// What OUT-filters can know of it.
    #[serde(default)]
    pub attributes: BTreeMap<String, i64>,
    /// Events its queue holds.
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
    /// Its number on this host.
    pub number: u32,
}

/// Changes attributes of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttributeChanges {
    /// Their new values; null takes one away.
    pub attributes: BTreeMap<String, Option<i64>>,
}
