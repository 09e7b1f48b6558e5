//! Journals of ordinary users, carried out by root: a `qfabric run` with file capabilities that was killed.
//!
//! ```text
//! /run/user/1000/qfabric/journals/1234-567890-0/journal.jsonl      of user 1000
//! ```
//! The user can write such a journal, so root does nothing with it that the user could not do: a thread that belongs to
//! this user leaves SCHED_DEADLINE and becomes an ordinary thread. All other records are refused. Root removes nothing
//! from a user's folder, because the user could put a link in the place of a folder; the settled file becomes empty.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use qfabric_types::{Nanos, ThreadId};

use super::own::{self, Replayed};
use super::undo::{Unrestored, put_back_all, read_of};
use super::{FILE, JournalError, Restored, Touched, file, io_error};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{clock, files, threads};

/// Folder of the users' run folders.
pub const USERS: &str = "/run/user";
/// Largest number of users whose folders are read.
const MOST_USERS: usize = 1_024;
/// No journal is begun after this time, so that users cannot delay the start of a service for long. A later call
/// continues.
const LONGEST: Nanos = Nanos::from_millis(10_000);

/// Puts back the threads that killed services of ordinary users left reserved; `users` is [`USERS`]. Returns each
/// journal that listed changes, with the result. Only root may call this with effect.
pub fn restore_stale_of_users(users: &Path) -> Vec<Replayed> {
    let entries = files::folder(users).into_iter().flatten().take(MOST_USERS);
    let uids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let end = clock::now() + LONGEST;
    let mut replayed = Vec::new();
    for uid in uids.filter(|uid| *uid != 0) {
        let run = users.join(uid.to_string()).join("qfabric");
        // A user whose folder cannot be used has no changes that root could undo.
        for folder in own::stale_of(&run, uid).unwrap_or_default() {
            if clock::now() > end {
                return replayed;
            }
            replayed.push((folder.join(FILE), restore_journal(&folder.join(FILE), uid)));
        }
    }
    replayed.retain(|(_, restored)| !matches!(restored, Ok(restored) if *restored == Restored::default()));
    replayed
}

fn restore_journal(path: &Path, uid: u32) -> Result<Restored, JournalError> {
    let Some(file) = file::open_held(path, false)? else { return Ok(Restored::default()) };
    let left = read_of(path, &file, uid).map_err(without_text)?;
    let Some(left) = left else { return Ok(Restored::default()) };
    let mut done = Restored::default();
    let threads = allowed(left, uid, &mut done);
    put_back_all(threads.into_iter(), &mut done);
    if done.failed.is_empty() {
        file.set_len(0).map_err(|e| io_error(path, e))?;
    }
    Ok(done)
}

/// An error that shows none of the user's text on root's terminal.
fn without_text(error: JournalError) -> JournalError {
    match error {
        JournalError::Invalid { path, line, .. } => {
            JournalError::Invalid { path, line, why: "this program would not write it".to_owned() }
        }
        other => other,
    }
}

/// The threads that may be put back. Every other change that is still in force becomes a failure.
fn allowed(mut left: Unrestored, uid: u32, done: &mut Restored) -> Vec<Touched> {
    left.drop_undone();
    let (allowed, refused): (Vec<_>, Vec<_>) = left.threads.into_values().partition(|thread| is_allowed(thread, uid));
    for thread in refused {
        done.failed.push(format!("thread {}: a journal of user {uid} may not change it", thread.tid));
    }
    let others = left.dispatched.len() + left.features.len() + left.knobs.len() + left.clamped.len();
    if others > 0 {
        done.failed.push(format!("{others} other changes: run `qfabric restore` as user {uid}"));
    }
    allowed
}

fn is_allowed(thread: &Touched, uid: u32) -> bool {
    let SchedAttr { policy, nice, .. } = thread.was;
    let is_ordinary = [Policy::OTHER, Policy::BATCH, Policy::IDLE].contains(&policy) && nice >= 0;
    is_ordinary && belongs_to(thread.tid, uid)
}

