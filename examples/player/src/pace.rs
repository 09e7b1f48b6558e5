//! The two clocks of a job: CLOCK_MONOTONIC for its times, and the CPU clock of the thread for its cost.

use qfabric_types::{Instant, Nanos};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

pub(crate) fn cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Reads CLOCK_MONOTONIC.
pub(crate) fn now() -> Instant {
    Instant::new(nanos(clock_gettime(ClockId::Monotonic)).get())
}

/// Sleeps until `moment`. Returns immediately if it has passed.
pub(crate) fn sleep_until(moment: Instant) {
    let (tv_sec, tv_nsec) = ((moment.get() / 1_000_000_000) as i64, (moment.get() % 1_000_000_000) as _);
    // A signal interrupts the sleep; because the time is absolute, the thread just sleeps again.
    while clock_nanosleep_absolute(ClockId::Monotonic, &Timespec { tv_sec, tv_nsec }).is_err() {}
}

fn nanos(t: Timespec) -> Nanos {
    Nanos::new(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
