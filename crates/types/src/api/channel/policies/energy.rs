use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::channel::Name;
use crate::{EnergySource, Nanos};

/// Decides by an energy directive whether the sender or the receivers of a channel run its transcoders.
///
/// Start it with a directive on the host that has the sources, and without one on each host that has sinks: there it
/// only shares the state of the battery. Applications with a source receive `app.level` with the subject `transcoders`:
/// 0: they run the transcoders, 1: the receivers do. Applications with a sink receive `app.transcoders` with the same
/// amount. An application may register in the group with the channel's name and report app.teq_sender, app.teq_receiver
/// and app.receiver_cost, in microjoules per image. A battery without a meter is modelled: it loses its drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "\
Examples: qfabric policy start energy --channel video --directive max-aot --battery 20000 --drain 1.5 --gains=-30,10,40
          qfabric policy start energy --channel video --battery 18000 --drain 1.5")
)]
#[serde(deny_unknown_fields)]
pub struct EnergyPolicy {
    /// Goal over sender and receivers; absent: this host only shares the state of its battery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub directive: Option<EnergyDirective>,
    /// Energy in this host's battery, in joules, and its capacity; absent: the host runs on mains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "JOULES"))]
    pub battery: Option<f64>,
    /// Power that the host draws from the battery, in watts, until a meter reports another one.
    #[serde(default = "drain")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WATTS", default_value = "1"))]
    pub drain: f64,
    /// The battery in /sys/class/power_supply whose readings count: `battery.NAME.energy`, or else
    /// `battery.NAME.charge`, and `battery.NAME.power` of the monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", requires = "battery"))]
    pub supply: Option<Name>,
    /// Millijoules per image, until an application reports them: what the sender gains and what a receiver gains if the
    /// sender runs the transcoders, and what a receiver spends if it runs them itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SENDER,RECEIVER,COST"))]
    pub gains: Option<ImageGains>,
    /// Time between two reports of the battery, and least time between two changes of the place.
    #[serde(default = "period")]
    #[cfg_attr(feature = "cli", arg(long = "period", value_name = "TIME", default_value = "10s"))]
    pub period_ns: Nanos,
    /// Charge in per cent below which max-aot spares this host, whatever others report.
    #[serde(default = "floor")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PERCENT", default_value_t = 10))]
    pub floor: u8,
    /// Decide by the rules as the thesis prints them, to compare. The rules of min-sec and max-aot contradict its text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long, requires = "directive"))]
    pub printed: bool,
    /// The channel.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub channel: Name,
    /// The policy's name on this host; absent: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: KIND.CHANNEL]"))]
    pub name: Option<Name>,
}

fn drain() -> f64 {
    1.0
}

fn period() -> Nanos {
    Nanos::from_millis(10_000)
}

fn floor() -> u8 {
    10
}

/// A goal over sender and receivers of a stream (000 §7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum EnergyDirective {
    /// Maximise the operational time of the sender.
    MaxSot,
    /// Maximise the operational time of the receivers.
    MaxRot,
    /// Maximise the operational time of the application: all batteries empty at the same time.
    MaxAot,
    /// Minimise the energy of all hosts together.
    MinSec,
}

impl EnergyDirective {
    /// The word in options, JSON and output.
    pub const fn name(self) -> &'static str {
        match self {
            EnergyDirective::MaxSot => "max-sot",
            EnergyDirective::MaxRot => "max-rot",
            EnergyDirective::MaxAot => "max-aot",
            EnergyDirective::MinSec => "min-sec",
        }
    }
}

/// Gains and costs of one image in millijoules, as text `SENDER,RECEIVER,COST`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageGains {
    /// Gain of the sender that runs the transcoders.
    pub sender_mj: f64,
    /// Gain of a receiver if the sender runs the transcoders.
    pub receiver_mj: f64,
    /// Cost of a receiver that runs them.
    pub cost_mj: f64,
}

impl FromStr for ImageGains {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.abs() <= 1e9);
        let numbers: Option<Vec<f64>> = text.split(',').map(number).collect();
        match numbers.as_deref() {
            Some(&[sender_mj, receiver_mj, cost_mj]) => Ok(ImageGains { sender_mj, receiver_mj, cost_mj }),
            _ => Err(format!("{text:?} is not three numbers of millijoules up to 1e9; use --gains=-30,10,40")),
        }
    }
}

impl TryFrom<String> for ImageGains {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ImageGains> for String {
    fn from(gains: ImageGains) -> String {
        gains.to_string()
    }
}

impl fmt::Display for ImageGains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.sender_mj, self.receiver_mj, self.cost_mj)
    }
}

impl PolicyKind for EnergyPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn channels(&self) -> Vec<&Name> {
        vec![&self.channel]
    }

    fn decides(&self) -> Vec<Resource> {
        self.directive.iter().map(|_| Resource::Place(self.channel.clone())).collect()
    }
}

impl fmt::Display for EnergyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.directive {
            Some(directive) => {
                let rules = if self.printed { " as printed" } else { "" };
                write!(f, "{}{rules} decides where transcoders run", directive.name())?;
            }
            None => f.write_str("shares the state of the battery")?,
        }
        match self.battery {
            // Typed by the user; readings of a meter take its place, and their reports name the meter.
            Some(joules) => write!(f, "; battery of {joules} J ({})", EnergySource::Model.name()),
            None => f.write_str("; on mains"),
        }
    }
}
