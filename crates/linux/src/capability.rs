//! Which capabilities this process holds.

use rustix::thread::{CapabilitySet, capabilities};

/// Whether the calling thread effectively holds all of `wanted`.
pub fn held(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}
