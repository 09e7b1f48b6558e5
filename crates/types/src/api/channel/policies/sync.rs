use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::Nanos;
use crate::channel::Name;

/// Makes all sinks of a channel show an event at the same time, as soon as the latest sink can.
///
/// Applications with a sink register in the group with the channel's name and report app.show_need: the nanoseconds
/// from the sending of an event to the earliest time at which they can show it. The policy sends them
/// app.show_delay, and they show each event with this delay after it was sent. Differences between the hosts'
/// clocks are compensated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "cli", command(after_help = "Example: qfabric policy start sync --channel video --margin 10ms"))]
#[serde(deny_unknown_fields)]
pub struct SyncPolicy {
    /// Margin added to the need of the latest sink.
    #[serde(default = "margin")]
    #[cfg_attr(feature = "cli", arg(long = "margin", value_name = "TIME", default_value = "10ms"))]
    pub margin_ns: Nanos,
    /// Largest delay; a sink that needs more is late.
    #[serde(default = "bound")]
    #[cfg_attr(feature = "cli", arg(long = "bound", value_name = "TIME", default_value = "1s"))]
    pub bound_ns: Nanos,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

fn margin() -> Nanos {
    Nanos::from_millis(10)
}

fn bound() -> Nanos {
    Nanos::from_millis(1_000)
}

impl PolicyKind for SyncPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Shown(self.channel.clone())]
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SyncPolicy { margin_ns, bound_ns, .. } = self;
        write!(f, "shown together, {margin_ns} after the latest could, at most {bound_ns} late")
    }
}
