//! Numbers of incarnations, members, registrations and requests.

use std::fmt;

use qfabric_types::channel::Name;
use serde::{Deserialize, Serialize};

/// One start of a host. A host that crashes and restarts has a new, larger number, so its old members are not confused
/// with its new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// For a host that starts `unix_seconds` after 1970; `random` distinguishes starts within one second.
    pub const fn new(unix_seconds: u32, random: u32) -> Incarnation {
        Incarnation((unix_seconds as u64) << 32 | random as u64)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Identifies a source of this host; never used twice in one incarnation.
    SourceId
}
number! {
    /// Identifies a sink of this host; never used twice in one incarnation.
    SinkId
}
number! {
    /// Identifies an application's membership of a group.
    RegistrationId
}
number! {
    /// Identifies a request to other hosts; their answers carry it.
    RequestId
}

/// A source or a sink on any host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    pub host: Name,
    /// The number on that host.
    pub number: u32,
}
