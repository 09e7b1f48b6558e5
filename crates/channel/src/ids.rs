//! Numbers of what a node knows.

use std::fmt;

use qfabric_types::channel::Name;
use serde::{Deserialize, Serialize};

/// Which start of a host: a crash and a restart are two members. Later starts have larger numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Of a host that starts `unix_seconds` after 1970; `random` tells starts within one second apart.
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
    /// A source of this host; never given twice in one incarnation.
    SourceId
}
number! {
    /// A sink of this host; never given twice in one incarnation.
    SinkId
}
number! {
    /// An application's membership of a group.
    RegistrationId
}
number! {
    /// What was asked of other hosts; their answers name it.
    RequestId
}

/// A source or a sink anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// Its host.
    pub host: Name,
    /// Its number there.
    pub number: u32,
}