/// True if all of the user numbers of `thread` are `uid`.
fn belongs_to(thread: ThreadId, uid: u32) -> bool {
    let status = files::text(threads::file(thread, "status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    numbers.is_some_and(|numbers| numbers.split_ascii_whitespace().all(|number| number == uid.to_string()))
}

/// Checks a folder of a user: no link, and nobody else may write to it.
pub(super) fn check_folder(folder: &Path, uid: u32) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    match meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it is no folder of user {uid} alone"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, Command};

    use qfabric_types::Reservation;

    use super::*;
    use crate::journal::Journal;
    use crate::testing::{live_lock, may_reserve, skip};

    const UID: u32 = 54_321;

    /// A sleeping process of a user with a small reservation.
    fn reserved(uid: u32) -> (Child, Touched) {
        let child = Command::new("sleep").arg("600").uid(uid).spawn().unwrap();
        let tid = ThreadId(child.id() as i32);
        let before = Touched {
            tid,
            start: threads::start_time(tid).unwrap(),
            was: SchedAttr::of(tid).map(|_| SchedAttr::fair(0)).unwrap(),
            slack_ns: None,
        };
        let reservation = Reservation::new(Nanos::from_micros(200), Nanos::from_millis(10)).unwrap();
        SchedAttr::deadline(reservation, false).give(tid).unwrap();
        (child, before)
    }

    /// The journal of a killed process of user [`UID`] below `users`.
    fn journal_of_a_user(users: &Path, records: &[Touched]) -> PathBuf {
        let folder = users.join(UID.to_string()).join("qfabric/journals/4000000-77-3");
        fs::create_dir_all(&folder).unwrap();
        let mut journal = Journal::open(&folder).unwrap();
        records.iter().for_each(|record| journal.touching(*record).unwrap());
        for path in [folder.join(FILE), folder.clone()].iter().flat_map(|path| path.ancestors()) {
            if path.starts_with(users.join(UID.to_string())) {
                chown(path, Some(UID), None).unwrap();
            }
        }
        rustix::fs::chmod(folder.parent().unwrap(), rustix::fs::Mode::RWXU).unwrap();
        folder.join(FILE)
    }

    fn policies(children: &[Child]) -> Vec<Policy> {
        children.iter().map(|child| SchedAttr::of(ThreadId(child.id() as i32)).unwrap().policy).collect()
    }

    #[test]
    fn root_puts_back_the_threads_of_a_users_journal_and_no_others() {
        let _alone = live_lock();
        if !may_reserve() {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return skip("this test needs root");
        }
        let ((child, mine), (root, of_root), (greedy, wants)) = (reserved(UID), reserved(0), reserved(UID));
        let fifo = SchedAttr { policy: Policy::FIFO, priority: 99, ..SchedAttr::fair(0) };
        let users = tempfile::tempdir().unwrap();
        let path = journal_of_a_user(users.path(), &[mine, of_root, Touched { was: fifo, ..wants }]);
        let found = restore_stale_of_users(users.path());
        let mut children = [child, root, greedy];
        let after = policies(&children);
        children.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
        assert_eq!((found.len(), &found[0].0), (1, &path), "{found:?}");
        let restored = found[0].1.as_ref().unwrap();
        assert_eq!((restored.threads, restored.failed.len()), (1, 2), "{restored:?}");
        assert_eq!(after, [Policy::OTHER, Policy::DEADLINE, Policy::DEADLINE]);
    }

    #[test]
    fn a_folder_of_another_user_is_not_read_for_a_user() {
        let users = tempfile::tempdir().unwrap();
        fs::create_dir_all(users.path().join("54321/qfabric/journals/4000000-77-3")).unwrap();
        assert!(own::stale_of(&users.path().join("54321/qfabric"), UID).is_err());
        assert_eq!(restore_stale_of_users(users.path()).len(), 0);
    }
}
