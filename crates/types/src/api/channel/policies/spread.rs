use std::fmt;

use serde::{Deserialize, Serialize};

use super::PolicyKind;
use crate::Nanos;
use crate::channel::Name;

/// Asks hosts whose reports arrive at the same time as many others to report later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "cli", command(after_help = "Example: qfabric policy start spread --channel video --period 1s"))]
#[serde(deny_unknown_fields)]
pub struct SpreadPolicy {
    /// The attribute of the reports.
    #[serde(default = "rate")]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = rate()))]
    pub attribute: String,
    /// Time between two reports of one host; absent: `channels.report` of this host's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "period", value_name = "TIME", help = PERIOD))]
    pub period_ns: Option<Nanos>,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

#[cfg(feature = "cli")]
const PERIOD: &str = "Time between two reports of one host [default: channels.report of this host's configuration]";

fn rate() -> String {
    "app.rate_milli".to_owned()
}

impl PolicyKind for SpreadPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }
}

impl fmt::Display for SpreadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reports of {}", self.attribute)?;
        self.period_ns.map_or(Ok(()), |period| write!(f, " every {period}"))
    }
}
