use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::api::net::StreamId;
use crate::channel::Name;
use crate::{BitRate, InterfaceName};

/// Changes the rate of a stream of `qfabric net` by the rates at which a channel's events arrive at the sinks.
///
/// The rate of tokens grows while too few events arrive and packets of the stream wait for tokens, and falls to the used
/// rate when the rate has been kept for 5 s. The stream carries the channel's packets; its owner is the user who starts
/// the policy. It ends with its lease or its process as before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(
        after_help = "Example: qfabric policy start tokens --channel video --rate 20 --interface eth0 --stream 0 \
           --most 10M"
    )
)]
#[serde(deny_unknown_fields)]
pub struct TokensPolicy {
    /// Wanted rate at the sinks, in events per second.
    #[cfg_attr(feature = "cli", arg(long))]
    pub rate: f64,
    /// The interface of the stream.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    #[cfg_attr(feature = "cli", arg(long))]
    pub interface: InterfaceName,
    /// The number of the stream on its interface.
    #[cfg_attr(feature = "cli", arg(long, value_name = "ID"))]
    pub stream: StreamId,
    /// Least rate of tokens.
    #[serde(default = "least")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BITS", default_value_t = least()))]
    pub least: BitRate,
    /// Largest rate of tokens.
    #[cfg_attr(feature = "cli", arg(long, value_name = "BITS"))]
    pub most: BitRate,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

fn least() -> BitRate {
    BitRate::new(10_000)
}

impl PolicyKind for TokensPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Tokens { interface: self.interface.clone(), stream: self.stream }]
    }
}

impl fmt::Display for TokensPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TokensPolicy { rate, interface, stream, least, most, .. } = self;
        write!(f, "{least} to {most} on {interface} stream {stream} for {rate} events/s")
    }
}
