//! The state that is kept for each other host: requests for its record, the parts that have arrived, and the *meeting*.
//!
//! A meeting begins when a host detects another one, and ends when it takes that host for gone. What a host knows of
//! another one, with accounts and filters, belongs to one meeting. The other host may not notice that a meeting ended, and
//! the frame that says so may be lost. So each host numbers its meetings. It states the number with its record, and again
//! until the other host has confirmed it:
//!
//! ```text
//! detects the other ──> tells its number ──┄┄──> a larger number than before: everything of the other host is
//!       ^                     │                  forgotten, and a new number is told in turn
//!       └── 500 ms without <──┴──> confirmed: from now on the other host's record is believed
//! ```

use qfabric_types::{Instant, Nanos};

use crate::change::Change;

/// A host sends its record when it appears; it is asked only after this time.
pub(super) const PATIENCE: Nanos = Nanos::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Neighbour {
    /// Of the first frame that arrived.
    pub incarnation: Option<u64>,
    /// This host's number of the meeting: larger than the numbers of all its earlier meetings.
    pub meeting: u64,
    /// The other host has confirmed that number.
    pub is_confirmed: bool,
    /// The number is new because the other host has lost this host, and is not confirmed yet.
    pub is_renewed: bool,
    /// The other host's number; 0: it has not told one.
    pub theirs: u64,
    /// The time to tell the number again.
    pub tell_due: Option<Instant>,
    /// Its full record, until both numbers are known on both sides.
    pub record: Option<Staging>,
    /// Changes of its record arrived before that.
    pub has_missed: bool,
    /// The parts of its full record that have arrived.
    pub staging: Option<Staging>,
    /// The time to ask for its full record.
    pub ask_due: Option<Instant>,
    /// The last time at which this host sent its own record to it.
    pub record_sent: Option<Instant>,
    /// It speaks another version of the protocol, and a notice has reported this.
    pub other_version: bool,
}

impl Neighbour {
    /// Nothing is known of the host yet; it has to be told.
    pub(super) fn begin(&mut self, meeting: u64, now: Instant) {
        let Neighbour { incarnation, record_sent, other_version, .. } = *self;
        let (ask_due, tell_due) = (Some(now + PATIENCE), Some(now));
        *self =
            Neighbour { incarnation, meeting, ask_due, tell_due, record_sent, other_version, ..Neighbour::default() };
    }

    /// Whether each host has the other's number: neither relies on anything that the other one has forgotten.
    pub(super) fn has_met(&self) -> bool {
        self.is_confirmed && self.theirs != 0
    }

    pub(super) fn hears(&mut self, number: u64) {
        if number == self.meeting {
            (self.is_confirmed, self.is_renewed, self.tell_due) = (true, false, None);
        }
    }
}

#[derive(Debug)]
pub(super) struct Staging {
    pub version: u64,
    pub parts: u16,
    pub changes: Vec<Change>,
}
