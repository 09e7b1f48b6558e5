//! A process that only uses CPU time, and a function that makes a child process end together with its parent.

use anyhow::{Context, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Requests that the kernel kills this process when its parent, the process `parent`, ends for any reason.
pub(crate) fn die_with_parent(parent: i32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    // If the parent ended before the request, the kernel sends no signal.
    let parent_is_alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    anyhow::ensure!(parent_is_alive, "process {parent}, the parent, ended while this process started");
    Ok(())
}

/// Uses CPU time without end.
pub(crate) fn spin() -> ! {
    let mut x = 1_u64;
    loop {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
