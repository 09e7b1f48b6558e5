//! The answer to reading the access list again.

use serde::{Deserialize, Serialize};

/// The result of reading the access list and this host's certificate again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Reloaded))]
pub struct ReloadOutcome {
    /// Number of hosts that may take part.
    pub hosts: u32,
    /// Number of rules for these hosts.
    pub rules: u32,
    /// Whether the list or the certificate changed.
    pub changed: bool,
    /// Whether this host left the network and joined it again, because the engine's part of the list or the
    /// certificate changed. Members saw this as an interruption of the network.
    pub rejoined: bool,
}
