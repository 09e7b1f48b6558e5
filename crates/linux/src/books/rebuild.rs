//! Rebuilding the root domain: the kernel adds up the reservations of living threads again, and what was booked for
//! nobody is free. Takes 0.2 ms and disturbs no reservation.
//!
//! Never while a departure is pending: its timer would subtract once more, and a negative sum refuses everybody. The
//! longest wait is that for a 0-lag time: the longest period the kernel takes (4.2 s) and some overrun.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Books, BooksError, read};
use crate::cgroup::Mounts;
use crate::cpus::CpuList;

/// The sum has to hold still for this long: longer than any period, so no departure is pending.
const STILL: Duration = Duration::from_millis(5_000);
/// A host on which it does not within this time is not rebuilt.
const LONGEST: Duration = Duration::from_millis(20_000);

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
    let mounts = Mounts::here();
    match (mounts.v1_of("cpuset"), &mounts.v2) {
        (Some(root), _) => by_load_balance(root)?,
        (None, Some(root)) => by_partition(root, &before)?,
        (None, None) => return Err(RebuildError::NoCpusets),
    }
    Ok((before, read(debugfs)?))
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

/// Cgroup v1: load balancing of the top cpuset off and on again. `on` is written whatever happens.
fn by_load_balance(root: &Path) -> Result<(), RebuildError> {
    let path = root.join("cpuset.sched_load_balance");
    let failed = |source| RebuildError::Io { path: path.clone(), source };
    let found = fs::read_to_string(&path).map_err(failed)?.trim().to_owned();
    if found != "1" {
        return Err(RebuildError::Partitioned { path, found });
    }
    let off = fs::write(&path, "0");
    fs::write(&path, "1").map_err(failed)?;
    off.map_err(failed)
}

/// Cgroup v2: a partition of the last CPU, and none again. Threads that may run on that CPU alone are moved for the
/// moment, and get it back.
fn by_partition(root: &Path, books: &Books) -> Result<(), RebuildError> {
    let online = CpuList::online();
    let Some(last) = online.iter().last().filter(|_| online.len() > 1) else { return Err(RebuildError::OneCpu) };
    if books.threads > 0 {
        return Err(RebuildError::Reserved { threads: books.threads });
    }
    let group = root.join(format!("qfabric-rebuild-{}", std::process::id()));
    let write = |path: PathBuf, text: &str| fs::write(&path, text).map_err(|source| RebuildError::Io { path, source });
    write(root.join("cgroup.subtree_control"), "+cpuset")?;
    fs::create_dir(&group).map_err(|source| RebuildError::Io { path: group.clone(), source })?;
    let kind = || group.join("cpuset.cpus.partition");
    let made = write(group.join("cpuset.cpus"), &last.to_string()).and_then(|()| write(kind(), "root"));
    let ended = write(kind(), "member");
    let removed = fs::remove_dir(&group).map_err(|source| RebuildError::Io { path: group.clone(), source });
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
        assert!(by_load_balance(root.path()).unwrap_err().to_string().contains("partitioned"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n");
        fs::write(&file, "1\n").unwrap();
        by_load_balance(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    }

    #[test]
    fn reserved_threads_are_never_robbed_of_a_cpu() {
        let root = tempfile::tempdir().unwrap();
        let refused = by_partition(root.path(), &Books { threads: 3, ..Books::default() }).unwrap_err();
        assert!(matches!(refused, RebuildError::Reserved { threads: 3 } | RebuildError::OneCpu), "{refused}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
