//! Identities of applications, threads and owners.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an application with a contract; its host assigns numbers in order of admission, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct AppId(pub u64);

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernel's number of a thread on this host (TID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct ThreadId(pub i32);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The user and group of an application, from the peer credentials of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
}

impl Owner {
    /// `nobody` and `nogroup`: what this host keeps for other hosts counts against them, so that an administrator can
    /// bound it like a user.
    pub const NOBODY: Owner = Owner { uid: 65_534, gid: 65_534 };
}
