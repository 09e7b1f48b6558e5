//! Protects the memory of unmodified programs with control groups of version 2.
//!
//! ```text
//! root                 cgroup.subtree_control: +memory
//!  └─ qfabric-PID      memory.min = Σ of all promises; cgroup.subtree_control: +memory
//!      └─ reserve-ID   memory.min = the promise, memory.swap.max = 0, cgroup.procs: the program and its children
//! ```
//! The kernel protects a group only as far as every group above it is protected, so `memory.min` rises along all
//! ancestors that have this file. Pages that a program already has stay charged to its former group, so the promise
//! holds for pages that it touches afterwards. No process can lock the memory of another one from outside; a group is
//! the only way for programs that do not link the library. Source: Linux, `Documentation/admin-guide/cgroup-v2.rst`,
//! sections «Memory» and «Migration and Ownership».
//!
//! | file | contents |
//! |---|---|
//! | `pressure.rs` | pressure and usage of a group |
//! | `record.rs` | the record of changes, and restoring after a crash |
//! | `support.rs` | whether this host has the controller |

mod pressure;
mod record;
mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use qfabric_sync::assert_may_block;
use qfabric_types::Bytes;
use qfabric_types::api::Problem;

use crate::cgroup::Mounts;
use crate::files;

pub use pressure::{GroupUsage, PressureTrigger, ReserveGroup};
pub use record::{MemoryRestored, restore};
pub use support::{MemoryLack, memory_root};

use record::{Group, Record};

const PROCESSES: &str = "cgroup.procs";
const CONTROLLERS: &str = "cgroup.subtree_control";
const PROTECTION: &str = "memory.min";
const SWAP: &str = "memory.swap.max";

/// A change of a control group failed; what it had changed is put back.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum GroupError {
    File {
        path: PathBuf,
        source: io::Error,
    },
    Record {
        path: PathBuf,
        source: io::Error,
    },
    NoGroup {
        pid: i32,
    },
    /// The folder of the group, as this process would name it, does not have the process.
    Elsewhere {
        pid: i32,
        path: PathBuf,
    },
}

impl GroupError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            GroupError::File { path, source } => (
                format!("the kernel refused the control group: {}: {source}", path.display()),
                "run the service as root, and give it a root of control groups of its own",
            ),
            GroupError::Record { path, source } => {
                let path = path.display();
                (format!("the record {path} cannot be written: {source}"), "free some space in the run folder")
            }
            GroupError::NoGroup { pid } => (
                format!("process {pid} has no control group of version 2"),
                "start the program in a control group of version 2",
            ),
            GroupError::Elsewhere { pid, path } => (
                format!(
                    "the daemon cannot find the control group of process {pid}: {} does not have it, because the \
                     daemon is in a control group namespace of its own",
                    path.display()
                ),
                "start the daemon's container with --cgroupns host and /sys/fs/cgroup of the host",
            ),
        };
        Problem::new("memory_group", message, next_step)
    }

    fn of(path: &Path) -> impl FnOnce(io::Error) -> GroupError + '_ {
        |source| GroupError::File { path: path.to_owned(), source }
    }
}

/// The kernel's part of making and removing a group: control files appear and vanish with the folder.
#[derive(Clone, Copy, Debug)]
struct Folders {
    make: fn(&Path) -> io::Result<()>,
    remove: fn(&Path) -> io::Result<()>,
}

const KERNEL: Folders = Folders { make: |at| fs::create_dir(at), remove: |at| fs::remove_dir(at) };

/// The groups of a running service. They are put back when this is dropped.
#[derive(Debug)]
pub struct MemoryGroups {
    mounts: Mounts,
    root: PathBuf,
    /// The group above all others of this service.
    base: PathBuf,
    record: Record,
    promises: BTreeMap<u64, Bytes>,
    folders: Folders,
}

impl MemoryGroups {
    /// No group exists yet. Changes are recorded in `directory`.
    ///
    /// # Errors
    /// The host lacks the controller.
    pub fn open(directory: &Path) -> Result<MemoryGroups, MemoryLack> {
        let mounts = Mounts::here();
        let root = memory_root(&mounts)?;
        let base = root.join(format!("qfabric-{}", std::process::id()));
        Ok(MemoryGroups::in_tree(mounts, root, base, directory, KERNEL))
    }

    fn in_tree(mounts: Mounts, root: PathBuf, base: PathBuf, directory: &Path, folders: Folders) -> MemoryGroups {
        let record = Record::begin(directory, &root, &base);
        MemoryGroups { mounts, root, base, record, promises: BTreeMap::new(), folders }
    }

    /// Moves a process and its children into a protected group. `reserve` is a number that no other group has.
    ///
    /// # Errors
    /// The kernel refuses, or the process could not be moved back later; nothing stays changed.
    pub fn protect(&mut self, reserve: u64, pid: i32, bytes: Bytes) -> Result<(), GroupError> {
        let former = having(pid, self.mounts.group_of(pid, "").ok_or(GroupError::NoGroup { pid })?)?;
        self.prepare()?;
        let group = self.group(reserve);
        self.record.groups.insert(reserve, Group { path: group.clone(), former });
        self.record.write()?;
        let done = self.fill(&group, reserve, pid, bytes);
        if done.is_err() {
            let _ = self.release(reserve); // report the first error
        }
        done
    }

