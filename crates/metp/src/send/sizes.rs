//! Whether the path still carries large datagrams.
//!
//! A path whose largest datagram shrinks drops the larger ones without a sign, and the layer below takes seconds to tell it
//! from ordinary loss. Here, many large TPDUs in a row that are lost, without one that arrives, make the sender cut all
//! that it sends to a size that every path carries. After a while it tries large ones again. A mistake, such as an
//! interruption of the path, costs some headers only.

use qfabric_types::{Instant, Nanos};

use super::block_capacity;

/// With QUIC's headers it fits into the 1,200 bytes that every path carries (RFC 9000, section 14).
const SAFE_TPDU: u16 = 1_136;
/// Bursts of random loss are shorter.
const SUSPECT: u32 = 24;
/// The layer below probes its path once a minute.
const PAUSE: Nanos = Nanos::from_millis(30_000);

#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// Large TPDUs that were lost since one arrived.
    large_lost: u32,
    small_until: Option<Instant>,
}

impl Sizes {
    /// Blocks of a TPDU that every path carries.
    pub(super) fn safe_blocks(&self) -> u32 {
        block_capacity(SAFE_TPDU)
    }

    /// Large TPDUs were lost.
    pub(super) fn lost(&mut self, now: Instant, large: u32) {
        self.large_lost = self.large_lost.saturating_add(large);
        if self.large_lost >= SUSPECT && self.small_until.is_none() {
            self.small_until = Some(now + PAUSE);
        }
    }

    /// Data arrived, in a large TPDU or only in small ones.
    pub(super) fn arrived(&mut self, is_large: bool) {
        if is_large {
            self.large_lost = 0;
        }
    }

    /// The largest datagram at this time, of those that carrier and peer take.
    pub(super) fn bounded(&self, limit: u16) -> u16 {
        if self.small_until.is_some() { limit.min(SAFE_TPDU) } else { limit }
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        if self.small_until.is_some_and(|until| until <= now) {
            *self = Sizes::default();
        }
    }
}
