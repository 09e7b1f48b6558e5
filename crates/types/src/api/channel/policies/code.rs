//! Input that a text can request, all of type `long`: `value`, `attribute`, `application`, `host` (a number),
//! `here`, `over_ns`, `cause`; of control events `is_control`, `kind`, `other`, `request`; of silence `silent_ns`.
//!
//! Output: `rate_milli` (rate of events to that host), `level` and `delay_ns` (sent to that host), `cpu_most` and
//! `cpu_weight` (of the application of this host that the event is about), and parameters of the filter. The
//! verdict 0 makes no decision.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, TextFile};
use crate::Nanos;
use crate::channel::Name;

/// Runs E-code for the events on the channel's Q-channel; ten lines make a policy.
///
/// The code declares its input in `struct input` (value, attribute, application, host, here, over_ns, cause,
/// is_control, kind, other, request, silent_ns) and its decisions in `struct output` (rate_milli, level, delay_ns,
/// cpu_most, cpu_weight, and parameters of the filter).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start code --channel video --attribute cpu.run_queue \
           --filter out/pick --file calm.ec")
)]
#[serde(deny_unknown_fields)]
pub struct CodePolicy {
    /// The policy as E-code.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub code: String,
    /// The file that contains the E-code; only in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(long, required = true, help = "File that contains the E-code; - is the standard input")
    )]
    pub file: Option<String>,
    /// Call the code for readings of these attributes; default: `app.rate_milli`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "attribute", value_name = "ATTRIBUTE", help = ATTRIBUTE))]
    pub attributes: Vec<String>,
    /// Call the code for control events, too.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long))]
    pub control: bool,
    /// The filter of the channel on this host whose parameters the code decides: out/NAME or in/NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long))]
    pub filter: Option<String>,
    /// Call the code, too, for a host that has sent no event for this time, and again after each further TIME of
    /// silence (silent_ns).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "silence", value_name = "TIME"))]
    pub silence_ns: Option<Nanos>,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

#[cfg(feature = "cli")]
const ATTRIBUTE: &str = "Call the code for readings of this attribute; may be repeated [default: app.rate_milli]";

impl PolicyKind for CodePolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn text_file(&mut self) -> Option<TextFile<'_>> {
        Some(TextFile { file: &mut self.file, text: &mut self.code })
    }
}

impl fmt::Display for CodePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines of E-code", self.code.trim().lines().count())?;
        self.filter.as_ref().map_or(Ok(()), |filter| write!(f, " for filter {filter}"))?;
        self.silence_ns.map_or(Ok(()), |silence| write!(f, ", after {silence} of silence, too"))
    }
}
