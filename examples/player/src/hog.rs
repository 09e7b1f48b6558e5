//! A process that only burns CPU time, and the tie that ends a child with its parent.

use anyhow::{Context, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Asks the kernel to kill this process when its parent, the process `parent`, ends, however it ends.
pub fn die_with_parent(parent: i32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    // The parent may have ended before the request: then nobody is left to send the signal.
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    anyhow::ensure!(is_there, "the parent ended while this process started");
    Ok(())
}

/// Uses the processor for ever.
pub fn spin() -> ! {
    let mut x = 1_u64;
    loop {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
