use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::channel::Name;

/// Divides the capacity of the path to the sinks by their roles: the least important role is degraded first and
/// recovers last.
///
/// A sink registers its role in the group with the channel's name: a range of frame_rate, and its importance.
/// `qfabric channel sub --wants frame_rate=10:15 --wants importance=0` does this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start roles --channel video --event-bits 40000")
)]
#[serde(deny_unknown_fields)]
pub struct RolesPolicy {
    /// Size of one event on the network, in bits.
    #[serde(default = "thousand_bytes")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BITS", default_value_t = thousand_bytes()))]
    pub event_bits: u64,
    /// Let streams fade below their minimum instead of stopping them there.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long))]
    pub fade: bool,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

fn thousand_bytes() -> u64 {
    8_000
}

impl PolicyKind for RolesPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Rates(self.channel.clone())]
    }
}

impl fmt::Display for RolesPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "events of {} bit{}", self.event_bits, if self.fade { ", fading" } else { "" })
    }
}
