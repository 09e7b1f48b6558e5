//! What was at the interfaces before ours, on disk, so that the next start, or `qfabric restore`, can put it back
//! after a crash: the pattern of [`crate::journal`], for a handful of interfaces.
//!
//! One JSON file in the run folder, replaced as a whole before each change it describes; named by boot, since a
//! machine that was started anew has none of it any more. It is not synced to disk, for the same reason.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::NetError;
use super::former::Former;
use crate::files;
use crate::release;

/// The file's name in the run folder.
pub const FILE: &str = "net.json";
/// A longer file is not this program's.
const MAX_BYTES: u64 = 1 << 20;

/// The open record of a running service.
#[derive(Debug)]
pub struct Book {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    interface: String,
    ifindex: u32,
    former: Former,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    boot: String,
    /// The network namespace, by its inode: interface numbers mean nothing in another one.
    namespace: u64,
    entries: Vec<Entry>,
}

impl Book {
    /// Begins the record of a run folder. What an earlier service left must have been put back with [`restore`].
    pub fn open(directory: &Path) -> Book {
        Book { path: directory.join(FILE), entries: Vec::new() }
    }

    /// Records what an interface has, before that is replaced.
    pub(super) fn note(&mut self, interface: &str, ifindex: u32, former: &Former) -> Result<(), NetError> {
        let entry = Entry { interface: interface.to_owned(), ifindex, former: former.clone() };
        self.entries.push(entry);
        self.write().inspect_err(|_| {
            self.entries.pop();
        })
    }

    /// Forgets an interface, after it was put back.
    pub(super) fn forget(&mut self, ifindex: u32) -> Result<(), NetError> {
        self.entries.retain(|entry| entry.ifindex != ifindex);
        self.write()
    }

    /// Complete or not at all.
    fn write(&self) -> Result<(), NetError> {
        let written = Written { boot: release::boot_id(), namespace: namespace(), entries: self.entries.clone() };
        let text = serde_json::to_vec(&written).expect("plain data");
        let aside = self.path.with_extension("new");
        let _ = fs::remove_file(&aside);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside);
        let done = made.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&aside, &self.path));
        done.map_err(|source| NetError::Journal { path: self.path.clone(), source })
    }
}

fn namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// What putting back came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetRestored {
    /// Interfaces put back.
    pub interfaces: usize,
    /// What could not be put back, and why.
    pub failed: Vec<String>,
}

/// Puts back what the record in `directory` says was replaced and still is; safe to repeat. No record: nothing to do.
pub fn restore(directory: &Path) -> Result<NetRestored, NetError> {
    let path = directory.join(FILE);
    let failed = |source| NetError::Journal { path: path.clone(), source };
    let Some(written) = read(&path).map_err(failed)? else { return Ok(NetRestored::default()) };
    let mut done = NetRestored::default();
    if written.boot == release::boot_id() && written.namespace == namespace() {
        for entry in &written.entries {
            match entry.former.put_back(entry.ifindex) {
                Ok(()) => done.interfaces += 1,
                Err(error) => done.failed.push(format!("{}: {error}", entry.interface)),
            }
        }
    }
    if done.failed.is_empty() {
        fs::remove_file(&path).map_err(failed)?;
    }
    Ok(done)
}

/// The file decides what a privileged process does to interfaces: it must be a plain file of one's own.
fn read(path: &Path) -> io::Result<Option<Written>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.uid() != own || metadata.mode() & 0o022 != 0 || metadata.len() > MAX_BYTES {
        return Err(io::Error::other(
            "it is not a plain file that this user alone can write; look at it and remove it",
        ));
    }
    Ok(Some(serde_json::from_slice(&files::bytes(path)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(book: &mut Book) {
        book.note("qf-none", u32::MAX >> 1, &Former::Default { kind: "noqueue".into() }).unwrap();
    }

    #[test]
    fn an_interface_that_is_gone_is_passed_over_and_the_record_ends() {
        let folder = tempfile::tempdir().unwrap();
        entry(&mut Book::open(folder.path()));
        assert_eq!(restore(folder.path()).unwrap(), NetRestored { interfaces: 1, failed: Vec::new() });
        assert_eq!(restore(folder.path()).unwrap(), NetRestored::default());
    }

    #[test]
    fn what_is_not_this_programs_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for text in ["", "{}", r#"{"boot":"","namespace":1,"entries":[{"interface":"lo"}]}"#] {
            fs::write(&path, text).unwrap();
            assert!(restore(folder.path()).is_err(), "{text:?}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(restore(folder.path()).unwrap_err().to_string().contains("plain file"));
    }

    #[test]
    fn another_boots_record_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), r#"{"boot":"x","namespace":1,"entries":[]}"#).unwrap();
        assert_eq!(restore(folder.path()).unwrap(), NetRestored::default());
        assert!(!folder.path().join(FILE).exists());
    }
}