    /// Changes the promise of a group.
    pub fn resize(&mut self, reserve: u64, bytes: Bytes) -> Result<(), GroupError> {
        let Some(former) = self.promises.insert(reserve, bytes) else { return Ok(()) };
        let group = self.group(reserve);
        // A group is never promised more than the groups above it have.
        let done = match bytes > former {
            true => self.raise_ancestors().and_then(|()| write(&group.join(PROTECTION), bytes)),
            false => write(&group.join(PROTECTION), bytes).and_then(|()| self.raise_ancestors()),
        };
        if done.is_err() {
            self.promises.insert(reserve, former);
        }
        done
    }

    /// Moves the processes of a group back to their former group, and removes the group.
    pub fn release(&mut self, reserve: u64) -> Result<(), GroupError> {
        let Some(group) = self.record.groups.get(&reserve) else { return Ok(()) };
        let done = group.put_back(&self.root, self.folders);
        self.promises.remove(&reserve);
        self.raise_ancestors()?;
        done?;
        self.record.groups.remove(&reserve);
        match self.record.groups.is_empty() {
            true => self.record.put_back(self.folders).map(drop),
            false => self.record.write(),
        }
    }

    /// The group of a reserve, whether it exists or not.
    pub fn reserve_group(&self, reserve: u64) -> ReserveGroup {
        ReserveGroup(self.group(reserve))
    }

    fn group(&self, reserve: u64) -> PathBuf {
        self.base.join(format!("reserve-{reserve}"))
    }

    /// Makes the base group, and lets its children be protected.
    fn prepare(&mut self) -> Result<(), GroupError> {
        let controllers = self.root.join(CONTROLLERS);
        let enabled = files::text(&controllers).map_err(GroupError::of(&controllers))?;
        if !enabled.split_whitespace().any(|name| name == "memory") {
            self.record.enabled = true;
            self.record.write()?;
            write(&controllers, "+memory")?;
        }
        self.make(&self.base)?;
        write(&self.base.join(CONTROLLERS), "+memory")
    }

    fn make(&self, at: &Path) -> Result<(), GroupError> {
        match (self.folders.make)(at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(GroupError::of(at)(error)),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, group: &Path, reserve: u64, pid: i32, bytes: Bytes) -> Result<(), GroupError> {
        self.make(group)?;
        // A kernel without swap has no such file, and then no page is swapped out.
        let swap = group.join(SWAP);
        if swap.exists() {
            write(&swap, 0)?;
        }
        self.promises.insert(reserve, bytes);
        self.raise_ancestors()?;
        write(&group.join(PROTECTION), bytes)?;
        let processes = group.join(PROCESSES);
        write(&processes, pid)?;
        // Children that appear from now on are born in the group.
        descendants(pid).into_iter().for_each(|child| drop(write(&processes, child)));
        Ok(())
    }

    /// Gives every group between the root and the groups of this service the sum of all promises, on top of what it
    /// had.
    fn raise_ancestors(&mut self) -> Result<(), GroupError> {
        let sum: Bytes = self.promises.values().copied().sum();
        for ancestor in self.base.ancestors().take_while(|at| at.starts_with(&self.root)) {
            let file = ancestor.join(PROTECTION);
            // The root of all groups has no such file: everything below it is protected already.
            let Some(now) = files::trimmed(&file) else { continue };
            let former = match self.record.raised.get(&file) {
                Some(former) => former.clone(),
                None => {
                    self.record.raised.insert(file.clone(), now.clone());
                    self.record.write()?;
                    now
                }
            };
            if let Ok(own) = former.parse() {
                write(&file, Bytes::new(own) + sum)?;
            }
        }
        Ok(())
    }
}

impl Drop for MemoryGroups {
    fn drop(&mut self) {
        // A failure stays in the record, for the next start.
        let _ = self.record.put_back(self.folders);
    }
}

/// The group, if it has the process. `/proc` names groups below the root of this process's control group namespace, and
/// those outside with `..`; the mounted tree may have another root. A process that is moved back to such a name would
/// come into a group of others.
fn having(pid: i32, group: PathBuf) -> Result<PathBuf, GroupError> {
    let is_inside = !group.components().any(|part| part == Component::ParentDir);
    let has_process = || match files::text(group.join(PROCESSES)) {
        Ok(text) => text.split_whitespace().any(|word| word.parse() == Ok(pid)),
        // A threaded group does not list processes.
        Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
    };
    match is_inside && has_process() {
        true => Ok(group),
        false => Err(GroupError::Elsewhere { pid, path: group }),
    }
}

/// Writes one value into a control file that exists.
fn write(path: &Path, value: impl Value) -> Result<(), GroupError> {
    assert_may_block("writing a control group");
    let opened = OpenOptions::new().write(true).truncate(true).open(path);
    opened.and_then(|mut file| file.write_all(value.text().as_bytes())).map_err(GroupError::of(path))
}

/// A value of a control file.
trait Value {
    fn text(&self) -> String;
}

impl Value for Bytes {
    fn text(&self) -> String {
        self.get().to_string()
    }
}

impl Value for i32 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for &str {
    fn text(&self) -> String {
        (*self).to_owned()
    }
}

/// All processes below `pid` now, parents before children; at most [`MOST_DESCENDANTS`].
fn descendants(pid: i32) -> Vec<i32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() && found.len() < MOST_DESCENDANTS {
        let tasks = files::folder(format!("/proc/{}/task", found[at])).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| files::text(task.path().join("children")).ok());
        let named: Vec<i32> = children
            .flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
            .collect();
        found.extend(named);
        at += 1;
    }
    found.remove(0);
    found
}

const MOST_DESCENDANTS: usize = 4_096;

#[cfg(test)]
mod tests;
