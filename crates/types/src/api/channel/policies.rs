//! Policies: rules by which the resource manager of a host controls a channel or a group, as a user started them.
//!
//! Each kind has a file with a structure of its options, their defaults, and an implementation of [`PolicyKind`].
//! The API, the configuration, the daemon and the command line take the list of kinds from
//! [`policy_kinds!`](crate::policy_kinds).
//!
//! With the feature `cli`, the structures are also the options of `qfabric policy start KIND`, and their doc
//! comments are its help.

mod adapt;
mod balance;
mod code;
mod cpu;
mod energy;
mod group;
mod hold;
mod integrated;
mod media;
mod roles;
mod spread;
mod sync;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod why;

use std::fmt;

pub use adapt::{AdaptPolicy, LadderDimension};
pub use balance::BalancePolicy;
pub use code::CodePolicy;
pub use cpu::CpuPolicy;
pub use energy::{EnergyDirective, EnergyPolicy, ImageGains};
pub use group::GroupPolicy;
pub use hold::HoldPolicy;
pub use integrated::IntegratedPolicy;
pub use media::MediaPolicy;
pub use roles::RolesPolicy;
pub use spread::SpreadPolicy;
pub use sync::SyncPolicy;
pub use tokens::TokensPolicy;
pub use tree::{TreeLink, TreePolicy, TreeStream};
pub use why::{Candidate, Explanation};

use serde::{Deserialize, Serialize};

use crate::InterfaceName;
use crate::api::net::StreamId;
use crate::channel::Name;

/// Calls the macro `$make` with all kinds of policies: `"NAME" => Variant(Structure),`, each with a doc comment.
///
/// `NAME` is the kind in the API, in the configuration and on the command line.
#[macro_export]
macro_rules! policy_kinds {
    ($make:ident) => {
        $make! {
            /// Multipoint feedback: the least important sinks are degraded first and recover last.
            "roles" => Roles(RolesPolicy),
            /// Keeps the rate at which events arrive at each host.
            "hold" => Hold(HoldPolicy),
            /// Spreads reports of many hosts over time.
            "spread" => Spread(SpreadPolicy),
            /// Lowers the quality of a stream while its rate is too low, and raises it again.
            "adapt" => Adapt(AdaptPolicy),
            /// Changes the guaranteed CPU time of a stream's applications by their rates.
            "cpu" => Cpu(CpuPolicy),
            /// Keeps a stream's rate by contracts on processors first, then by its quality.
            "integrated" => Integrated(IntegratedPolicy),
            /// Changes the rate of a stream of packets by the rates at its sinks.
            "tokens" => Tokens(TokensPolicy),
            /// Divides a resource among the applications of a group, on all its hosts.
            "group" => Group(GroupPolicy),
            /// Runs E-code for the events on the channel's Q-channel.
            "code" => Code(CodePolicy),
            /// All sinks show an event at the same time.
            "sync" => Sync(SyncPolicy),
            /// Keeps one player of this host in step with another.
            "media" => Media(MediaPolicy),
            /// Sends requests that have waited too long to the least loaded of the other servers.
            "balance" => Balance(BalancePolicy),
            /// Decides by an energy directive which host runs the transcoders of a channel.
            "energy" => Energy(EnergyPolicy),
            /// Divides the capacity for several channels over the tree of streams, roles and connections.
            "tree" => Tree(TreePolicy),
        }
    };
}

/// Properties of a kind of policy. `Display` describes the policy in a few words.
pub trait PolicyKind: fmt::Display {
    /// The name given by the user; `None`: `KIND.CHANNEL`.
    fn given_name(&self) -> Option<&Name>;

    /// The data channels of the policy. The user who starts it must have opened all of them.
    fn channels(&self) -> Vec<&Name> {
        Vec::new()
    }

    /// The group of the policy. The user who starts it must have an application in the group on this host.
    fn group(&self) -> Option<&Name> {
        None
    }

    /// The resources that the policy decides; no other policy may decide them at the same time. Resources that only
    /// the daemon can find (in E-code) are not included.
    fn decides(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// The text of the policy, if it can be read from a file.
    fn text_file(&mut self) -> Option<TextFile<'_>> {
        None
    }
}

/// A resource that a policy decides. Two policies for one resource are refused, because each would undo the
/// decisions of the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The rates at which events of a data channel are sent to each host.
    Rates(Name),
    /// The times at which events of a data channel are shown.
    Shown(Name),
    /// The levels of quality at which a data channel is encoded.
    Levels(Name),
    /// The host that runs the transcoders of a data channel.
    Place(Name),
    /// The guaranteed CPU time of the applications of the group with this name.
    Contracts(Name),
    /// The rate of a stream of packets.
    Tokens { interface: InterfaceName, stream: StreamId },
    /// The destinations of requests on a data channel.
    Requests(Name),
    /// The leader with which an application of a group keeps in step.
    Step { group: Name, follower: Name },
}

