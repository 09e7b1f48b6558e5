//! Records the control groups that this program made and the values that it changed, so that the next start or
//! `qfabric restore` can put them back after a crash. One JSON file in the run folder is replaced as a whole before
//! each change that it describes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use qfabric_types::{Bytes, ThreadId};
use serde::{Deserialize, Serialize};

use super::{CONTROLLERS, Folders, GroupError, KERNEL, PROCESSES, PROTECTION, write};
use crate::{files, journal, release, threads};

const FILE: &str = "memory.json";
const FREEZE: &str = "cgroup.freeze";
/// Number of times that the processes of a group are moved before it counts as one that cannot be removed.
const ROUNDS: u32 = 20;
/// After these rounds the group is frozen, so that no fork escapes. A program that rarely forks is not frozen.
const PLAIN_ROUNDS: u32 = 2;

/// The changes of a running service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    #[serde(skip)]
    path: PathBuf,
    boot: String,
    /// The process of the service and its start time.
    service: (i32, Option<u64>),
    root: PathBuf,
    base: PathBuf,
    /// This service enabled the memory controller at the root.
    pub(super) enabled: bool,
    /// The former values of `memory.min`, by file.
    pub(super) raised: BTreeMap<PathBuf, String>,
    /// By reserve.
    pub(super) groups: BTreeMap<u64, Group>,
}

/// A group, and the group from which its process came.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) path: PathBuf,
    pub(super) former: PathBuf,
}

impl Group {
    /// Moves all processes to the former group, or to the root if that is gone, and removes the group.
    pub(super) fn put_back(&self, root: &Path, folders: Folders) -> Result<(), GroupError> {
        // The promise ends now, even if a process stays.
        let _ = write(&self.path.join(PROTECTION), Bytes::ZERO);
        let mut removed = Ok(());
        for round in 0..ROUNDS {
            if round == PLAIN_ROUNDS {
                // Processes that are moved out go on.
                let _ = write(&self.path.join(FREEZE), "1");
            }
            self.move_processes(root);
            removed = remove(&self.path, folders);
            if removed.is_ok() {
                return removed;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = write(&self.path.join(FREEZE), "0");
        removed
    }

    fn move_processes(&self, root: &Path) {
        let processes = files::text(self.path.join(PROCESSES)).unwrap_or_default();
        for pid in processes.split_whitespace().filter_map(|word| word.parse::<i32>().ok()) {
            // A process may end at any time, and a former group may vanish.
            if write(&self.former.join(PROCESSES), pid).is_err() {
                let _ = write(&root.join(PROCESSES), pid);
            }
        }
    }
}

fn remove(at: &Path, folders: Folders) -> Result<(), GroupError> {
    match (folders.remove)(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GroupError::of(at)(error)),
        _ => Ok(()),
    }
}

impl Record {
    pub(super) fn begin(directory: &Path, root: &Path, base: &Path) -> Record {
        Record {
            path: directory.join(FILE),
            boot: release::boot_id(),
            service: own_process(),
            root: root.to_owned(),
            base: base.to_owned(),
            enabled: false,
            raised: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Replaces the file atomically.
    pub(super) fn write(&self) -> Result<(), GroupError> {
        let text = serde_json::to_vec(self).expect("plain data");
        files::replace(&self.path, &text).map_err(|source| GroupError::Record { path: self.path.clone(), source })
    }

    /// Puts everything back and removes the file. Returns the number of groups and values.
    pub(super) fn put_back(&mut self, folders: Folders) -> Result<usize, GroupError> {
        let mut done = 0;
        // A group that cannot be put back keeps no other one from it.
        let mut failed = None;
        for (reserve, group) in std::mem::take(&mut self.groups) {
            match group.put_back(&self.root, folders) {
                Ok(()) => done += 1,
                Err(error) => {
                    self.groups.insert(reserve, group);
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // The base has its own value, which vanishes with it.
        remove(&self.base, folders)?;
        while let Some((file, former)) = self.raised.pop_first() {
            if file.starts_with(&self.base) {
                continue;
            }
            write(&file, former.as_str())?;
            done += 1;
        }
        if std::mem::take(&mut self.enabled) {
            // Fails if another program uses the controller; then it must stay.
            let _ = write(&self.root.join(CONTROLLERS), "-memory");
        }
        let _ = fs::remove_file(&self.path);
        Ok(done)
    }

    /// Every path lies below the root of control groups; this program writes no other ones.
    fn is_believable(&self) -> bool {
        let plain = |at: &Path| at.is_absolute() && !at.components().any(|part| part == Component::ParentDir);
        let paths = self.raised.keys().chain(self.groups.values().flat_map(|group| [&group.path, &group.former]));
        let mut below = paths.chain([&self.base]);
        plain(&self.root) && below.all(|at| plain(at) && at.starts_with(&self.root)) && self.base != self.root
    }
}

fn own_process() -> (i32, Option<u64>) {
    let pid = std::process::id() as i32;
    (pid, threads::start_time(ThreadId(pid)))
}

/// The result of putting groups back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryRestored {
    /// Number of groups and values.
    pub settings: usize,
    /// One message for each change that could not be undone.
    pub failed: Vec<String>,
}

impl From<MemoryRestored> for journal::Restored {
    fn from(groups: MemoryRestored) -> journal::Restored {
        journal::Restored { settings: groups.settings, failed: groups.failed, ..journal::Restored::default() }
    }
}

/// Puts back the groups that the record in `directory` lists; safe to repeat. Does nothing if there is no record.
pub fn restore(directory: &Path) -> MemoryRestored {
    restore_with(directory, KERNEL)
}

pub(super) fn restore_with(directory: &Path, folders: Folders) -> MemoryRestored {
    let path = directory.join(FILE);
    let failed = |why: String| MemoryRestored { settings: 0, failed: vec![why] };
    let mut record = match read(&path) {
        Ok(Some(record)) => record,
        Ok(None) => return MemoryRestored::default(),
        Err(why) => return failed(format!("{}: {why}; inspect the file and remove it", path.display())),
    };
    if record.boot != release::boot_id() {
        let _ = fs::remove_file(&path);
        return MemoryRestored::default();
    }
    let (pid, start) = record.service;
    if record.service != own_process() && start.is_some() && threads::start_time(ThreadId(pid)) == start {
        // The service runs, and puts its own groups back.
        return MemoryRestored::default();
    }
    match record.put_back(folders) {
        Ok(settings) => MemoryRestored { settings, failed: Vec::new() },
        Err(error) => failed(error.to_string()),
    }
}

/// The file decides what a privileged process does, so it must belong to this user alone.
fn read(path: &Path) -> Result<Option<Record>, String> {
    let file = match File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    journal::check_file(&file)?;
    let text = files::bytes(path).map_err(|error| error.to_string())?;
    let record: Record = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    match record.is_believable() {
        true => Ok(Some(Record { path: path.to_owned(), ..record })),
        false => Err("it names a path outside the control groups".to_owned()),
    }
}
