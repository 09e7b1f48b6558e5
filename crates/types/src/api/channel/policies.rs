//! Policies that run on a host: what its resource manager does for a channel, as an engineer asked for it.

mod together;

use std::fmt;

pub use together::*;

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
    /// Divides a resource among the applications of a group, on all its hosts.
    Group(GroupPolicy),
    /// A text in E-code that is called for what is said on the channel's Q-channel.
    Code(CodePolicy),
    /// All sinks show an event at the same time.
    Sync(SyncPolicy),
    /// One player of this host keeps in step with another.
    Media(MediaPolicy),
    /// Requests that wait too long go to the least loaded of the other servers.
    Balance(BalancePolicy),
    /// Divides what there is for several channels over the tree of streams, roles and connections.
    Tree(TreePolicy),
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
    pub period_ns: Option<Nanos>,
}

fn rate() -> String {
    "app.rate_milli".to_owned()
}

/// On a host with applications of a group: takes part in dividing a resource among all of them.
///
/// What an application wants is a range in its registration: of `cpu_most` for the attribute `app.cpu_most`. The leader of the group, one of its
/// hosts, divides `capacity`, or what the parent group's leader grants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupPolicy {
    /// Its name on this host; none: `KIND.GROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The group.
    pub group: Name,
    /// The group that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Level in the tree: 1 connection and 2 role divide equally, 3 stream by importance, 4 system by weight.
    #[serde(default = "role")]
    pub level: u8,
    /// Of what. `app.cpu_most` (millionths of a CPU) and `app.cpu_weight` change reservations of this host, too.
    pub attribute: String,
    /// How much there is, where there is no parent.
    #[serde(default)]
    pub capacity: i64,
    /// How important the group is to its parent.
    #[serde(default)]
    pub importance: u32,
}

fn role() -> u8 {
    2
}

/// E-code that is called for readings and control events of a channel's Q-channel, and for hosts that fall silent.
///
/// Of `struct input` it names what it wants: `value`, `attribute`, `application`, `host` (a number), `here`, `over_ns`,
/// `cause`, of control events `is_control`, `kind`, `other`, `request`, and of silence `silent_ns`; all of them `long`. Of
/// `struct output` it names what it decides: `rate_milli` (events to that host), `level` and `delay_ns` (told to that
/// host), `cpu_most` and `cpu_weight` (of the application of this host that the event is about), and parameters of the
/// filter. Verdict 0: nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CodePolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// The text.
    #[serde(default)]
    pub code: String,
    /// Where the text is: in the configuration only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// It is called for readings of these; none: `app.rate_milli`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
    /// It is called for control events, too.
    #[serde(default)]
    pub control: bool,
    /// The filter of the data channel on this host whose parameters it decides, such as `out/pick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// It is called, too, for a host that has spoken and then says nothing for so long, and again after each such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<Nanos>,
}

