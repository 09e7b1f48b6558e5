//! Records the former queueing disciplines of the interfaces, so that the next start or `qfabric restore` can put them
//! back after a crash. Follows the pattern of [`crate::journal`], for a small number of interfaces.
//!
//! One JSON file in the run folder is replaced as a whole before each change that it describes. The file names the
//! boot, because after a reboot the kernel has its own disciplines again. For the same reason it is not synced to disk.
//!
//! An interface is seen only in its network namespace. A service or `qfabric restore` in another namespace cannot put
//! it back, so it keeps the interface in the record, for the next start in the namespace of the interface. A namespace
//! that is gone has taken its interfaces with it, so they leave the record.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use qfabric_types::ThreadId;
use serde::{Deserialize, Serialize};

use super::error::NetError;
use super::existing;
use super::former::Former;
use crate::files;
use crate::journal::Restored;
use crate::{release, threads};

/// Name of the file in the run folder.
pub(super) const FILE: &str = "net.json";
/// Largest file that is read; this program writes smaller ones.
const MAX_BYTES: u64 = 1 << 20;
/// Other network namespaces in the record. Beyond this number the earliest leave it, so that the file stays readable
/// even if each start is in a new namespace and nothing tells which of them are gone.
const MOST_ELSEWHERE: usize = 64;

/// The open record of a running service.
#[derive(Debug)]
pub struct Book {
    path: PathBuf,
    entries: Vec<Entry>,
    elsewhere: Vec<Elsewhere>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    interface: String,
    ifindex: u32,
    former: Former,
}

/// Interfaces that cannot be put back from this network namespace, because they are in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Elsewhere {
    namespace: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordFile {
    boot: String,
    /// The network namespace of `entries`, by its inode: interface indexes have no meaning in another namespace.
    namespace: u64,
    /// Process and start time of the service. Absent in records of earlier versions.
    #[serde(default)]
    service: Option<(i32, Option<u64>)>,
    entries: Vec<Entry>,
    /// What earlier services left in other namespaces. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    elsewhere: Vec<Elsewhere>,
}

impl RecordFile {
    /// The interfaces of this network namespace, and those of others.
    fn divided(self) -> (Vec<Entry>, Vec<Elsewhere>) {
        let last = Elsewhere { namespace: self.namespace, entries: self.entries };
        let all = self.elsewhere.into_iter().chain([last]).filter(|group| !group.entries.is_empty());
        let own = namespace();
        let (here, elsewhere): (Vec<_>, Vec<_>) = all.partition(|group| group.namespace == own);
        (here.into_iter().flat_map(|group| group.entries).collect(), elsewhere)
    }

    /// The service of the record, if it is another process that still runs.
    fn running_service(&self) -> Option<i32> {
        let (pid, start) = self.service?;
        let runs = start.is_some() && threads::start_time(ThreadId(pid)) == start;
        (runs && self.service != Some(own_process())).then_some(pid)
    }
}

fn own_process() -> (i32, Option<u64>) {
    let pid = std::process::id() as i32;
    (pid, threads::start_time(ThreadId(pid)))
}

impl Book {
    /// Begins the record in a run folder. Changes of an earlier service must be put back first ([`restore`]).
    pub fn open(directory: &Path) -> Book {
        let path = directory.join(FILE);
        // What could not be put back stays recorded for the next attempt.
        let left = read(&path).ok().flatten().filter(|left| left.boot == release::boot_id());
        let (entries, elsewhere) = left.map(RecordFile::divided).unwrap_or_default();
        Book { path, entries, elsewhere: kept(elsewhere, existing::namespaces) }
    }

    /// Records the discipline of an interface before it is replaced.
    pub(super) fn record(&mut self, interface: &str, ifindex: u32, former: &Former) -> Result<(), NetError> {
        let entry = Entry { interface: interface.to_owned(), ifindex, former: former.clone() };
        self.entries.retain(|old| old.ifindex != ifindex);
        self.entries.push(entry);
        self.write().inspect_err(|_| {
            self.entries.pop();
        })
    }

