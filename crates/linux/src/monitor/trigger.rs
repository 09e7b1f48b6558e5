//! Thresholds that the kernel watches by itself: a PSI trigger becomes ready as soon as threads have waited for so long
//! within a window, between polls as well.
//!
//! Of the standard attributes `cpu.pressure`, `memory.pressure`, `memory.stalled` and `disk.pressure` can have one; the
//! kernel has none for the others, whose thresholds are judged at looks.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use qfabric_types::Nanos;
use qfabric_types::monitor::{AttributeId, Threshold};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Windows the kernel takes.
pub const SHORTEST_WINDOW: Nanos = Nanos::from_millis(500);
/// Windows the kernel takes.
pub const LONGEST_WINDOW: Nanos = Nanos::from_millis(10_000);
/// Processes without CAP_SYS_RESOURCE may use whole multiples of this only.
const UNPRIVILEGED_WINDOW: Nanos = Nanos::from_millis(2_000);

/// A threshold under the kernel's watch. Poll its descriptor for POLLPRI; it is ready at most once per window.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    attribute: AttributeId,
    level: i64,
}

impl Trigger {
    /// Sets one for a threshold; `window`: over which the mean is judged, brought into the kernel's range. None: the
    /// kernel has no trigger for such an attribute or threshold.
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

    /// Of which attribute.
    pub fn attribute(&self) -> AttributeId {
        self.attribute
    }

    /// The threshold's limit.
    pub fn level(&self) -> i64 {
        self.level
    }

    /// Whether it has been crossed since this was asked last; waits until it is, at most so long.
    pub fn crossed(&self, wait: Nanos) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let (tv_sec, tv_nsec) = ((wait.get() / 1_000_000_000) as i64, (wait.get() % 1_000_000_000) as i64);
        poll(&mut fds, Some(&Timespec { tv_sec, tv_nsec }))?;
        let events = fds[0].revents();
        match events.contains(PollFlags::ERR) {
            true => Err(io::Error::other("the kernel has taken the trigger away; set a new one")),
            false => Ok(events.contains(PollFlags::PRI)),
        }
    }
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// `some 150000 1000000`: waits of 150 ms within 1 s. The limit is in millionths of the time; at least a thousandth and
/// less than all of the window is taken.
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
    fn a_limit_is_told_as_waits_within_a_window() {
        assert_eq!(request("some", 150_000, Nanos::from_millis(1_000)), "some 150000 1000000\0");
        assert_eq!(request("full", -5, Nanos::from_millis(500)), "full 500 500000\0");
        assert_eq!(request("some", i64::MAX, Nanos::from_millis(500)), "some 499999 500000\0");
    }

    #[test]
    fn what_the_kernel_cannot_watch_has_no_trigger() {
        let window = Nanos::from_millis(500);
        assert!(Trigger::new("cpu.run_queue", Threshold::above(4), window).is_none());
        assert!(Trigger::new("cpu.pressure", Threshold::below(4), window).is_none());
        let nowhere = Trigger::new_at(Path::new("/nowhere"), "cpu.pressure", Threshold::above(4), window);
        assert!(nowhere.unwrap().is_err());
    }
}
