//! Journals of services that live inside of another program (`qfabric run` where no daemon runs): one folder each
//! below `journals` of the run folder, named by process, so that the next start or `qfabric restore` finds what a
//! killed one left.
//!
//! ```text
//! /run/qfabric/journals/1234-567890-0/journal.jsonl      process 1234, started 567,890 ticks after boot, its first
//! ```
//! What lies there decides what a privileged process writes to the scheduler. So `journals` belongs to this user alone
//! (mode 0700), no link is followed, and each file is checked as every journal is.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use qfabric_types::ThreadId;

use super::{JournalError, Restored, io_error};
use crate::files;
use crate::threads;

/// The folder's name in the run folder.
pub const FOLDER: &str = "journals";
/// More folders than this are not this program's: a host has no so many services at a time.
const MOST: usize = 4_096;

/// The folder of one service of this process; removed when dropped, if it is empty by then.
#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Makes one below `run`, which is made where it is missing.
    pub fn make(run: &Path) -> Result<OwnFolder, JournalError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let make = |path: &Path, mode| match DirBuilder::new().mode(mode).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|e| io_error(path, e)),
        };
        make(run, 0o755)?;
        let journals = run.join(FOLDER);
        make(&journals, 0o700)?;
        check(&journals)?;
        let pid = std::process::id() as i32;
        let start = threads::start_time(ThreadId(pid)).unwrap_or_default();
        let path = journals.join(format!("{pid}-{start}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| io_error(&path, e))?;
        Ok(OwnFolder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    /// A journal with something in it stays for the next `restore`.
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Folders below `run` whose process is over. None where there is no such folder.
pub fn stale(run: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let journals = run.join(FOLDER);
    match check(&journals) {
        Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    }
    let entries = files::folder(&journals).map_err(|e| io_error(&journals, e))?;
    let names = entries.take(MOST).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut stale: Vec<PathBuf> = names.filter(|name| is_over(name)).map(|name| journals.join(name)).collect();
    stale.sort();
    Ok(stale)
}

/// A journal, and what came of putting back what it says.
pub type Replayed = (PathBuf, Result<Restored, JournalError>);

/// Puts back what the services of processes that are over left below `run`, and removes their folders. Answers the
/// journals that said something, each with what came of it; one that is not believable is left where it is.
pub fn restore_stale(run: &Path) -> Result<Vec<Replayed>, JournalError> {
    let of = |folder: PathBuf| {
        let restored = super::restore(&folder);
        remove(&folder);
        (folder.join(super::FILE), restored)
    };
    let said_something = |(_, restored): &Replayed| match restored {
        Ok(restored) => *restored != Restored::default(),
        // Its process has just begun to end.
        Err(error) => !matches!(error, JournalError::Held { .. }),
    };
    Ok(stale(run)?.into_iter().map(of).filter(said_something).collect())
}

/// Removes a folder whose journal has nothing left to put back.
pub fn remove(folder: &Path) {
    let file = folder.join(super::FILE);
    let settled = !fs::symlink_metadata(&file).is_ok_and(|meta| meta.len() > 0);
    if settled || super::holds_nothing(&file) {
        // What cannot be removed is found again, and is empty then, too.
        let _ = fs::remove_file(&file);
        let _ = fs::remove_file(file.with_extension("new"));
        let _ = fs::remove_dir(folder);
    }
}

/// Of a name that this program gives: whether that process is over.
fn is_over(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let pid = parts.next().and_then(|p| p.parse().ok()).filter(|&pid: &i32| pid > 1);
    let start = parts.next().and_then(|s| s.parse::<u64>().ok());
    let number = parts.next().and_then(|n| n.parse::<u32>().ok());
    match (pid, start, number) {
        (Some(pid), Some(start), Some(_)) => threads::start_time(ThreadId(pid)) != Some(start),
        _ => false,
    }
}

fn check(journals: &Path) -> Result<(), JournalError> {
    let meta = fs::symlink_metadata(journals).map_err(|e| io_error(journals, e))?;
    let me = rustix::process::geteuid().as_raw();
    let why = match () {
        () if !meta.is_dir() => "it is no folder".to_owned(),
        () if meta.uid() != me => format!("it belongs to user {}, not to user {me}", meta.uid()),
        () if meta.mode() & 0o077 != 0 => format!("others may look into it (mode {:o})", meta.mode() & 0o777),
        () => return Ok(()),
    };
    Err(JournalError::Hostile { path: journals.to_owned(), line: 0, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, Journal, Touched};
    use crate::sched_attr::SchedAttr;
    use std::os::unix::fs::PermissionsExt;

    fn me() -> String {
        let pid = std::process::id() as i32;
        format!("{pid}-{}", threads::start_time(ThreadId(pid)).unwrap())
    }

    #[test]
    fn a_service_in_order_leaves_no_folder_behind() {
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
    fn folders_of_processes_that_are_over_are_found_and_only_those() {
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
    fn a_folder_that_others_may_have_written_is_refused() {
        let run = tempfile::tempdir().unwrap();
        let journals = run.path().join(FOLDER);
        std::os::unix::fs::symlink("/tmp", &journals).unwrap();
        assert!(OwnFolder::make(run.path()).unwrap_err().to_string().contains("no folder"));
        assert!(stale(run.path()).unwrap_err().to_string().contains("no folder"));
        fs::remove_file(&journals).unwrap();
        fs::create_dir(&journals).unwrap();
        fs::set_permissions(&journals, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(stale(run.path()).unwrap_err().to_string().contains("mode 777"));
    }

    #[test]
    fn a_folder_with_something_to_put_back_stays_until_it_is_put_back() {
        let run = tempfile::tempdir().unwrap();
        let own = OwnFolder::make(run.path()).unwrap();
        let path = own.path().to_owned();
        let mut journal = Journal::open(own.path()).unwrap();
        let start = threads::start_time(ThreadId(std::process::id() as i32)).unwrap();
        let me = ThreadId(std::process::id() as i32);
        journal.touching(Touched { tid: me, start, was: SchedAttr::fair(0), slack_ns: None }).unwrap();
        drop(journal);
        drop(own);
        assert!(path.join(journal::FILE).exists());
        journal::restore(&path).unwrap();
        remove(&path);
        assert!(!path.exists());
    }
}
