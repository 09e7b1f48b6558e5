//! The body of reading the access list again.

use serde::{Deserialize, Serialize};

/// What became of reading the access list and this host's certificate again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reloaded {
    /// Hosts that take part.
    pub hosts: u32,
    /// Rules for them.
    pub rules: u32,
    /// Whether anything is other than before.
    pub changed: bool,
    /// Whether this host left the network and joined it again, as the engine's part of the list, or a new certificate, wants
    /// it. For members it was as if the cable had been cut and joined.
    pub rejoined: bool,
}
