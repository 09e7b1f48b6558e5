//! Which network namespaces exist, as far as the processes of this host show it.
//!
//! The kernel lists no namespaces. One exists as long as something holds it: a thread in it, an open file, or a mount
//! as `ip netns` makes. A namespace that only a socket holds is not found here; no program can enter it by name.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use qfabric_types::ThreadId;
use rustix::process::geteuid;

use crate::books::FIRST_PIDS;
use crate::{files, threads};

/// The inodes of the network namespaces that exist. `None`: not certain, because this process does not see all
/// processes of the host, or may not look at each.
pub(super) fn namespaces() -> Option<BTreeSet<u64>> {
    let sees_all = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own == Path::new(FIRST_PIDS));
    if !sees_all || !geteuid().is_root() || threads::name(ThreadId(1)).is_none() {
        return None;
    }
    // A namespace that moves from process to process while one look goes on may be missed; hardly by two looks.
    let mut found = held(Path::new("/proc")).ok()?;
    found.append(&mut held(Path::new("/proc")).ok()?);
    Some(found)
}

/// The inodes of the network namespaces that the processes in `proc` hold.
fn held(proc: &Path) -> io::Result<BTreeSet<u64>> {
    let (mut found, mut mounts) = (BTreeSet::new(), BTreeSet::new());
    for process in numbered(proc)? {
        let threads = numbered(&process.join("task"))?;
        let of_threads = threads.into_iter().map(|thread| thread.join("ns/net"));
        for link in of_threads.chain(numbered(&process.join("fd"))?) {
            found.extend(target(&link)?.and_then(|target| inode(&target)));
        }
        let Some(space) = target(&process.join("ns/mnt"))?.filter(|space| !mounts.contains(space)) else { continue };
        // A process that ends here leaves the mounts to the next one of its mount namespace.
        if let Some(table) = until_ended(files::text(process.join("mountinfo")))? {
            mounts.insert(space);
            found.extend(table.split_whitespace().filter_map(inode));
        }
    }
    Ok(found)
}

/// The entries of a folder whose names are numbers; none if the process has ended.
fn numbered(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = until_ended(files::folder(folder))? else { return Ok(Vec::new()) };
    let is_number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = until_ended(entry)?.map(|entry| entry.path());
        found.extend(path.filter(is_number));
    }
    Ok(found)
}

/// What a link names; `None` if it, or its process, is gone.
fn target(link: &Path) -> io::Result<Option<String>> {
    Ok(until_ended(std::fs::read_link(link))?.map(|target| target.to_string_lossy().into_owned()))
}

/// `None`: the process has ended. A process that has ended, but was not waited for, has no mounts (`EINVAL`).
fn until_ended<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The inode in the kernel's name of a network namespace, such as `net:[4026531840]`.
fn inode(name: &str) -> Option<u64> {
    name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn threads_open_files_and_mounts_hold_a_namespace() {
        let proc = tempfile::tempdir().unwrap();
        let make = |pid: u32, network: &str| {
            let process = proc.path().join(pid.to_string());
            for folder in ["ns", "fd", "task/1/ns", "task/2/ns"] {
                fs::create_dir_all(process.join(folder)).unwrap();
            }
            symlink("net:[1]", process.join("task/1/ns/net")).unwrap();
            symlink(network, process.join("task/2/ns/net")).unwrap();
            symlink("mnt:[9]", process.join("ns/mnt")).unwrap();
            process
        };
        let first = make(7, "net:[2]");
        symlink("socket:[3]", first.join("fd/0")).unwrap();
        symlink("net:[4]", first.join("fd/1")).unwrap();
        fs::write(first.join("mountinfo"), "30 29 0:4 net:[5] /run/netns/a rw - nsfs nsfs rw\n").unwrap();
        // Another process of the same mount namespace, one that has ended, and what is no process.
        make(8, "net:[6]");
        fs::create_dir(proc.path().join("9")).unwrap();
        fs::create_dir(proc.path().join("net")).unwrap();
        assert_eq!(held(proc.path()).unwrap(), [1, 2, 4, 5, 6].into());
    }

    #[test]
    fn the_own_namespace_exists() {
        let own = inode(&target(Path::new("/proc/thread-self/ns/net")).unwrap().unwrap()).unwrap();
        assert!(namespaces().is_none_or(|all| all.contains(&own)));
    }
}
