//! Utilization clamps of threads: the highest clock that a thread may ask the governor for (`sched_setattr`, uclamp).
//!
//! The kernel ignores the clamp of a thread under SCHED_DEADLINE: there the reservation itself is the request. So only
//! other threads are clamped.

use std::io;

use qfabric_types::ThreadId;

use crate::sched_attr::Policy;
use crate::sys::{RawSchedAttr, sched_getattr, sched_setattr};

/// The kernel's unit of utilization: the capacity of the fastest CPU.
pub const FULL: u32 = 1_024;
const KEEP_POLICY: u64 = 0x08;
const KEEP_PARAMS: u64 = 0x10;
const UTIL_CLAMP_MAX: u64 = 0x40;

/// The largest clamp of a thread, 0 to 1024. `ESRCH` if the thread has ended.
pub fn clamp_of(thread: ThreadId) -> io::Result<u32> {
    Ok(sched_getattr(thread.0, 0)?.util_max)
}

/// Sets the largest clamp. Returns false for a thread under SCHED_DEADLINE, which has none. `EOPNOTSUPP`: the kernel
/// has no clamps (CONFIG_UCLAMP_TASK).
pub fn set_clamp(thread: ThreadId, most: u32) -> io::Result<bool> {
    let now = sched_getattr(thread.0, 0)?;
    if Policy(now.policy) == Policy::DEADLINE {
        return Ok(false);
    }
    let flags = KEEP_POLICY | KEEP_PARAMS | UTIL_CLAMP_MAX;
    sched_setattr(thread.0, &RawSchedAttr { flags, util_max: most.min(FULL), ..now }).map(|()| true)
}

/// True if this kernel has utilization clamps: the calling thread can be given the clamp that it has.
pub fn has_clamps() -> bool {
    let own = ThreadId(0);
    clamp_of(own).is_ok_and(|most| set_clamp(own, if most == 0 { FULL } else { most }).is_ok_and(|clamped| clamped))
}
