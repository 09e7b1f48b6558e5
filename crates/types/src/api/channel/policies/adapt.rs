use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::channel::Name;

/// Lowers the quality of a stream while its rate is too low at the sinks, and raises it again in reverse order.
///
/// Applications with a source on the channel receive `app.level` with the name of the dimension, such as quality, as
/// its subject, and the level as its amount. A level is lowered when the rate of arrivals at the median sink is too
/// low, and raised when that rate was kept. An application may register in the group with the channel's name and
/// report app.generated_milli (source) or app.decoded_milli and app.shown_milli (sink), in thousandths of an event per
/// second: `qfabric policy why` then names the processor, link or application that limits the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start adapt --channel video --rate 20 \
           --ladder quality=80,60,40,20 --ladder size=640,320,176")
)]
#[serde(deny_unknown_fields)]
pub struct AdaptPolicy {
    /// Wanted arrival rate, in events per second.
    #[cfg_attr(feature = "cli", arg(long))]
    pub rate: f64,
    /// What is given up, and its levels from the best to the minimum; the first dimension is given up first. May be
    /// repeated.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    #[cfg_attr(feature = "cli", arg(long = "ladder", value_name = "DIMENSION=LEVEL,LEVEL", required = true))]
    pub ladder: Vec<LadderDimension>,
    /// The channel, which has sources on this host.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

/// A dimension of a ladder, as text `NAME=LEVEL,LEVEL`: from the best level to the minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LadderDimension {
    pub name: Name,
    pub levels: Vec<i64>,
}

impl FromStr for LadderDimension {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, levels) = text.split_once('=').ok_or("use NAME=LEVEL,LEVEL, such as quality=80,60,40")?;
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let level = |level: &str| level.trim().parse().map_err(|_| format!("level {level:?} is no whole number"));
        Ok(LadderDimension { name, levels: levels.split(',').map(level).collect::<Result<_, String>>()? })
    }
}

impl TryFrom<String> for LadderDimension {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LadderDimension> for String {
    fn from(dimension: LadderDimension) -> String {
        dimension.to_string()
    }
}

impl fmt::Display for LadderDimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<String> = self.levels.iter().map(i64::to_string).collect();
        write!(f, "{}={}", self.name, levels.join(","))
    }
}

impl PolicyKind for AdaptPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Levels(self.channel.clone())]
    }
}

impl fmt::Display for AdaptPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events/s should arrive", self.rate)?;
        self.ladder.iter().try_for_each(|dimension| write!(f, "; {dimension}"))
    }
}
