//! Checks the capabilities of the calling thread.

use rustix::thread::{CapabilitySet, capabilities};

/// True if all of `wanted` are in the effective set of the calling thread.
pub fn held(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}