impl Policy {
    /// As it is written.
    pub const fn kind(&self) -> &'static str {
        match self {
            Policy::Roles(_) => "roles",
            Policy::Hold(_) => "hold",
            Policy::Spread(_) => "spread",
            Policy::Group(_) => "group",
            Policy::Code(_) => "code",
            Policy::Sync(_) => "sync",
            Policy::Media(_) => "media",
            Policy::Balance(_) => "balance",
            Policy::Tree(_) => "tree",
        }
    }

    /// The data channel, or the group, that it is for; of several the first.
    pub fn channel(&self) -> &Name {
        match self {
            Policy::Roles(RolesPolicy { channel, .. })
            | Policy::Hold(HoldPolicy { channel, .. })
            | Policy::Spread(SpreadPolicy { channel, .. })
            | Policy::Code(CodePolicy { channel, .. })
            | Policy::Sync(SyncPolicy { channel, .. })
            | Policy::Balance(BalancePolicy { channel, .. }) => channel,
            Policy::Group(GroupPolicy { group, .. }) | Policy::Media(MediaPolicy { group, .. }) => group,
            Policy::Tree(TreePolicy { name, streams, .. }) => streams.first().map_or(name, |stream| &stream.channel),
        }
    }

    /// All of them.
    pub fn channels(&self) -> Vec<&Name> {
        match self {
            Policy::Tree(TreePolicy { streams, .. }) => streams.iter().map(|stream| &stream.channel).collect(),
            _ => vec![self.channel()],
        }
    }

    /// The name that it was given, or `KIND.CHANNEL`; none where that is too long for a name.
    pub fn name(&self) -> Option<Name> {
        let given = match self {
            Policy::Roles(RolesPolicy { name, .. })
            | Policy::Hold(HoldPolicy { name, .. })
            | Policy::Spread(SpreadPolicy { name, .. })
            | Policy::Group(GroupPolicy { name, .. })
            | Policy::Code(CodePolicy { name, .. })
            | Policy::Sync(SyncPolicy { name, .. })
            | Policy::Media(MediaPolicy { name, .. })
            | Policy::Balance(BalancePolicy { name, .. }) => name,
            Policy::Tree(TreePolicy { name, .. }) => return Some(name.clone()),
        };
        given.clone().or_else(|| format!("{}.{}", self.kind(), self.channel()).parse().ok())
    }

    /// The channels of which it decides at what rate events go to each host. Whether a text in E-code does
    /// (`code_paces`), its compiler knows.
    pub fn paced(&self, code_paces: bool) -> Vec<&Name> {
        match self {
            Policy::Roles(_) | Policy::Hold(_) | Policy::Tree(_) => self.channels(),
            Policy::Code(_) if code_paces => self.channels(),
            _ => Vec::new(),
        }
    }

    /// What both would decide beside rates ([`Policy::paced`]), each undoing what the other does; none: they go together.
    pub fn rivals(&self, other: &Policy) -> Option<String> {
        match (self, other) {
            (Policy::Sync(one), Policy::Sync(two)) if one.channel == two.channel => {
                Some(format!("when events of `{}` are shown", one.channel))
            }
            (Policy::Balance(one), Policy::Balance(two)) if one.channel == two.channel => {
                Some(format!("where requests of `{}` go", one.channel))
            }
            (Policy::Media(one), Policy::Media(two)) if (&one.group, &one.follower) == (&two.group, &two.follower) => {
                Some(format!("with whom `{}` keeps in step", one.follower))
            }
            _ => None,
        }
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
            Policy::Spread(SpreadPolicy { attribute, period_ns, .. }) => {
                write!(f, "reports of {attribute}")?;
                period_ns.map_or(Ok(()), |period| write!(f, " every {period}"))
            }
            Policy::Group(GroupPolicy { attribute, parent: None, capacity, .. }) => {
                write!(f, "{capacity} of {attribute}")
            }
            Policy::Group(GroupPolicy { attribute, parent: Some(parent), .. }) => {
                write!(f, "{attribute}, as group {parent} grants")
            }
            Policy::Code(CodePolicy { code, filter, silence_ns, .. }) => {
                write!(f, "{} lines of E-code", code.trim().lines().count())?;
                filter.as_ref().map_or(Ok(()), |filter| write!(f, " for filter {filter}"))?;
                silence_ns.map_or(Ok(()), |silence| write!(f, ", after {silence} of silence, too"))
            }
            Policy::Sync(SyncPolicy { margin_ns, bound_ns, .. }) => {
                write!(f, "shown together, {margin_ns} after the latest could, at most {bound_ns} late")
            }
            Policy::Media(MediaPolicy { leader, follower, tolerance_ns, .. }) => {
                write!(f, "{follower} keeps within {tolerance_ns} of {leader}")
            }
            Policy::Balance(BalancePolicy { patience_ns, copies, cancel, .. }) => {
                let cancelled = if *cancel { ", the others cancelled" } else { "" };
                write!(f, "after {patience_ns} to the {copies} least loaded{cancelled}")
            }
            Policy::Tree(TreePolicy { capacity, streams, links, .. }) => {
                let channels = streams.iter().map(|stream| &stream.channel);
                write!(f, "{capacity} bit/s for {}", listed(channels))?;
                links.iter().try_for_each(|link| {
                    let place = if link.at_each_sink { " at each sink" } else { "" };
                    write!(f, "; linked{place}: {}", listed(&link.channels))
                })
            }
        }
    }
}

fn listed<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    names.into_iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
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
        assert_eq!((policy.name().unwrap().as_str(), policy.paced(false).len()), ("roles.video", 1));
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
