use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::channel::Name;

/// Divides a resource among the applications of a group. Start it on each host with such applications.
///
/// The wanted range of an application is in its registration: cpu_most for the attribute app.cpu_most. One of the
/// hosts leads and divides the resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(
        after_help = "Examples: qfabric policy start group --group crew --attribute app.cpu_most --capacity 800000
          qfabric policy start group --group low --parent viewers --attribute bandwidth"
    )
)]
#[serde(deny_unknown_fields)]
pub struct GroupPolicy {
    /// The group's name.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub group: Name,
    /// The parent of the group, which grants the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub parent: Option<Name>,
    /// Level in the QoS tree: 1 connection, 2 role (equal parts), 3 stream (by importance), 4 system (by weight).
    #[serde(default = "role")]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = role()))]
    pub level: u8,
    /// The resource to divide; app.cpu_most (millionths of a CPU) and app.cpu_weight also change reservations.
    #[cfg_attr(feature = "cli", arg(long))]
    pub attribute: String,
    /// The amount of the resource, for a group without a parent.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "AMOUNT", default_value_t = 0, hide_default_value = true))]
    pub capacity: i64,
    /// The importance of the group for its parent.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub importance: u32,
    /// The policy's name on this host; absent: `group.GROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: group.GROUP]"))]
    pub name: Option<Name>,
}

fn role() -> u8 {
    2
}

impl PolicyKind for GroupPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn group(&self) -> Option<&Name> {
        Some(&self.group)
    }

    fn decides(&self) -> Vec<Resource> {
        match self.attribute == "app.cpu_guaranteed" {
            true => vec![Resource::Contracts(self.group.clone())],
            false => Vec::new(),
        }
    }
}

impl fmt::Display for GroupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parent {
            Some(parent) => write!(f, "{}, as group {parent} grants", self.attribute),
            None => write!(f, "{} of {}", self.capacity, self.attribute),
        }
    }
}
