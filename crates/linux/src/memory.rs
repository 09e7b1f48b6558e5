//! Memory that is never waited for.

use std::io;

/// Locks all memory of this process, also what comes later, as it is first touched (`MCL_ONFAULT`: what is
/// never used is not kept). Needs CAP_IPC_LOCK or a large enough RLIMIT_MEMLOCK.
pub fn lock_all() -> io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Touches the next 128 KiB of the calling thread's stack, so that it is there when it is needed.
#[inline(never)]
pub fn prefault_stack() {
    let mut pages = [0u8; 128 * 1024];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&mut pages);
}
