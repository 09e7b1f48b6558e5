//! Rebuilds the root domain. The kernel then sums the reservations of the living threads again, which corrects
//! bandwidth with no owner and bandwidth that was subtracted twice. Takes 0.2 ms and disturbs no reservation.
//!
//! Never rebuilds while a departure is pending: its timer would subtract once more, and after a negative sum the kernel
//! refuses every reservation. The longest wait is the wait for a 0-lag time: the kernel's longest period (4.2 s) plus
//! some overrun.
//!
//! | way | available on | remains after a crash in between |
//! |---|---|---|
//! | reading `sched_rt_period_us` | Linux since 6.17, some stable releases | nothing |
//! | a child cpuset of all CPUs | cgroup v1 | an empty cpuset, without effect |
//! | a partition of the last CPU | cgroup v2, while no thread is reserved | that partition |
//!
//! The ways are tried in this order. The next rebuild, the next start of a service, or `qfabric restore` removes the
//! remains of a crash ([`repair_after_crash`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Books, BooksError, read};
use crate::cgroup::Mounts;
use crate::cpus::CpuList;
use crate::files;
use crate::threads;
use qfabric_types::ThreadId;
use qfabric_types::api::Problem;

/// Time for which the sum must not change before a rebuild. Longer than any period, so no departure is pending.
const STILL: Duration = Duration::from_millis(5_000);
/// Longest wait for such a time; afterwards the rebuild fails.
const LONGEST: Duration = Duration::from_millis(20_000);

/// Since Linux 6.17, reading this file makes the kernel rebuild all root domains (`limit.rs`).
pub(crate) const REBUILDS_WHEN_READ: &str = "/proc/sys/kernel/sched_rt_period_us";
/// Prefix of the folders that this module creates in the cpuset hierarchy: `qfabric-rebuild-PID`.
const FOLDER: &str = "qfabric-rebuild-";

/// Why the root domain was not rebuilt. The host is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum RebuildError {
    #[error(transparent)]
    Books(#[from] BooksError),
    /// Threads leave SCHED_DEADLINE without a pause.
    Pending,
    NoCpusets,
    /// The administrator has partitioned the CPUs.
    Partitioned {
        path: PathBuf,
        found: String,
    },
    /// A partition would take a CPU from reserved threads.
    Reserved {
        threads: usize,
    },
    OneCpu,
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl RebuildError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        let restart = "restart the machine instead";
        let (message, next_step) = match self {
            RebuildError::Books(error) => return error.problem(),
            RebuildError::Pending => (
                format!("threads left SCHED_DEADLINE during each of the last {} s", LONGEST.as_secs()),
                "stop such programs and try again",
            ),
            RebuildError::NoCpusets => {
                ("no cpuset hierarchy is mounted".to_owned(), "mount cgroup2 and try again, or restart the machine")
            }
            RebuildError::Partitioned { path, found } => {
                (format!("{} is {found:?}, not 1: this host is partitioned", path.display()), restart)
            }
            RebuildError::Reserved { threads } => (
                format!("{threads} threads are reserved, and with cgroup v2 a partition would take a CPU from them"),
                "stop them first",
            ),
            RebuildError::OneCpu => {
                ("this host has only one CPU, so no cpuset partition is possible".to_owned(), restart)
            }
            RebuildError::Io { path, source } => (format!("{}: {source}", path.display()), "run the command as root"),
        };
        Problem::new("rebuild", message, next_step)
    }
}

/// Rebuilds the root domain if some bandwidth has no owner. Returns the books before and after. Waits until no
/// departure is pending: usually 5 s, at most 20 s.
pub fn rebuild(debugfs: &Path) -> Result<(Books, Books), RebuildError> {
    let before = still(debugfs)?;
    if before.without_owner() == 0 {
        return Ok((before, before));
    }
    repair_after_crash();
    let _ = files::text(REBUILDS_WHEN_READ);
    let after = read(debugfs)?;
    if after.without_owner() == 0 {
        return Ok((before, after));
    }
    let mounts = Mounts::here();
    match (mounts.v1_of("cpuset"), &mounts.v2) {
        (Some(root), _) => by_child(root)?,
        (None, Some(root)) => by_partition(root, &before)?,
        (None, None) => return Err(RebuildError::NoCpusets),
    }
    Ok((before, read(debugfs)?))
}

/// Removes folders that a killed rebuild left in the cpuset hierarchies. Returns their number.
pub fn repair_after_crash() -> usize {
    let mounts = Mounts::here();
    mounts.v1_of("cpuset").into_iter().chain(mounts.v2.as_deref()).map(remove_left_over).sum()
}

