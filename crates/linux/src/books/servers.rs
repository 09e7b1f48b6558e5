//! Computes the bandwidth that the kernel books for its own servers. `fair_server` (since Linux 6.12) guarantees time
//! to fair threads beside real-time threads; `ext_server` (since 7.0) does the same for threads of sched_ext. Each is a
//! reservation per CPU: 50 ms in 1 s, unless changed through debugfs. While sched_ext schedules all threads, the fair
//! server is not booked.

use std::path::Path;

use crate::capacity::units_of;
use crate::cpus::CpuList;
use crate::files;
use crate::release;

/// Default budget and period of each server, in nanoseconds.
const DEFAULT: (u64, u64) = (50_000_000, 1_000_000_000);

/// The servers that are booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attached {
    fair: bool,
    ext: bool,
}

/// Units booked for the servers on `cpus`.
pub(super) fn booked(debugfs: &Path, cpus: &CpuList) -> u64 {
    let Attached { fair, ext } = attached(release::version(), &scx("state"), &scx("switch_all"));
    let of = |attached: bool, name: &str| {
        if attached { cpus.iter().map(|cpu| of_cpu(debugfs, name, cpu)).sum() } else { 0u64 }
    };
    of(fair, "fair_server") + of(ext, "ext_server")
}

fn attached(release: (u32, u32), state: &str, switch_all: &str) -> Attached {
    let enabled = state == "enabled";
    let ext = release >= (7, 0) && enabled;
    Attached { fair: release >= (6, 12) && !(ext && switch_all == "1"), ext }
}

fn of_cpu(debugfs: &Path, server: &str, cpu: u32) -> u64 {
    let folder = debugfs.join(format!("sched/{server}/cpu{cpu}"));
    let number = |name: &str| files::number(folder.join(name));
    let (budget, period) = number("runtime").zip(number("period")).unwrap_or(DEFAULT);
    units_of(budget, period)
}

fn scx(file: &str) -> String {
    files::trimmed(format!("/sys/kernel/sched_ext/{file}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_servers_that_are_booked_follow_release_and_sched_ext() {
        let of = |release, state, all| {
            let Attached { fair, ext } = attached(release, state, all);
            (fair, ext)
        };
        assert_eq!(of((6, 11), "", ""), (false, false));
        assert_eq!(of((6, 18), "enabled", "1"), (true, false));
        assert_eq!(of((7, 3), "disabled", "0"), (true, false));
        assert_eq!(of((7, 3), "enabled", "1"), (false, true));
        assert_eq!(of((7, 3), "enabled", "0"), (true, true));
    }

    #[test]
    fn the_parameters_of_a_server_are_read_from_debugfs() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sched/fair_server/cpu0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("runtime"), "100000000\n").unwrap();
        fs::write(folder.join("period"), "1000000000\n").unwrap();
        assert_eq!((of_cpu(root.path(), "fair_server", 0), of_cpu(root.path(), "fair_server", 1)), (104_857, 52_428));
    }
}
