//! Filters: which sinks get an event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LeaseId;
use crate::channel::Name;

/// A filter on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilterInfo {
    /// Its name.
    pub name: Name,
    /// Where in an event's way.
    pub direction: Direction,
    /// The host that shipped it here; none: it was installed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Name>,
    /// Calls.
    pub calls: u64,
    /// Calls after which no sink was left.
    pub blocked: u64,
    /// Calls that faulted; such an event goes to nobody.
    pub faults: u64,
    /// Sinks that did not fit the filter's table and so got nothing.
    pub beyond: u64,
}

/// Where in an event's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// When an event is dispatched to this host's sinks.
    In,
    /// When a source of this host submits an event: sees the sinks of all hosts.
    Out,
}

impl Direction {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }

    /// The direction that is written so.
    pub fn named(name: &str) -> Option<Direction> {
        [Direction::In, Direction::Out].into_iter().find(|direction| direction.name() == name)
    }
}

/// Where a filter is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterScope {
    /// On this host.
    #[default]
    Here,
    /// On these, each if its access list allows it.
    Hosts(Vec<Name>),
    /// On the hosts that have an application in the group.
    Group(Name),
    /// On all that hold the channel.
    All,
}

/// Installs a filter, or replaces it between two events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterRequest {
    /// The connection with which it ends, on all hosts. None: it stays until it is removed, or this host's service ends;
    /// for root only.
    #[serde(default)]
    pub lease: Option<LeaseId>,
    /// E-code.
    pub code: String,
    /// The only sink that it decides on: `NUMBER` on this host, or `HOST/NUMBER`; none: all.
    #[serde(default)]
    pub sink: Option<String>,
    /// Names of the types it is called for; none: all.
    #[serde(default)]
    pub types: Vec<String>,
    /// First values of what it gets by `get_attribute(name)`.
    #[serde(default)]
    pub parameters: BTreeMap<String, i64>,
    /// Where.
    #[serde(default)]
    pub to: FilterScope,
}

/// Changes parameters of a filter; the next event sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ParameterRequest {
    /// Their new values.
    pub parameters: BTreeMap<String, i64>,
    /// Where.
    #[serde(default)]
    pub to: FilterScope,
}

/// Removes a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterRemoval {
    /// Where.
    #[serde(default)]
    pub to: FilterScope,
}

/// From now on a number in events of one channel is a parameter of a filter of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BindingRequest {
    /// The connection with which it ends.
    pub lease: LeaseId,
    /// Which of the filter's parameters.
    pub parameter: String,
    /// Where the events come from, such as `quality:NAME`; it has to be open here.
    pub channel: String,
    /// Name of their type.
    pub event_type: String,
    /// Name of their member, a single number.
    pub field: String,
}

/// What became of a filter, host by host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Installed {
    /// The hosts that were asked.
    pub hosts: Vec<HostAnswer>,
}

/// What one host says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostAnswer {
    /// The host.
    pub host: Name,
    /// Why not; none: done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
