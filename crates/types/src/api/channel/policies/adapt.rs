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
    /// A dimension of quality that may be lowered, and its levels from the best to the minimum. The first dimension is
    /// lowered first. If every level has a utility (quality=80:100,60:95,40:60), the level whose loss costs least is
    /// given up first instead. May be repeated.
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

/// A dimension of a ladder, as text `NAME=LEVEL,LEVEL` or `NAME=LEVEL:UTILITY,LEVEL:UTILITY`: from the best level to
/// the minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LadderDimension {
    pub name: Name,
    pub levels: Vec<i64>,
    /// The utility of each level, 0 to 1,000,000,000, never growing; empty: not stated.
    pub worth: Vec<u64>,
}

/// Limit of the utility of a level.
const MOST_WORTH: u64 = 1_000_000_000;

/// A level, and its utility if it is stated.
fn level(text: &str) -> Result<(i64, Option<u64>), String> {
    let (level, worth) = text.split_once(':').map_or((text, None), |(level, worth)| (level, Some(worth)));
    let level = level.trim().parse().map_err(|_| format!("level {level:?} is no whole number"))?;
    let utility = |text: &str| text.trim().parse().ok().filter(|worth| *worth <= MOST_WORTH);
    let refused = |text: &str| format!("utility {text:?} is no whole number from 0 to {MOST_WORTH}");
    let worth = worth.map(|text| utility(text).ok_or_else(|| refused(text))).transpose()?;
    Ok((level, worth))
}

impl FromStr for LadderDimension {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, levels) = text.split_once('=').ok_or("use NAME=LEVEL,LEVEL, such as quality=80,60,40")?;
        let name: Name = name.parse().map_err(|error| format!("{error}"))?;
        let stated = levels.split(',').map(level).collect::<Result<Vec<_>, String>>()?;
        let levels: Vec<i64> = stated.iter().map(|(level, _)| *level).collect();
        let worth: Vec<u64> = stated.iter().filter_map(|(_, worth)| *worth).collect();
        if !worth.is_empty() && worth.len() != levels.len() {
            return Err(format!("{name} has a utility for some levels; state one for each, such as 80:100,60:90"));
        }
        match worth.windows(2).find(|pair| pair[1] > pair[0]) {
            Some(pair) => {
                Err(format!("{name}: the utility grows from {} to {}; a lower level is worth less", pair[0], pair[1]))
            }
            None => Ok(LadderDimension { name, levels, worth }),
        }
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
        let worth = self.worth.iter().map(Some).chain(std::iter::repeat(None));
        let text = |(level, worth): (&i64, Option<&u64>)| match worth {
            Some(worth) => format!("{level}:{worth}"),
            None => level.to_string(),
        };
        let levels: Vec<String> = self.levels.iter().zip(worth).map(text).collect();
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