fn remove_left_over(root: &Path) -> usize {
    let is_over = |name: &str| {
        let pid = name.strip_prefix(FOLDER).and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| threads::start_time(ThreadId(pid)).is_none())
    };
    let names =
        files::folder(root).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Removing a partition gives its CPU back.
    names.filter(|name| is_over(name) && fs::remove_dir(root.join(name)).is_ok()).count()
}

/// Returns the books after the bandwidth with no owner has not changed for [`STILL`].
fn still(debugfs: &Path) -> Result<Books, RebuildError> {
    let (begin, mut since, mut seen) = (Instant::now(), Instant::now(), read(debugfs)?);
    while seen.without_owner() != 0 && since.elapsed() < STILL {
        if begin.elapsed() > LONGEST {
            return Err(RebuildError::Pending);
        }
        std::thread::sleep(Duration::from_millis(100));
        let now = read(debugfs)?;
        if now.without_owner() != seen.without_owner() {
            since = Instant::now();
        }
        seen = now;
    }
    Ok(seen)
}

/// Cgroup v1: creates and removes a cpuset of all CPUs in the top cpuset. With load balancing in the top cpuset, all
/// CPUs are one domain with or without the child. Assigning CPUs to the child makes the kernel rebuild that domain.
fn by_child(root: &Path) -> Result<(), RebuildError> {
    let path = root.join("cpuset.sched_load_balance");
    let found = files::text(&path).map_err(failed_at(&path))?.trim().to_owned();
    if found != "1" {
        return Err(RebuildError::Partitioned { path, found });
    }
    let all = root.join("cpuset.cpus");
    let cpus = files::text(&all).map_err(failed_at(&all))?;
    let group = folder(root);
    fs::create_dir(&group).map_err(failed_at(&group))?;
    let inside = group.join("cpuset.cpus");
    let given = files::write(&inside, cpus).map_err(failed_at(&inside));
    given.and(fs::remove_dir(&group).map_err(failed_at(&group)))
}

fn folder(root: &Path) -> PathBuf {
    root.join(format!("{FOLDER}{}", std::process::id()))
}

fn failed_at(path: &Path) -> impl FnOnce(std::io::Error) -> RebuildError {
    let path = path.to_owned();
    move |source| RebuildError::Io { path, source }
}

/// Cgroup v2: makes a partition of the last CPU and removes it. Threads that may run only on that CPU are moved for a
/// moment and then moved back.
fn by_partition(root: &Path, books: &Books) -> Result<(), RebuildError> {
    let online = CpuList::online();
    let Some(last) = online.iter().last().filter(|_| online.len() > 1) else { return Err(RebuildError::OneCpu) };
    if books.threads > 0 {
        return Err(RebuildError::Reserved { threads: books.threads });
    }
    let group = folder(root);
    let write = |path: PathBuf, text: &str| files::write(&path, text).map_err(failed_at(&path));
    write(root.join("cgroup.subtree_control"), "+cpuset")?;
    fs::create_dir(&group).map_err(failed_at(&group))?;
    let kind = || group.join("cpuset.cpus.partition");
    let made = write(group.join("cpuset.cpus"), &last.to_string()).and_then(|()| write(kind(), "root"));
    let ended = write(kind(), "member");
    let removed = fs::remove_dir(&group).map_err(failed_at(&group));
    made.and(ended).and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_partitioned_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cpuset.sched_load_balance");
        fs::write(&file, "0\n").unwrap();
        assert!(by_child(root.path()).unwrap_err().to_string().contains("partitioned"));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "no folder was created");
    }

    #[test]
    fn load_balancing_is_never_switched_off() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cpuset.sched_load_balance");
        fs::write(&file, "1\n").unwrap();
        fs::write(root.path().join("cpuset.cpus"), "0-1\n").unwrap();
        // In an ordinary folder the file of the child stays, so the child's folder cannot be removed.
        by_child(root.path()).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(folder(root.path()).join("cpuset.cpus")).unwrap(), "0-1\n");
    }

    #[test]
    fn folders_of_a_killed_rebuild_are_removed_and_folders_of_other_programs_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let others = ["qfabric-rebuild-x", "rebuild-4000000", "qfabric"];
        let running = format!("{FOLDER}{}", std::process::id());
        for name in others.iter().copied().chain([running.as_str(), "qfabric-rebuild-4000000"]) {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        assert_eq!(remove_left_over(root.path()), 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), others.len() + 1);
        assert_eq!(remove_left_over(&root.path().join("none")), 0);
    }

    #[test]
    fn no_cpu_is_taken_from_reserved_threads() {
        let root = tempfile::tempdir().unwrap();
        let refused = by_partition(root.path(), &Books { threads: 3, ..Books::default() }).unwrap_err();
        assert!(matches!(refused, RebuildError::Reserved { threads: 3 } | RebuildError::OneCpu), "{refused}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
