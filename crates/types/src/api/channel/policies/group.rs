use std::fmt;

use serde::{Deserialize, Serialize};

use super::PolicyKind;
use crate::channel::Name;

/// Divides a resource among the applications of a group; to be started on each host that has some.
///
/// What an application wants is a range in its registration: of cpu_most for the attribute app.cpu_most. One of the hosts
/// leads, and divides.
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
    /// The group.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub group: Name,
    /// The group that it is a part of, which grants what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub parent: Option<Name>,
    /// Level in the tree: 1 connection, 2 role (equal parts), 3 stream (by importance), 4 system (by weight).
    #[serde(default = "role")]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = role()))]
    pub level: u8,
    /// Of what; app.cpu_most (millionths of a CPU) and app.cpu_weight change reservations, too.
    #[cfg_attr(feature = "cli", arg(long))]
    pub attribute: String,
    /// How much there is, where there is no parent.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "AMOUNT", default_value_t = 0, hide_default_value = true))]
    pub capacity: i64,
    /// How important the group is to its parent.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub importance: u32,
    /// Its name on this host; none: `group.GROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Its name [default: group.GROUP]"))]
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
}

impl fmt::Display for GroupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parent {
            Some(parent) => write!(f, "{}, as group {parent} grants", self.attribute),
            None => write!(f, "{} of {}", self.capacity, self.attribute),
        }
    }
}
