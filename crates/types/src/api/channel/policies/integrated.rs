use std::fmt;

use serde::{Deserialize, Serialize};

use super::cpu::most;
use super::{LadderDimension, PolicyKind, Resource};
use crate::api::net::StreamId;
use crate::channel::Name;
use crate::{InterfaceName, Share};

/// Keeps a stream's rate: first by contracts on the processor that limits it, then by a lower quality. Start it on each
/// host of the stream.
///
/// Applications register in the group with the channel's name and report what `cpu` needs; app.sent_milli (source),
/// app.decoded_milli (sink) and the monitored attribute cpu.pressure make the cause clearer. Before a decision, the
/// policy predicts the utility of all candidates, and applies the best one if it gains. Recovery has the reverse order:
/// quality first, then the guarantee is given back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start integrated --channel video --rate 20 \
           --ladder quality=80,60,40,20 --ladder size=640,320,176")
)]
#[serde(deny_unknown_fields)]
pub struct IntegratedPolicy {
    /// Wanted rate at the sinks, in events per second.
    #[cfg_attr(feature = "cli", arg(long))]
    pub rate: f64,
    /// A dimension of quality that may be lowered, and its levels from the best to the minimum. The first dimension is
    /// lowered first. May be repeated. A host with sinks only ignores it.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    #[cfg_attr(feature = "cli", arg(long = "ladder", value_name = "DIMENSION=LEVEL,LEVEL", required = true))]
    pub ladder: Vec<LadderDimension>,
    /// Largest guarantee of one application, as a share of one CPU.
    #[serde(default = "most")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value_t = most()))]
    pub most: Share,
    /// The interface of the stream of packets that carries the channel's events from this host. Late packets lower the
    /// quality before the sinks report a lower rate. Only for the source's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long, requires = "stream"))]
    pub interface: Option<InterfaceName>,
    /// The number of the stream on its interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ID", requires = "interface"))]
    pub stream: Option<StreamId>,
    /// The channel, of which this host has a source or a sink.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

impl PolicyKind for IntegratedPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Levels(self.channel.clone()), Resource::Contracts(self.channel.clone())]
    }
}

impl fmt::Display for IntegratedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events/s should be shown; up to {}", self.rate, self.most)?;
        if let (Some(interface), Some(stream)) = (&self.interface, self.stream) {
            write!(f, "; in stream {stream} of {interface}")?;
        }
        self.ladder.iter().try_for_each(|dimension| write!(f, "; {dimension}"))
    }
}
