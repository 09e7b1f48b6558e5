use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::channel::Name;

/// Divides what the way to the sinks carries by their roles: the least important is degraded first, and comes back last.
///
/// A sink's role is what it registers in the group of the channel's name: a range of frame_rate, and its importance, as
/// `qfabric channel sub --wants frame_rate=10:15 --wants importance=0` does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start roles --channel video --event-bits 40000")
)]
#[serde(deny_unknown_fields)]
pub struct RolesPolicy {
    /// Bits of one event on the way.
    #[serde(default = "thousand_bytes")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BITS", default_value_t = thousand_bytes()))]
    pub event_bits: u64,
    /// Streams fade below their minimum instead of stopping there.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long))]
    pub fade: bool,
    /// The channel whose events go out here.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Its name [default: KIND.CHANNEL]"))]
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