    /// Removes an interface from the record after it was put back.
    pub(super) fn forget(&mut self, ifindex: u32) -> Result<(), NetError> {
        self.entries.retain(|entry| entry.ifindex != ifindex);
        if !self.entries.is_empty() || !self.elsewhere.is_empty() {
            return self.write();
        }
        // An empty file would keep the folder.
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(NetError::Journal { path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }

    fn write(&self) -> Result<(), NetError> {
        let (entries, elsewhere) = (self.entries.clone(), self.elsewhere.clone());
        write(&self.path, Some(own_process()), entries, elsewhere)
    }
}

/// Replaces the file atomically.
fn write(
    path: &Path,
    service: Option<(i32, Option<u64>)>,
    entries: Vec<Entry>,
    elsewhere: Vec<Elsewhere>,
) -> Result<(), NetError> {
    let written = RecordFile { boot: release::boot_id(), namespace: namespace(), service, entries, elsewhere };
    let text = serde_json::to_vec(&written).expect("plain data");
    files::replace(path, &text).map_err(|source| NetError::Journal { path: path.to_owned(), source })
}

/// Without the namespaces that are gone for certain, and at most [`MOST_ELSEWHERE`]. `existing` names those that exist,
/// if this is certain.
fn kept(mut elsewhere: Vec<Elsewhere>, existing: impl FnOnce() -> Option<BTreeSet<u64>>) -> Vec<Elsewhere> {
    if elsewhere.is_empty() {
        return elsewhere;
    }
    if let Some(existing) = existing() {
        elsewhere.retain(|group| existing.contains(&group.namespace));
    }
    let surplus = elsewhere.len().saturating_sub(MOST_ELSEWHERE);
    for group in elsewhere.drain(..surplus) {
        let names: Vec<&str> = group.entries.iter().map(|entry| entry.interface.as_str()).collect();
        tracing::warn!(
            namespace = group.namespace,
            interfaces = names.join(", "),
            "too many network namespaces are recorded, so these interfaces are not put back; if they still exist, set \
             their queueing disciplines with tc"
        );
    }
    elsewhere
}

fn namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// The result of putting disciplines back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetRestored {
    pub interfaces: usize,
    /// One message for each interface that could not be put back.
    pub failed: Vec<String>,
}

impl From<NetRestored> for Restored {
    fn from(networks: NetRestored) -> Restored {
        Restored { settings: networks.interfaces, failed: networks.failed, ..Restored::default() }
    }
}

/// Puts back the disciplines that the record in `directory` lists and that are still replaced; safe to repeat. Does
/// nothing if there is no record. What cannot be put back stays in the record, for example an interface of another
/// network namespace.
///
/// # Errors
/// The record belongs to a service that runs, or cannot be used; nothing is changed.
pub fn restore(directory: &Path) -> Result<NetRestored, NetError> {
    let path = directory.join(FILE);
    let unreadable = |source| NetError::Unreadable { path: path.clone(), source };
    let Some(written) = read(&path).map_err(unreadable)? else { return Ok(NetRestored::default()) };
    if written.boot != release::boot_id() {
        remove(&path)?;
        return Ok(NetRestored::default());
    }
    if let Some(pid) = written.running_service() {
        return Err(NetError::Running { path, pid });
    }
    let (here, recorded) = written.divided();
    let before = recorded.len();
    let elsewhere = kept(recorded, existing::namespaces);
    let (done, left) = put_back(here, &elsewhere);
    if left.is_empty() && elsewhere.is_empty() {
        remove(&path)?;
    } else if done.interfaces > 0 || elsewhere.len() < before {
        write(&path, None, left, elsewhere)?;
    }
    Ok(done)
}

/// Puts back the interfaces that are `here`. Returns those that failed, too.
fn put_back(here: Vec<Entry>, elsewhere: &[Elsewhere]) -> (NetRestored, Vec<Entry>) {
    let (mut done, mut left) = (NetRestored::default(), Vec::new());
    for entry in here {
        match entry.former.put_back(entry.ifindex) {
            Ok(()) => done.interfaces += 1,
            Err(error) => {
                done.failed.push(format!("{}: {error}", entry.interface));
                left.push(entry);
            }
        }
    }
    let others = elsewhere.iter().flat_map(|group| &group.entries);
    let unseen =
        |entry: &Entry| format!("{}: it is in another network namespace; run `qfabric restore` there", entry.interface);
    done.failed.extend(others.map(unseen));
    (done, left)
}

fn remove(path: &Path) -> Result<(), NetError> {
    fs::remove_file(path).map_err(|source| NetError::Journal { path: path.to_owned(), source })
}

/// The file decides what a privileged process does to interfaces, so it must be a regular file that belongs to this
/// user.
fn read(path: &Path) -> io::Result<Option<RecordFile>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.uid() != own || metadata.mode() & 0o022 != 0 || metadata.len() > MAX_BYTES {
        return Err(io::Error::other("it is not a regular file that only this user can write"));
    }
    Ok(Some(serde_json::from_slice(&files::bytes(path)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(book: &mut Book) {
        book.record("qf-none", u32::MAX >> 1, &Former::Default { kind: "noqueue".into() }).unwrap();
    }

    #[test]
    fn the_record_of_a_running_service_is_kept_and_its_process_named() {
        let folder = tempfile::tempdir().unwrap();
        entry(&mut Book::open(folder.path()));
        let path = folder.path().join(FILE);
        let mut record = read(&path).unwrap().unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = other.id() as i32;
        record.service = Some((pid, threads::start_time(ThreadId(pid))));
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        let refused = restore(folder.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {pid}")) && path.exists(), "{refused}");
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(restore(folder.path()).unwrap().interfaces, 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_vanished_interface_is_skipped_and_the_record_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        entry(&mut Book::open(folder.path()));
        assert_eq!(restore(folder.path()).unwrap(), NetRestored { interfaces: 1, failed: Vec::new() });
        assert_eq!(restore(folder.path()).unwrap(), NetRestored::default());
    }

    #[test]
    fn an_interface_of_another_network_namespace_stays_recorded_until_it_is_put_back_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        entry(&mut Book::open(folder.path()));
        let move_to = |namespace| {
            let mut record = read(&path).unwrap().unwrap();
            record.elsewhere.iter_mut().for_each(|group| group.namespace = namespace);
            record.namespace = namespace;
            fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        };
        // Its file keeps it. Without the right to make one, nothing is certain, and any number is kept.
        let (_file, other) = another_namespace().map_or((None, 1), |(file, inode)| (Some(file), inode));
        move_to(other);
        for _ in 0..2 {
            let restored = restore(folder.path()).unwrap();
            assert!(restored.interfaces == 0 && restored.failed.len() == 1, "{restored:?}");
            assert!(restored.failed[0].starts_with("qf-none: it is in another network namespace"), "{restored:?}");
        }
        // A service in this namespace records and forgets interfaces of its own.
        let mut book = Book::open(folder.path());
        book.record("qf-own", 7, &Former::Default { kind: "noqueue".into() }).unwrap();
        let both = read(&path).unwrap().unwrap();
        assert_eq!((both.entries.len(), both.elsewhere.len(), both.elsewhere[0].namespace), (1, 1, other));
        book.forget(7).unwrap();
        move_to(namespace());
        assert_eq!(restore(folder.path()).unwrap(), NetRestored { interfaces: 1, failed: Vec::new() });
        assert!(!path.exists());
    }

    /// The file of a new network namespace, and its inode.
    fn another_namespace() -> Option<(fs::File, u64)> {
        let make = || {
            super::super::testing::own_network().ok()?;
            let file = fs::File::open("/proc/thread-self/ns/net").ok()?;
            let inode = file.metadata().ok()?.ino();
            Some((file, inode))
        };
        std::thread::spawn(make).join().unwrap()
    }

    #[test]
    fn namespaces_that_are_gone_leave_the_record_and_the_others_are_bounded() {
        let group = |namespace| Elsewhere { namespace, entries: Vec::new() };
        let numbers = |groups: Vec<Elsewhere>| groups.iter().map(|group| group.namespace).collect::<Vec<_>>();
        let recorded = || vec![group(5), group(6), group(7)];
        assert_eq!(numbers(kept(recorded(), || Some([7, 5, 1].into()))), [5, 7]);
        assert_eq!(numbers(kept(recorded(), || None)), [5, 6, 7], "nothing is certain");
        let many = (1..=200).map(group).collect();
        assert_eq!(numbers(kept(many, || None)), Vec::from_iter(137..=200), "the latest stay");
    }

    #[test]
    fn files_of_other_programs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for text in ["", "{}", r#"{"boot":"","namespace":1,"entries":[{"interface":"lo"}]}"#] {
            fs::write(&path, text).unwrap();
            let refused = restore(folder.path()).unwrap_err().problem();
            assert!(refused.next_step.starts_with("inspect the file"), "{text:?}: {refused:?}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(restore(folder.path()).unwrap_err().to_string().contains("regular file"));
    }

    #[test]
    fn the_record_of_an_earlier_boot_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), r#"{"boot":"x","namespace":1,"entries":[]}"#).unwrap();
        assert_eq!(restore(folder.path()).unwrap(), NetRestored::default());
        assert!(!folder.path().join(FILE).exists());
    }
}
