//! Wakes when control groups appear, vanish, get their first process or lose their last one.
//!
//! The kernel reports the first process and the last one of version 2 groups only, as a change of `cgroup.events`. It
//! reports no process that joins others. It does not report either that `cgroup.events` vanishes with its group; what
//! tells so is the folder above.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Events of one read of the kernel.
const BUFFER: usize = 4_096;

/// The watched folders and files. The descriptor becomes readable when one changes.
#[derive(Debug)]
pub struct GroupWatch {
    fd: OwnedFd,
    watched: BTreeMap<PathBuf, i32>,
}

impl GroupWatch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// The user has too many of these descriptors (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<GroupWatch> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(GroupWatch { fd, watched: BTreeMap::new() })
    }

    /// Watches exactly these folders (for groups that appear and vanish) and files (for changes). Returns whether one of
    /// them is new: its last change may have been before.
    pub fn watch(&mut self, wanted: &BTreeSet<PathBuf>) -> bool {
        let fd = &self.fd;
        self.watched.retain(|path, number| {
            let is_wanted = wanted.contains(path);
            if !is_wanted {
                // Fails if the folder is gone, and the watch with it.
                let _ = inotify::remove_watch(fd, *number);
            }
            is_wanted
        });
        let mut is_any_new = false;
        for path in wanted {
            let flags = if path.is_dir() { WatchFlags::CREATE | WatchFlags::DELETE } else { WatchFlags::MODIFY };
            if !self.watched.contains_key(path)
                && let Ok(number) = inotify::add_watch(&self.fd, path, flags)
            {
                self.watched.insert(path.clone(), number);
                is_any_new = true;
            }
        }
        is_any_new
    }

    /// Takes all events. Forgets folders and files that are gone, or may have been replaced by others of the same name:
    /// they need a new watch.
    pub fn take_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let (mut gone, mut replaced) = (BTreeSet::new(), BTreeSet::new());
        while let Ok(event) = reader.next() {
            let flags = event.events();
            if flags.contains(ReadFlags::IGNORED) {
                gone.insert(event.wd());
            }
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                replaced.insert(PathBuf::from("/"));
            }
            if flags.intersects(ReadFlags::CREATE | ReadFlags::DELETE)
                && let Some(name) = event.file_name()
                && let Some((folder, _)) = self.watched.iter().find(|(_, number)| **number == event.wd())
            {
                replaced.insert(folder.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
        let fd = &self.fd;
        self.watched.retain(|path, number| {
            let is_replaced = path.ancestors().any(|part| replaced.contains(part));
            if is_replaced {
                // Fails if the watch is gone already.
                let _ = inotify::remove_watch(fd, *number);
            }
            !is_replaced && !gone.contains(number)
        });
    }
}

impl AsFd for GroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_woken(watch: &GroupWatch) -> bool {
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn a_folder_that_appears_wakes_and_one_that_came_back_is_watched_again() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("group");
        let wanted = BTreeSet::from([top.path().to_owned(), group.clone()]);
        let mut watch = GroupWatch::new().unwrap();
        assert!(watch.watch(&wanted) && !is_woken(&watch));
        for _ in 0..2 {
            fs::create_dir(&group).unwrap();
            assert!(is_woken(&watch));
            watch.take_events();
            assert!(watch.watch(&wanted), "the group has a new watch");
            fs::create_dir(group.join("below")).unwrap();
            assert!(is_woken(&watch));
            watch.take_events();
            assert!(!watch.watch(&wanted) && !is_woken(&watch));
            fs::remove_dir_all(&group).unwrap();
            watch.take_events();
        }
        assert!(!watch.watch(&BTreeSet::new()));
        fs::create_dir(&group).unwrap();
        watch.take_events();
        fs::create_dir(top.path().join("other")).unwrap();
        assert!(!is_woken(&watch), "nothing is watched any more");
    }

    /// The second name of the file keeps its watch alive without a word, as the kernel does for the file of a group.
    #[test]
    fn a_file_whose_folder_was_made_again_before_a_look_is_watched_again() {
        let top = tempfile::tempdir().unwrap();
        let (group, file) = (top.path().join("group"), top.path().join("group/events"));
        let make = |text: &str| {
            fs::create_dir(&group).unwrap();
            fs::write(&file, text).unwrap();
        };
        make("old");
        fs::hard_link(&file, top.path().join("kept")).unwrap();
        let wanted = BTreeSet::from([top.path().to_owned(), file.clone()]);
        let mut watch = GroupWatch::new().unwrap();
        assert!(watch.watch(&wanted));
        fs::remove_dir_all(&group).unwrap();
        make("new");
        watch.take_events();
        assert!(watch.watch(&wanted), "the file has a new watch");
        watch.take_events();
        assert!(!watch.watch(&wanted) && !is_woken(&watch));
        fs::write(&file, "newer").unwrap();
        assert!(is_woken(&watch));
    }
}
