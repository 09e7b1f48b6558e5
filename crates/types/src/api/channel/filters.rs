//! Filters, which choose the sinks that receive an event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LeaseId;
use crate::channel::Name;

/// A filter on this host, with its counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilterInfo {
    /// The filter's name.
    pub name: Name,
    /// IN or OUT.
    pub direction: Direction,
    /// The host that installed the filter here; absent: it was installed from this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Name>,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls after which no sink was left.
    pub blocked: u64,
    /// Number of calls that faulted; no sink receives the event of such a call.
    pub faults: u64,
    /// Number of sinks that received no event because they did not fit into the filter's table.
    pub beyond: u64,
    /// Number of events that the filter dropped without a call, because it was suspended.
    #[serde(default)]
    pub skipped: u64,
    /// Whether the filter is suspended: all filters of its user, or of the host that installed it, executed more
    /// instructions than `channels.max_filter_instructions_per_second` allows. Until the limit covers them, the filter drops
    /// the events of senders that caused the mean of all senders or more.
    #[serde(default)]
    pub suspended: bool,
    /// Parameters that another host changes by the kernel path, each with the name of the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub followed: BTreeMap<String, Name>,
}

/// The place at which a filter acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// An IN-filter: called when an event is dispatched to this host's sinks.
    In,
    /// An OUT-filter: called when a source of this host submits an event; sees the sinks of all hosts.
    Out,
}

impl Direction {
    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }

    /// The direction with this name.
    pub fn named(name: &str) -> Option<Direction> {
        [Direction::In, Direction::Out].into_iter().find(|direction| direction.name() == name)
    }
}

/// The hosts on which a filter is installed, changed or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterScope {
    /// This host.
    #[default]
    Here,
    /// These hosts; each host's access list must allow it.
    Hosts(Vec<Name>),
    /// The hosts with an application in this group.
    Group(Name),
    /// All hosts on which the channel is open.
    All,
}

/// Installs a filter, or replaces it between two events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterRequest {
    /// The lease of the filter; when it ends, the filter is removed on all hosts. Absent: the filter stays until it
    /// is removed or this host's service ends; only root may omit the lease.
    #[serde(default)]
    pub lease: Option<LeaseId>,
    /// The filter as E-code.
    pub code: String,
    /// The only sink that the filter decides about: `NUMBER` on this host, or `HOST/NUMBER`; absent: all sinks.
    #[serde(default)]
    pub sink: Option<String>,
    /// Names of the event types for which the filter is called; empty: all types.
    #[serde(default)]
    pub types: Vec<String>,
    /// Initial values of the parameters, which the filter reads with `get_attribute(name)`.
    #[serde(default)]
    pub parameters: BTreeMap<String, i64>,
    /// The hosts on which the filter is installed.
    #[serde(default)]
    pub to: FilterScope,
}

/// Changes parameters of a filter, effective from the next event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ParameterRequest {
    /// New values by name.
    pub parameters: BTreeMap<String, i64>,
    /// The hosts on which the filter is changed.
    #[serde(default)]
    pub to: FilterScope,
}

/// Removes a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterRemoval {
    /// The hosts on which the filter is removed.
    #[serde(default)]
    pub to: FilterScope,
}

/// A binding: copies a number from the events of one channel into a parameter of a filter on another channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BindingRequest {
    /// The lease of the binding; when it ends, the binding is removed.
    pub lease: LeaseId,
    /// The parameter of the filter.
    pub parameter: String,
    /// The channel of the events, such as `quality:NAME`; it must be open on this host.
    pub channel: String,
    /// The type of the events.
    pub event_type: String,
    /// The member of the event to copy; it must be a single number.
    pub field: String,
}

/// The result of a filter request, for each host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Installed {
    /// The hosts that received the request, with their answers.
    pub hosts: Vec<HostAnswer>,
}

/// The answer of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostAnswer {
    /// The host's name.
    pub host: Name,
    /// The reason of a refusal; absent: the request was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// True: the value was sent to the kernel of that host, which applies it without an answer. If the host does not
    /// confirm it within 2 s, it is sent again through its daemon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel_path: bool,
}
