//! Policies that run on a host: what its resource manager does for a channel, as an engineer asked for it.
//!
//! Each kind has a file: a structure with its options, their defaults, and [`PolicyKind`]. A kind is known to the API, the
//! configuration, the daemon and the command line by its line in [`policy_kinds!`](crate::policy_kinds).
//!
//! With the feature `cli` the structures are also the options of `qfabric policy start KIND`: the doc comments are the help.

mod balance;
mod code;
mod group;
mod hold;
mod media;
mod roles;
mod spread;
mod sync;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

pub use balance::BalancePolicy;
pub use code::CodePolicy;
pub use group::GroupPolicy;
pub use hold::HoldPolicy;
pub use media::MediaPolicy;
pub use roles::RolesPolicy;
pub use spread::SpreadPolicy;
pub use sync::SyncPolicy;
pub use tree::{TreeLink, TreePolicy, TreeStream};

use serde::{Deserialize, Serialize};

use crate::channel::Name;

/// Calls the macro `$make` with all kinds of policies: `"NAME" => Variant(Structure),`, each with a doc comment.
///
/// `NAME` is the kind as people write it: in the API, in the configuration and on the command line.
#[macro_export]
macro_rules! policy_kinds {
    ($make:ident) => {
        $make! {
            /// Multipoint feedback: the least important sinks are degraded first, and come back last.
            "roles" => Roles(RolesPolicy),
            /// Keeps the rate at which events arrive at each host.
            "hold" => Hold(HoldPolicy),
            /// Spreads reports of many hosts over time.
            "spread" => Spread(SpreadPolicy),
            /// Divides a resource among the applications of a group, on all its hosts.
            "group" => Group(GroupPolicy),
            /// A text in E-code that is called for what is said on the channel's Q-channel.
            "code" => Code(CodePolicy),
            /// All sinks show an event at the same time.
            "sync" => Sync(SyncPolicy),
            /// One player of this host keeps in step with another.
            "media" => Media(MediaPolicy),
            /// Requests that wait too long go to the least loaded of the other servers.
            "balance" => Balance(BalancePolicy),
            /// Divides what there is for several channels over the tree of streams, roles and connections.
            "tree" => Tree(TreePolicy),
        }
    };
}

/// What a policy says about itself. `Display` describes in a few words what it was asked to do.
pub trait PolicyKind: fmt::Display {
    /// The name that it was given on this host; none: `KIND.CHANNEL`.
    fn given_name(&self) -> Option<&Name>;

    /// The data channels that it is for. Whoever starts it has to hold all of them.
    fn channels(&self) -> Vec<&Name> {
        Vec::new()
    }

    /// The group that it is for. Whoever starts it has to have an application in it on this host.
    fn group(&self) -> Option<&Name> {
        None
    }

    /// What it decides, and no other policy may decide at the same time. A resource that only the daemon finds (in a
    /// text in E-code) is not among them.
    fn decides(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// The text that it needs, where that can be read from a file.
    fn text_file(&mut self) -> Option<TextFile<'_>> {
        None
    }
}

/// Something that a policy decides. Two that decide the same are refused: each would undo what the other does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// At what rate events of a data channel go to each host.
    Rates(Name),
    /// When events of a data channel are shown.
    Shown(Name),
    /// Where requests of a data channel go.
    Requests(Name),
    /// With whom an application of a group keeps in step.
    Step {
        /// The group.
        group: Name,
        /// The application.
        follower: Name,
    },
}

/// As the object of «this policy decides …».
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Rates(channel) => write!(f, "at what rates `{channel}` goes to its sinks"),
            Resource::Shown(channel) => write!(f, "when events of `{channel}` are shown"),
            Resource::Requests(channel) => write!(f, "where requests of `{channel}` go"),
            Resource::Step { follower, .. } => write!(f, "with whom `{follower}` keeps in step"),
        }
    }
}

/// A text of a policy, and the file to read it from.
#[derive(Debug)]
pub struct TextFile<'p> {
    /// Where the text is; none: it is given.
    pub file: &'p mut Option<String>,
    /// The text.
    pub text: &'p mut String,
}

macro_rules! define_policy {
    ($($(#[$doc:meta])* $name:literal => $Kind:ident($Structure:ident),)*) => {
        /// A policy, by its kind. In the daemon's configuration it is a table `[[channels.policy]]`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(tag = "kind")]
        pub enum Policy {
            $($(#[$doc])* #[serde(rename = $name)] $Kind($Structure),)*
        }

        impl Policy {
            /// All kinds, as they are written.
            pub const KINDS: &[&str] = &[$($name),*];

            /// As it is written.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Policy::$Kind(_) => $name,)*
                }
            }

            /// What it says about itself.
            pub fn as_kind(&self) -> &dyn PolicyKind {
                match self {
                    $(Policy::$Kind(policy) => policy,)*
                }
            }

            /// The same, to be changed.
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
    /// The data channel, or the group, that it is for, as people see it; of several the first.
    pub fn channel(&self) -> Option<&Name> {
        let kind = self.as_kind();
        kind.group().or_else(|| kind.channels().first().copied())
    }

    /// The name that it was given, or `KIND.CHANNEL`; none where that is too long for a name.
    pub fn name(&self) -> Option<Name> {
        let of_the_channel = || format!("{}.{}", self.kind(), self.channel()?).parse().ok();
        self.as_kind().given_name().cloned().or_else(of_the_channel)
    }
}

/// What it was asked to do, in a few words.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_kind().fmt(f)
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
    /// It panicked and does not run any more; `fault` says how. Its name is free once it is stopped.
    #[serde(default)]
    pub failed: bool,
    /// CPU time that its calls took, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
    /// CPU time that it may take per second; none: it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// Changes that it was too slow for, and was not called for.
    #[serde(default)]
    pub dropped: u64,
    /// Seconds in which it took more than it may.
    #[serde(default)]
    pub suspensions: u64,
    /// Whether it is not called until the end of such a second.
    #[serde(default)]
    pub suspended: bool,
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
