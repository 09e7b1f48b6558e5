//! Reads the clocks of this host. Times in nanoseconds.

use std::io;

use qfabric_types::{Instant, Nanos};
use rustix::time::{ClockId, clock_gettime};

/// Time of CLOCK_MONOTONIC, the clock of every [`Instant`] in all rooms.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::new(in_ns(time.tv_sec, time.tv_nsec))
}

/// CLOCK_MONOTONIC and CLOCK_REALTIME at about the same moment, in nanoseconds.
pub fn readings() -> [u64; 2] {
    [ClockId::Monotonic, ClockId::Realtime].map(|clock| {
        let time = clock_gettime(clock);
        in_ns(time.tv_sec, time.tv_nsec)
    })
}

/// Time of CLOCK_MONOTONIC_RAW, which no time server slews: the best approximation of the run queues' clock.
pub(crate) fn raw() -> Instant {
    let time = clock_gettime(ClockId::MonotonicRaw);
    Instant::new(in_ns(time.tv_sec, time.tv_nsec))
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos::new(in_ns(time.tv_sec, time.tv_nsec))
}

/// CPU time that all threads of a process have used, exact at this moment. The kernel offers this clock for every
/// process, but the clock of a single thread only within its own process. `ESRCH` if the process has ended.
pub fn process_cpu(pid: i32) -> io::Result<Nanos> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    if !(1..=MAX_PID).contains(&pid) {
        return Err(gone());
    }
    let time = crate::sys::read_clock(process_clock(pid)).map_err(|_| gone())?;
    Ok(Nanos::new(in_ns(time.tv_sec, time.tv_nsec)))
}

/// `PID_MAX_LIMIT`: with a larger pid the clock id would name another clock.
const MAX_PID: i32 = 1 << 22;

/// Id of a process's CPU clock: `(~pid << 3) | CPUCLOCK_SCHED` (include/linux/posix-timers.h).
fn process_clock(pid: i32) -> libc::clockid_t {
    (!pid << 3) | 2
}

fn in_ns(seconds: i64, nanoseconds: i64) -> u64 {
    seconds as u64 * 1_000_000_000 + nanoseconds as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_forward() {
        let (then, cpu) = (now(), thread_cpu());
        std::hint::black_box((0..100_000u64).fold(0, |a, b| a ^ (b * b)));
        assert!(now() > then && thread_cpu() > cpu);
    }

    #[test]
    fn the_cpu_time_of_a_process_covers_that_of_its_threads() {
        let mine = thread_cpu();
        assert!(process_cpu(std::process::id() as i32).unwrap() >= mine);
    }

    #[test]
    fn an_ended_process_has_no_clock() {
        for pid in [0, -1, i32::MAX] {
            assert_eq!(process_cpu(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH), "{pid}");
        }
    }
}
