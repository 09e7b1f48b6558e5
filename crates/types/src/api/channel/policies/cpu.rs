use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::Share;
use crate::channel::Name;

/// Changes the guaranteed CPU time of a stream's applications by their rates. Start it on each host of the stream.
///
/// Applications register in the group with the channel's name and report, in thousandths of an event per second,
/// app.generated_milli (source) or app.arrived_milli and app.shown_milli (sink), and app.cpu, the CPU time that they use
/// in millionths of a CPU. While the rate is too low and other threads wait for the CPU, the guarantee of the contract
/// becomes what the wanted rate needs. It is given back 5 s after the pressure has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start cpu --channel video --rate 20 --most 80%")
)]
#[serde(deny_unknown_fields)]
pub struct CpuPolicy {
    /// Wanted rate, in events per second.
    #[cfg_attr(feature = "cli", arg(long))]
    pub rate: f64,
    /// Largest guarantee of one application, as a share of one CPU.
    #[serde(default = "most")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = most()))]
    pub most: Share,
    /// The channel, of which this host has a source or a sink.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

pub(super) fn most() -> Share {
    Share::from_ppm(950_000)
}

impl PolicyKind for CpuPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Contracts(self.channel.clone())]
    }
}

impl fmt::Display for CpuPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "contracts for {} events/s, up to {}", self.rate, self.most)
    }
}
