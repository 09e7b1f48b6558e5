//! Thresholds that the kernel itself watches: a PSI trigger becomes ready as soon as threads have waited for a given
//! time within a window, also between two looks.
//!
//! Of the standard attributes, `cpu.pressure`, `memory.pressure`, `memory.stalled` and `disk.pressure` can have a
//! trigger. The thresholds of all others are checked at looks.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use qfabric_types::Nanos;
use qfabric_types::monitor::{AttributeId, Threshold};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Shortest window that the kernel accepts.
pub const SHORTEST_WINDOW: Nanos = Nanos::from_millis(500);
/// Longest window that the kernel accepts.
pub const LONGEST_WINDOW: Nanos = Nanos::from_millis(10_000);
/// Without CAP_SYS_RESOURCE a window must be a whole multiple of this.
const UNPRIVILEGED_WINDOW: Nanos = Nanos::from_millis(2_000);

/// A threshold that the kernel watches. Poll its descriptor for POLLPRI; it becomes ready at most once per window.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    attribute: AttributeId,
    level: i64,
}

impl Trigger {
    /// Sets a trigger for a threshold. `window` is the time over which the mean is taken; it is limited to the kernel's
    /// range. Returns `None` if the kernel has no trigger for this attribute or kind of threshold.
    pub fn new(attribute: &str, threshold: Threshold, window: Nanos) -> Option<io::Result<Trigger>> {
        Trigger::new_at(Path::new("/proc/pressure"), attribute, threshold, window)
    }

    fn new_at(folder: &Path, attribute: &str, threshold: Threshold, window: Nanos) -> Option<io::Result<Trigger>> {
        let (file, line) = match attribute {
            "cpu.pressure" => ("cpu", "some"),
            "memory.pressure" => ("memory", "some"),
            "memory.stalled" => ("memory", "full"),
            "disk.pressure" => ("io", "some"),
            _ => return None,
        };
        let Threshold::Above { limit, .. } = threshold else { return None };
        let set = |window| -> io::Result<Trigger> {
            let mut file = File::options().read(true).write(true).open(folder.join(file))?;
            file.write_all(request(line, limit, window).as_bytes())?;
            Ok(Trigger { file, attribute: AttributeId::of(attribute), level: limit })
        };
        let window = window.max(SHORTEST_WINDOW).min(LONGEST_WINDOW);
        Some(set(window).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::EPERM) => set(UNPRIVILEGED_WINDOW),
            _ => Err(error),
        }))
    }

    pub fn attribute(&self) -> AttributeId {
        self.attribute
    }

    pub fn level(&self) -> i64 {
        self.level
    }

    /// True if the threshold was crossed since the last call. Waits for a crossing, for at most `wait`.
    pub fn crossed(&self, wait: Nanos) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let (tv_sec, tv_nsec) = ((wait.get() / 1_000_000_000) as i64, (wait.get() % 1_000_000_000) as i64);
        poll(&mut fds, Some(&Timespec { tv_sec, tv_nsec }))?;
        let events = fds[0].revents();
        match events.contains(PollFlags::ERR) {
            true => Err(io::Error::other("the kernel has removed the trigger; set a new one")),
            false => Ok(events.contains(PollFlags::PRI)),
        }
    }
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// `some 150000 1000000`: waits of 150 ms within 1 s. `limit` is in millionths of the time; the kernel's value is
/// limited to the range from a thousandth of the window to less than the whole window.
fn request(line: &str, limit: i64, window: Nanos) -> String {
    let window_us = window.get() / 1_000;
    let part = u64::try_from(limit).unwrap_or(0).min(1_000_000);
    let stall_us = (window_us * part / 1_000_000).clamp(window_us / 1_000, window_us - 1);
    format!("{line} {stall_us} {window_us}\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_becomes_a_waiting_time_within_a_window() {
        assert_eq!(request("some", 150_000, Nanos::from_millis(1_000)), "some 150000 1000000\0");
        assert_eq!(request("full", -5, Nanos::from_millis(500)), "full 500 500000\0");
        assert_eq!(request("some", i64::MAX, Nanos::from_millis(500)), "some 499999 500000\0");
    }

    #[test]
    fn thresholds_that_the_kernel_cannot_watch_have_no_trigger() {
        let window = Nanos::from_millis(500);
        assert!(Trigger::new("cpu.run_queue", Threshold::above(4), window).is_none());
        assert!(Trigger::new("cpu.pressure", Threshold::below(4), window).is_none());
        let nowhere = Trigger::new_at(Path::new("/nowhere"), "cpu.pressure", Threshold::above(4), window);
        assert!(nowhere.unwrap().is_err());
    }
}
