//! Journals of services that run inside another program (`qfabric run` on a host without a daemon). Each service has
//! one folder below `journals` in the run folder. The folder is named after the process, so the next start or `qfabric
//! restore` finds the changes of a killed process.
//!
//! ```text
//! /run/qfabric/journals/1234-567890-0/journal.jsonl      process 1234, started at tick 567,890; its first service
//! ```
//! These files decide what a privileged process writes to the scheduler. Therefore `journals` belongs to this user
//! alone (mode 0700), no symbolic link is followed, and each file is checked like every journal.
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use qfabric_types::ThreadId;

use super::undo::lists_no_change;
use super::{JournalError, Restored, io_error, users};
use crate::files;
use crate::memory_groups;
use crate::net;
use crate::power;
use crate::threads;

/// Name of the folder in the run folder.
pub const FOLDER: &str = "journals";
/// Largest number of folders that are read; a host never runs this many services at a time.
const MOST: usize = 4_096;

/// The folder of one service of this process. Removed when dropped, if its journal lists no change to undo.
#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Creates a folder below `run`; creates `run` if it is missing.
    pub fn make(run: &Path) -> Result<OwnFolder, JournalError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let make = |path: &Path, mode| match DirBuilder::new().mode(mode).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|e| io_error(path, e)),
        };
        make(run, 0o755)?;
        let journals = run.join(FOLDER);
        make(&journals, 0o700)?;
        check(&journals, rustix::process::geteuid().as_raw())?;
        let pid = std::process::id() as i32;
        let start = threads::start_time(ThreadId(pid)).unwrap_or_default();
        let path = journals.join(format!("{pid}-{start}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| io_error(&path, e))?;
        Ok(OwnFolder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    /// Keeps a journal that still lists changes, for the next `restore`.
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Folders below `run` whose process has ended; empty if `run` has no such folder.
pub fn stale(run: &Path) -> Result<Vec<PathBuf>, JournalError> {
    stale_of(run, rustix::process::geteuid().as_raw())
}

/// Like [`stale`], for the folder of another user. The folders above belong to this user, too.
pub(super) fn stale_of(run: &Path, uid: u32) -> Result<Vec<PathBuf>, JournalError> {
    let journals = run.join(FOLDER);
    if uid != rustix::process::geteuid().as_raw() {
        for folder in [run.parent().unwrap_or(run), run] {
            users::check_folder(folder, uid).map_err(|e| io_error(folder, e))?;
        }
    }
    match check(&journals, uid) {
        Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    }
    let entries = files::folder(&journals).map_err(|e| io_error(&journals, e))?;
    let names = entries.take(MOST).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut stale: Vec<PathBuf> =
        names.filter(|name| process_has_ended(name)).map(|name| journals.join(name)).collect();
    stale.sort();
    Ok(stale)
}

/// Path of a journal, and the result of undoing its changes.
pub type Replayed = (PathBuf, Result<Restored, JournalError>);

/// Undoes the changes that ended processes left below `run`, and removes their folders. Returns each journal that
/// listed changes, with the result. A journal with invalid content stays where it is.
pub fn restore_stale(run: &Path) -> Result<Vec<Replayed>, JournalError> {
    let of = |folder: PathBuf| {
        let groups = memory_groups::restore(&folder);
        let knobs = power::restore(&folder);
        let networks = net::restore(&folder);
        let restored = super::restore(&folder).map(|mut restored| {
            restored.add(groups.into());
            restored.add_result(knobs);
            restored.add_result(networks);
            restored
        });
        remove(&folder);
        (folder.join(super::FILE), restored)
    };
    let listed_changes = |(_, restored): &Replayed| match restored {
        Ok(restored) => *restored != Restored::default(),
        // Its process is just about to end.
        Err(error) => !matches!(error, JournalError::Held { .. }),
    };
    Ok(stale(run)?.into_iter().map(of).filter(listed_changes).collect())
}

/// Removes a folder whose journal lists no change to undo.
pub fn remove(folder: &Path) {
    let knobs = folder.join(power::FOLDER);
    if knobs.is_dir() {
        remove_settled(&knobs);
    }
    remove_settled(folder);
}

/// The folder stays if it contains the journal of knobs that are not back.
fn remove_settled(folder: &Path) {
    let file = folder.join(super::FILE);
    let settled = !fs::symlink_metadata(&file).is_ok_and(|meta| meta.len() > 0);
    if settled || lists_no_change(&file) {
        // If the removal fails, a later call finds the folder again; its journal still lists no change.
        let _ = fs::remove_file(&file);
        let _ = fs::remove_file(file.with_extension("new"));
        let _ = fs::remove_dir(folder);
    }
}

/// True if `name` is a folder name of this program and its process has ended.
fn process_has_ended(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let pid = parts.next().and_then(|p| p.parse().ok()).filter(|&pid: &i32| pid > 1);
    let start = parts.next().and_then(|s| s.parse::<u64>().ok());
    let number = parts.next().and_then(|n| n.parse::<u32>().ok());
    match (pid, start, number) {
        (Some(pid), Some(start), Some(_)) => threads::start_time(ThreadId(pid)) != Some(start),
        _ => false,
    }
}

fn check(journals: &Path, uid: u32) -> Result<(), JournalError> {
    let meta = fs::symlink_metadata(journals).map_err(|e| io_error(journals, e))?;
    let why = match () {
        () if !meta.is_dir() => "it is not a folder".to_owned(),
        () if meta.uid() != uid => format!("it belongs to user {}, not to user {uid}", meta.uid()),
        () if meta.mode() & 0o077 != 0 => format!("other users have access to it (mode {:o})", meta.mode() & 0o777),
        () => return Ok(()),
    };
    Err(JournalError::Invalid { path: journals.to_owned(), line: 0, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, Journal};
    use std::os::unix::fs::PermissionsExt;

    fn me() -> String {
        let pid = std::process::id() as i32;
        format!("{pid}-{}", threads::start_time(ThreadId(pid)).unwrap())
    }

    #[test]
    fn a_service_that_ends_normally_leaves_no_folder() {
        let run = tempfile::tempdir().unwrap();
        let (first, second) = (OwnFolder::make(run.path()).unwrap(), OwnFolder::make(run.path()).unwrap());
        assert_ne!(first.path(), second.path());
        let journal = Journal::open(first.path()).unwrap();
        assert_eq!(stale(run.path()).unwrap(), Vec::<PathBuf>::new(), "its process lives");
        drop(journal);
        drop((first, second));
        assert_eq!(fs::read_dir(run.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn only_folders_of_ended_processes_are_found() {
        let run = tempfile::tempdir().unwrap();
        let own = OwnFolder::make(run.path()).unwrap();
        let journals = run.path().join(FOLDER);
        let pid = std::process::id();
        let over = [format!("{pid}-1-0"), "4000000-77-3".to_owned()];
        let strange = ["x", "1-2-3", "7-8", "-1-2-3", "7-8-9x", "..-1-1"];
        for name in over.iter().map(String::as_str).chain(strange) {
            fs::create_dir(journals.join(name)).unwrap();
        }
        let mut expected: Vec<_> = over.iter().map(|name| journals.join(name)).collect();
        expected.sort();
        assert_eq!(stale(run.path()).unwrap(), expected);
        assert!(own.path().ends_with(format!("{}-{}", me(), own.path().to_str().unwrap().rsplit('-').next().unwrap())));
    }

    #[test]
    fn a_folder_that_other_users_can_write_is_refused() {
        let run = tempfile::tempdir().unwrap();
        let journals = run.path().join(FOLDER);
        std::os::unix::fs::symlink("/tmp", &journals).unwrap();
        assert!(OwnFolder::make(run.path()).unwrap_err().to_string().contains("not a folder"));
        assert!(stale(run.path()).unwrap_err().to_string().contains("not a folder"));
        fs::remove_file(&journals).unwrap();
        fs::create_dir(&journals).unwrap();
        fs::set_permissions(&journals, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(stale(run.path()).unwrap_err().to_string().contains("mode 777"));
    }

    #[test]
    fn a_folder_with_changes_to_undo_stays_until_they_are_undone() {
        let (run, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = crate::testing::power::PowerTree::new(sys.path());
        tree.clock("policy0", 900_000, (800_000, 3_600_000));
        let own = OwnFolder::make(run.path()).unwrap();
        let path = own.path().to_owned();
        let mut journal = Journal::open(own.path()).unwrap();
        journal.turn(&power::clocks(tree.root())[0].knob(power::KnobName::MaxFrequency), "1000000").unwrap();
        drop(journal);
        drop(own);
        assert!(path.join(journal::FILE).exists());
        journal::restore(&path).unwrap();
        remove(&path);
        assert!(!path.exists());
    }

    #[test]
    fn results_of_all_kinds_add_up_and_an_error_is_a_failure() {
        let mut sum = Restored { threads: 3, skipped: 1, settings: 0, failed: Vec::new() };
        sum.add(memory_groups::MemoryRestored { settings: 2, failed: vec!["group".to_owned()] }.into());
        let networks = net::NetRestored { interfaces: 4, failed: vec!["eth0".to_owned()] };
        sum.add_result(Ok::<_, JournalError>(networks));
        sum.add_result(Err::<Restored, _>("knob"));
        let failed = ["group", "eth0", "knob"].map(str::to_owned).to_vec();
        assert_eq!(sum, Restored { threads: 3, skipped: 1, settings: 6, failed });
    }

    #[test]
    fn the_knobs_of_a_killed_service_are_put_back() {
        let (run, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = crate::testing::power::PowerTree::new(sys.path());
        tree.clock("policy0", 900_000, (800_000, 3_600_000));
        let own = OwnFolder::make(run.path()).unwrap();
        let knobs = own.path().join(power::FOLDER);
        fs::create_dir(&knobs).unwrap();
        let mut journal = Journal::open(&knobs).unwrap();
        journal.turn(&power::clocks(tree.root())[0].knob(power::KnobName::MaxFrequency), "1000000").unwrap();
        drop(journal);
        let killed = run.path().join(FOLDER).join("4000000-77-3");
        fs::rename(own.path(), &killed).unwrap();
        let restored = restore_stale(run.path()).unwrap();
        assert_eq!((restored.len(), restored[0].1.as_ref().unwrap().settings), (1, 1));
        assert_eq!(tree.get("devices/system/cpu/cpufreq/policy0/scaling_max_freq"), "3600000");
        assert!(!killed.exists());
    }
}
