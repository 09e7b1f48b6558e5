//! Policies that run on a host: what its resource manager does for a channel, as an engineer asked for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::channel::Name;

/// A policy, by its kind. In the daemon's configuration it is a table `[[channels.policy]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Policy {
    /// Multipoint feedback: the least important sinks are degraded first, and come back last.
    Roles(RolesPolicy),
    /// Keeps the rate at which events arrive at each host.
    Hold(HoldPolicy),
    /// Spreads reports of many hosts over time.
    Spread(SpreadPolicy),
}

/// At the source of a channel: divides what the way to its sinks carries by their roles.
///
/// A sink's role is its registration in the group of the channel's name: the range `frame_rate`, and `importance`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RolesPolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// Bits of one event on the way.
    #[serde(default = "thousand_bytes")]
    pub event_bits: u64,
    /// Streams fade below their minimum instead of stopping there.
    #[serde(default)]
    pub fade: bool,
}

fn thousand_bytes() -> u64 {
    8_000
}

/// At the source of a channel: sends to each host at the rate by which as many events arrive as are wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HoldPolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// Events per second that are to arrive.
    pub rate: f64,
}

/// At the source of a channel: hosts that report in the same tenth of the period as many others are asked to do it
/// later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SpreadPolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// Which reports.
    #[serde(default = "rate")]
    pub attribute: String,
    /// Time between two reports of one host; none: `channels.report` of this host's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
}

fn rate() -> String {
    "app.rate_milli".to_owned()
}

impl Policy {
    /// As it is written.
    pub const fn kind(&self) -> &'static str {
        match self {
            Policy::Roles(_) => "roles",
            Policy::Hold(_) => "hold",
            Policy::Spread(_) => "spread",
        }
    }

    /// The channel that it is for.
    pub const fn channel(&self) -> &Name {
        match self {
            Policy::Roles(RolesPolicy { channel, .. })
            | Policy::Hold(HoldPolicy { channel, .. })
            | Policy::Spread(SpreadPolicy { channel, .. }) => channel,
        }
    }

    /// The name that it was given, or `KIND.CHANNEL`; none where that is too long for a name.
    pub fn name(&self) -> Option<Name> {
        let given = match self {
            Policy::Roles(RolesPolicy { name, .. })
            | Policy::Hold(HoldPolicy { name, .. })
            | Policy::Spread(SpreadPolicy { name, .. }) => name,
        };
        given.clone().or_else(|| format!("{}.{}", self.kind(), self.channel()).parse().ok())
    }

    /// Whether it decides at what rate events go to each host.
    pub const fn paces(&self) -> bool {
        matches!(self, Policy::Roles(_) | Policy::Hold(_))
    }
}

/// What it was asked to do, in a few words.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Roles(RolesPolicy { event_bits, fade, .. }) => {
                write!(f, "events of {event_bits} bit{}", if *fade { ", fading" } else { "" })
            }
            Policy::Hold(HoldPolicy { rate, .. }) => write!(f, "{rate} events/s are to arrive"),
            Policy::Spread(SpreadPolicy { attribute, period, .. }) => {
                write!(f, "reports of {attribute}")?;
                period.map_or(Ok(()), |period| write!(f, " every {period}"))
            }
        }
    }
}

/// A policy that runs on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyInfo {
    /// Its name.
    pub name: Name,
    /// What was asked for.
    pub policy: Policy,
    /// The user who started it; none: the daemon's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Times that something of interest changed.
    pub calls: u64,
    /// What it decided.
    pub decisions: u64,
    /// Calls that faulted; nothing is decided by those.
    pub faults: u64,
    /// The last fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// What holds now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<Decided>,
}

/// What was decided last of one attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decided {
    /// For which host or application.
    pub subject: String,
    /// Of what, such as `app.rate_milli`: events per second, in thousandths.
    pub attribute: String,
    /// How much.
    pub amount: i64,
    /// When, CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// How events to one host are paced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PaceInfo {
    /// The host.
    pub host: Name,
    /// Thousandths of an event per second; 0: stopped.
    pub rate_milli: i64,
    /// Events that were let through.
    pub passed: u64,
    /// Events that were held back.
    pub held: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_by_its_kind_and_named_after_its_channel() {
        let policy: Policy = serde_json::from_str(r#"{"kind": "roles", "channel": "video"}"#).unwrap();
        assert_eq!((policy.name().unwrap().as_str(), policy.paces()), ("roles.video", true));
        let Policy::Roles(RolesPolicy { event_bits: 8_000, fade: false, .. }) = policy else { panic!("{policy:?}") };
        let text = r#"{"kind": "hold", "name": "calm", "channel": "video", "rate": 24.5}"#;
        let hold: Policy = serde_json::from_str(text).unwrap();
        assert_eq!((hold.name().unwrap().as_str(), hold.kind()), ("calm", "hold"));
        assert_eq!(serde_json::from_str::<Policy>(&serde_json::to_string(&hold).unwrap()).unwrap(), hold);
    }

    #[test]
    fn what_no_kind_knows_is_refused_by_its_name() {
        let refusal = |text| serde_json::from_str::<Policy>(text).unwrap_err().to_string();
        assert!(refusal(r#"{"kind": "magic", "channel": "video"}"#).contains("magic"));
        assert!(refusal(r#"{"kind": "roles", "channel": "video", "event_bit": 8}"#).contains("event_bit"));
        assert!(refusal(r#"{"kind": "hold", "channel": "video"}"#).contains("rate"));
    }
}