/// The text that completes the sentence «this policy decides …».
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Rates(channel) => write!(f, "at what rates `{channel}` goes to its sinks"),
            Resource::Shown(channel) => write!(f, "when events of `{channel}` are shown"),
            Resource::Levels(channel) => write!(f, "with what quality `{channel}` is encoded"),
            Resource::Place(channel) => write!(f, "where the transcoders of `{channel}` run"),
            Resource::Contracts(group) => write!(f, "what CPU time the applications of `{group}` are guaranteed"),
            Resource::Tokens { interface, stream } => write!(f, "the rate of stream {stream} of {interface}"),
            Resource::Requests(channel) => write!(f, "where requests of `{channel}` go"),
            Resource::Step { follower, .. } => write!(f, "with whom `{follower}` keeps in step"),
        }
    }
}

/// A text of a policy, and the file from which it can be read.
#[derive(Debug)]
pub struct TextFile<'p> {
    /// The path of the file; `None`: `text` is given.
    pub file: &'p mut Option<String>,
    pub text: &'p mut String,
}

macro_rules! define_policy {
    ($($(#[$doc:meta])* $name:literal => $Kind:ident($Structure:ident),)*) => {
        /// A policy of one kind. In the daemon's configuration it is a table `[[channels.policy]]`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(tag = "kind")]
        pub enum Policy {
            $($(#[$doc])* #[serde(rename = $name)] $Kind($Structure),)*
        }

        impl Policy {
            /// The names of all kinds.
            pub const KINDS: &[&str] = &[$($name),*];

            /// The name of the kind.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Policy::$Kind(_) => $name,)*
                }
            }

            /// The properties of the policy.
            pub fn as_kind(&self) -> &dyn PolicyKind {
                match self {
                    $(Policy::$Kind(policy) => policy,)*
                }
            }

            /// The properties of the policy, mutable.
            pub fn as_kind_mut(&mut self) -> &mut dyn PolicyKind {
                match self {
                    $(Policy::$Kind(policy) => policy,)*
                }
            }
        }
    };
}

policy_kinds!(define_policy);

impl Policy {
    /// The first data channel of the policy, or its group.
    pub fn channel(&self) -> Option<&Name> {
        let kind = self.as_kind();
        kind.group().or_else(|| kind.channels().first().copied())
    }

    /// The given name, or `KIND.CHANNEL`; `None` if that is too long for a name.
    pub fn name(&self) -> Option<Name> {
        let of_the_channel = || format!("{}.{}", self.kind(), self.channel()?).parse().ok();
        self.as_kind().given_name().cloned().or_else(of_the_channel)
    }
}

/// Describes the policy in a few words.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_kind().fmt(f)
    }
}

fn listed<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    names.into_iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

/// A policy that runs on this host, with its counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyInfo {
    /// The policy's name.
    pub name: Name,
    /// The options of the policy.
    pub policy: Policy,
    /// The user who started the policy; absent: it is from the daemon's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Number of calls: changes that were of interest to the policy.
    pub calls: u64,
    /// Number of decisions.
    pub decisions: u64,
    /// Number of calls that faulted; such a call makes no decision.
    pub faults: u64,
    /// The last fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Whether the policy panicked and no longer runs; `fault` contains the message. Its name is free after it is
    /// stopped.
    #[serde(default)]
    pub failed: bool,
    /// CPU time of its calls, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Limit of its CPU time, in nanoseconds per second; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// Number of changes for which the policy was not called because it was too slow.
    #[serde(default)]
    pub dropped: u64,
    /// Number of seconds in which it exceeded its CPU time limit.
    #[serde(default)]
    pub suspensions: u64,
    /// Whether it exceeded the limit in the present second and is not called until the second ends.
    #[serde(default)]
    pub suspended: bool,
    /// The decisions in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<DecisionInfo>,
}

/// The last decision about one attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Decided))]
pub struct DecisionInfo {
    /// The host or application that the decision is for.
    pub subject: String,
    /// The attribute, such as `app.rate_milli`: events per second, in thousandths.
    pub attribute: String,
    /// The decided amount, in the attribute's unit.
    pub amount: i64,
    /// The time of the decision, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// The pacing of events to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PaceInfo {
    /// The host's name.
    pub host: Name,
    /// The user whose sources' events alone are paced; absent: all events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The rate in thousandths of an event per second; 0: stopped.
    pub rate_milli: i64,
    /// Number of events that were sent.
    pub passed: u64,
    /// Number of events that were held back.
    pub held: u64,
}
