//! Changes that have not been sent yet, and the times of digests.

use qfabric_types::{Instant, Nanos};

use crate::change::Change;
use crate::wire;

/// Digests follow a change after 1 s, 2 s, … up to this interval: a lost change is found soon, and an unchanged host
/// sends few frames.
const RAREST: Nanos = Nanos::from_millis(32_000);
const FIRST: Nanos = Nanos::from_millis(1_000);

/// Bytes of changes in one frame.
const PORTION: usize = 60 << 10;

/// Encoded changes, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The end of each change.
    ends: Vec<usize>,
}

impl Batch {
    pub(super) fn add(&mut self, change: &Change) {
        wire::encode_change(change, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Number of changes.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Slices that fit in a frame, with the number of changes in each.
    pub(super) fn portions(&self) -> Vec<(&[u8], u16)> {
        let (mut portions, mut from, mut count) = (Vec::new(), 0, 0);
        for (at, end) in self.ends.iter().enumerate() {
            count += 1;
            let next = self.ends.get(at + 1).copied();
            if next.is_none_or(|next| next - from > PORTION || count == u16::MAX) {
                portions.push((&self.bytes[from..*end], count));
                (from, count) = (*end, 0);
            }
        }
        portions
    }
}

#[derive(Debug)]
pub(super) struct Telling {
    /// Changes since the last flush.
    pub changes: Batch,
    pub digest_due: Instant,
    interval: Nanos,
}

impl Telling {
    pub(super) fn new(now: Instant) -> Telling {
        Telling { changes: Batch::default(), digest_due: now + FIRST, interval: FIRST }
    }

    /// All changes were sent: digests become frequent again.
    pub(super) fn flushed(&mut self, now: Instant) {
        self.changes.clear();
        self.interval = FIRST;
        self.digest_due = now + FIRST;
    }

    /// A digest was sent: the next interval is twice as long.
    pub(super) fn next(&mut self, now: Instant) {
        self.interval = self.interval.saturating_mul(2).min(RAREST);
        self.digest_due = now + self.interval;
    }
}
