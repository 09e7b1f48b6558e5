//! The two clocks of a job: when it is (CLOCK_MONOTONIC), and what it used (the thread's CPU clock).

use qfabric_types::{Instant, Nanos};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time of this thread.
pub fn cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// The moment.
pub fn now() -> Instant {
    Instant::new(nanos(clock_gettime(ClockId::Monotonic)).get())
}

/// Sleeps until `moment`; at once where it has passed.
pub fn sleep_until(moment: Instant) {
    let (tv_sec, tv_nsec) = ((moment.get() / 1_000_000_000) as i64, (moment.get() % 1_000_000_000) as _);
    // Interrupted by a signal: sleep on, the moment is absolute.
    while clock_nanosleep_absolute(ClockId::Monotonic, &Timespec { tv_sec, tv_nsec }).is_err() {}
}

fn nanos(t: Timespec) -> Nanos {
    Nanos::new(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
