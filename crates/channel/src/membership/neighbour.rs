//! The state that is kept for each other host: requests for its record, and the parts that have arrived.

use qfabric_types::{Instant, Nanos};

use crate::change::Change;

/// A host sends its record when it appears; it is asked only after this time.
pub(super) const PATIENCE: Nanos = Nanos::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Neighbour {
    /// The parts of its full record that have arrived.
    pub staging: Option<Staging>,
    /// The time to ask for its full record.
    pub ask_due: Option<Instant>,
    /// The last time at which this host sent its own record to it.
    pub record_sent: Option<Instant>,
    /// It speaks another version of the protocol, and a notice has reported this.
    pub other_version: bool,
}

#[derive(Debug)]
pub(super) struct Staging {
    pub version: u64,
    pub parts: u16,
    pub changes: Vec<Change>,
}
