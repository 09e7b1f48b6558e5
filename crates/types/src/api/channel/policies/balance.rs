use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::Nanos;
use crate::channel::Name;

/// Forwards requests that have waited too long to the least loaded servers. Start it on the host of each server.
///
/// A server registers in the group with the channel's name and reports the numbers of requests: app.request (it
/// waits), app.copy (another server's request waits here), app.begun (it no longer waits). The policy sends
/// app.forward (submit this request to all: the filter sends it to the sinks of other hosts with the smallest
/// attribute `load`) and app.drop (another server has begun this copy).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(
        after_help = "Example: qfabric policy start balance --channel requests --patience 2.5s --copies 2 --cancel"
    )
)]
#[serde(deny_unknown_fields)]
pub struct BalancePolicy {
    /// Forward a request that has waited for this time.
    #[serde(default = "patience")]
    #[cfg_attr(feature = "cli", arg(long = "patience", value_name = "TIME", default_value = "2500ms"))]
    pub patience_ns: Nanos,
    /// Number of servers to which a request is forwarded.
    #[serde(default = "one")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", default_value_t = one()))]
    pub copies: u32,
    /// The server that begins a copy first cancels the other copies.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long))]
    pub cancel: bool,
    /// The event type of requests.
    #[serde(default = "request")]
    #[cfg_attr(feature = "cli", arg(long = "type", value_name = "NAME", default_value_t = request()))]
    pub event_type: String,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

fn patience() -> Nanos {
    Nanos::from_millis(2_500)
}

fn one() -> u32 {
    1
}

fn request() -> String {
    "request".to_owned()
}

impl PolicyKind for BalancePolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Requests(self.channel.clone())]
    }
}

impl fmt::Display for BalancePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cancelled = if self.cancel { ", the others cancelled" } else { "" };
        write!(f, "after {} to the {} least loaded{cancelled}", self.patience_ns, self.copies)
    }
}
