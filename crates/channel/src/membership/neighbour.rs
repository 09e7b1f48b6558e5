//! Another host: what it was told and asked, and what is coming of its record.

use qfabric_types::{Instant, Nanos};

use crate::change::Change;

/// Before a host that appeared is asked for its record: it tells it by itself.
pub(super) const PATIENCE: Nanos = Nanos::from_millis(200);

/// A host that is there.
#[derive(Debug, Default)]
pub(super) struct Neighbour {
    /// Parts of its full record that have come.
    pub staging: Option<Staging>,
    /// When it is to be asked for its full record.
    pub ask_due: Option<Instant>,
    /// When it was last told this host's.
    pub told: Option<Instant>,
    /// It speaks another version of the protocol, and that was said.
    pub other_version: bool,
}

/// A record that comes in parts.
#[derive(Debug)]
pub(super) struct Staging {
    pub version: u64,
    pub parts: u16,
    pub changes: Vec<Change>,
}
