//! Rebuilding the root domain: the kernel adds up the reservations of living threads again, and what was booked for
//! nobody, or subtracted twice, is right again. Takes 0.2 ms and disturbs no reservation.
//!
//! Never while a departure is pending: its timer would subtract once more, and a negative sum refuses everybody. The
//! longest wait is that for a 0-lag time: the longest period the kernel takes (4.2 s) and some overrun.
//!
//! | way | where | what a crash in between leaves |
//! |---|---|---|
//! | reading `sched_rt_period_us` | Linux since 6.17, some stable releases | nothing |
//! | a child cpuset of all CPUs | cgroup v1 | an empty cpuset, without effect |
//! | a partition of the last CPU | cgroup v2, while nobody is reserved | that partition |
//!
//! They are tried in this order. What a crash left, the next rebuild, start of a service or `qfabric restore` removes
//! ([`repair_after_crash`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Books, BooksError, read};
use crate::cgroup::Mounts;
use crate::cpus::CpuList;
use crate::files;
use crate::threads;
use qfabric_types::ThreadId;

/// The sum has to hold still for this long: longer than any period, so no departure is pending.
const STILL: Duration = Duration::from_millis(5_000);
/// A host on which it does not within this time is not rebuilt.
const LONGEST: Duration = Duration::from_millis(20_000);

/// Since Linux 6.17 the kernel rebuilds all root domains when this is read (`limit.rs`).
pub(crate) const REBUILDS_WHEN_READ: &str = "/proc/sys/kernel/sched_rt_period_us";
/// Folders of this module in the hierarchy of cpusets: `qfabric-rebuild-PID`.
const FOLDER: &str = "qfabric-rebuild-";

/// Why the root domain was not rebuilt. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The books cannot be read.
    #[error(transparent)]
    Books(#[from] BooksError),
    /// Threads keep leaving.
    #[error("threads left SCHED_DEADLINE during each of the last {} s; stop such programs and try again", LONGEST.as_secs())]
    Pending,
    /// No hierarchy of control groups has cpusets here.
    #[error("no cpuset hierarchy is mounted here; restart the machine, or mount cgroup2 and try again")]
    NoCpusets,
    /// The administrator has made partitions.
    #[error("{} is {found:?}, not 1: this host is partitioned; restart the machine instead", path.display())]
    Partitioned {
        /// Which file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// A partition would take a CPU from reserved threads.
    #[error(
        "{threads} threads are reserved, and with cgroup v2 a partition would take a CPU from them; stop them first"
    )]
    Reserved {
        /// How many.
        threads: usize,
    },
    /// One CPU cannot be divided.
    #[error("this host has one CPU, so no cpuset partition can be made; restart the machine instead")]
    OneCpu,
    /// The kernel refused.
    #[error("{}: {source}; run as root", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Rebuilds the root domain if something is booked for nobody, and answers the books before and after. Waits until
/// no departure is pending: 5 s as a rule, 20 s at most.
pub fn rebuild(debugfs: &Path) -> Result<(Books, Books), RebuildError> {
    let before = still(debugfs)?;
    if before.of_nobody() == 0 {
        return Ok((before, before));
    }
    repair_after_crash();
    let _ = files::text(REBUILDS_WHEN_READ);
    let after = read(debugfs)?;
    if after.of_nobody() == 0 {
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

/// Removes what a rebuild that was killed left in the hierarchies of cpusets; answers how many folders that were.
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

/// The books when what is booked for nobody has not changed for [`STILL`].
fn still(debugfs: &Path) -> Result<Books, RebuildError> {
    let (begin, mut since, mut seen) = (Instant::now(), Instant::now(), read(debugfs)?);
    while seen.of_nobody() != 0 && since.elapsed() < STILL {
        if begin.elapsed() > LONGEST {
            return Err(RebuildError::Pending);
        }
        std::thread::sleep(Duration::from_millis(100));
        let now = read(debugfs)?;
        if now.of_nobody() != seen.of_nobody() {
            since = Instant::now();
        }
        seen = now;
    }
    Ok(seen)
}

/// Cgroup v1: a cpuset of all CPUs inside the top one, for a moment. Where load balancing is on in the top cpuset, all
/// CPUs are one domain with and without it, but giving it CPUs makes the kernel rebuild that domain.
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

/// Cgroup v2: a partition of the last CPU, and none again. Threads that may run on that CPU alone are moved for the
/// moment, and get it back.
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
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing was made");
    }

    #[test]
    fn load_balancing_is_never_switched_off() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cpuset.sched_load_balance");
        fs::write(&file, "1\n").unwrap();
        fs::write(root.path().join("cpuset.cpus"), "0-1\n").unwrap();
        // In a plain folder the file of the child stays, so that its folder cannot be removed.
        by_child(root.path()).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(folder(root.path()).join("cpuset.cpus")).unwrap(), "0-1\n");
    }

    #[test]
    fn what_a_killed_rebuild_left_is_removed_and_what_others_made_is_not() {
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
    fn reserved_threads_are_never_robbed_of_a_cpu() {
        let root = tempfile::tempdir().unwrap();
        let refused = by_partition(root.path(), &Books { threads: 3, ..Books::default() }).unwrap_err();
        assert!(matches!(refused, RebuildError::Reserved { threads: 3 } | RebuildError::OneCpu), "{refused}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
