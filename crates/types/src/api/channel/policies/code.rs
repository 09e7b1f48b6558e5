//! What a text can know, all of it of type `long`: `value`, `attribute`, `application`, `host` (a number), `here`,
//! `over_ns`, `cause`, of control events `is_control`, `kind`, `other`, `request`, and of silence `silent_ns`.
//!
//! What it can decide: `rate_milli` (events to that host), `level` and `delay_ns` (told to that host), `cpu_most` and
//! `cpu_weight` (of the application of this host that the event is about), and parameters of the filter. Verdict 0: nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, TextFile};
use crate::Nanos;
use crate::channel::Name;

/// Runs a text in E-code for what is said on the channel's Q-channel: ten lines make a policy.
///
/// The text names what it wants to know in `struct input` (value, attribute, application, host, here, over_ns, cause,
/// is_control, kind, other, request, silent_ns) and what it decides in `struct output` (rate_milli, level, delay_ns,
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
    /// The text.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub code: String,
    /// Where the text is: in the configuration only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, required = true, help = "The text; - is the standard input"))]
    pub file: Option<String>,
    /// It is called for readings of these; none: `app.rate_milli`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "attribute", value_name = "ATTRIBUTE", help = ATTRIBUTE))]
    pub attributes: Vec<String>,
    /// It is called for control events, too.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(long))]
    pub control: bool,
    /// The filter of the channel on this host whose parameters it decides: out/NAME or in/NAME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long))]
    pub filter: Option<String>,
    /// It is called, too, for a host that says nothing for so long, and again each TIME until it speaks (silent_ns).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "silence", value_name = "TIME"))]
    pub silence_ns: Option<Nanos>,
    /// The channel whose events go out here.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Its name [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

#[cfg(feature = "cli")]
const ATTRIBUTE: &str = "It is called for readings of this; may be said more than once [default: app.rate_milli]";

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
