//! The three clocks of a session. This file makes system calls, unlike the crates of pure calculation.

use std::io;

use qfabric_types::{Instant, Nanos};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC`: the clock of releases, deadlines and finish times. No system call (vDSO).
pub fn now() -> Instant {
    Instant::new(nanoseconds(clock_gettime(ClockId::Monotonic)))
}

/// CPU time that the calling thread has used since its start. One system call.
pub fn thread_cpu() -> Nanos {
    Nanos::new(nanoseconds(clock_gettime(ClockId::ThreadCPUTime)))
}

/// CPU time that all threads of this process have used since its start. One system call.
pub fn process_cpu() -> Nanos {
    Nanos::new(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}

/// Sleeps until `moment`; returns at once if `moment` has passed. Fails with `Interrupted` if a signal handler ran;
/// call again with the same `moment`, which is absolute.
pub fn sleep_until(moment: Instant) -> io::Result<()> {
    let request =
        Timespec { tv_sec: (moment.get() / 1_000_000_000) as i64, tv_nsec: (moment.get() % 1_000_000_000) as _ };
    Ok(clock_nanosleep_absolute(ClockId::Monotonic, &request)?)
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_takes_time_and_no_cpu() {
        let (started, cpu) = (now(), thread_cpu());
        sleep_until(started + Nanos::from_millis(30)).unwrap();
        assert!(now().since(started) >= Nanos::from_millis(30));
        assert!(thread_cpu() - cpu < Nanos::from_millis(15));
    }

    #[test]
    fn a_moment_that_has_passed_is_not_waited_for() {
        sleep_until(Instant::ZERO).unwrap();
    }
}
