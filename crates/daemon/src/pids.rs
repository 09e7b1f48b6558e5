//! Process numbers of callers in containers. A process in a pid namespace of its own knows processes and threads under other
//! numbers than this host; the kernel lists both in `/proc/PID/status` (`NSpid`, the outermost namespace first).
//!
//! Requests about applications are translated to the numbers of this host, and answers to those of the caller. What the
//! caller cannot see has the number 0. Processes in namespaces below the caller's cannot be named.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use qfabric_linux::threads;
use qfabric_types::ThreadId;
use qfabric_types::api::{Application, ApplicationScope, Problem};

use crate::auth::Peer;
use crate::problem;

const PROC: &str = "/proc";

/// The numbers that a caller uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Those of this host.
    Host,
    /// Those of another pid namespace: its depth, as the number of entries of `NSpid`, and its inode.
    Namespace { peer: i32, depth: usize, inode: u64 },
}

impl Numbers {
    /// The numbers of the caller. 0 is this service itself.
    pub(crate) fn of(peer: Peer) -> Result<Numbers, Problem> {
        if peer.pid == 0 {
            return Ok(Numbers::Host);
        }
        let depth = |process: &str| Some(numbers(&Path::new(PROC).join(process))?.len());
        let (theirs, own) = (depth(&peer.pid.to_string()).ok_or_else(|| problem::gone(peer.pid))?, depth("self"));
        if Some(theirs) == own {
            return Ok(Numbers::Host);
        }
        let inode = namespace(peer.pid).ok_or_else(|| problem::other_pid_namespace(peer.pid))?;
        Ok(Numbers::Namespace { peer: peer.pid, depth: theirs, inode })
    }

    /// The number on this host of the process that the caller knows as `pid`.
    pub(crate) fn process(&self, pid: i32) -> Result<i32, Problem> {
        let Numbers::Namespace { peer, .. } = *self else { return Ok(pid) };
        // The caller and its children first: most requests are about them.
        let near = std::iter::once(peer).chain(threads::descendants(peer));
        let all = fs::read_dir(PROC).into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = near.chain(all).find(|process| self.is(*process, pid));
        found.ok_or_else(|| problem::not_in_namespace(pid, peer))
    }

    /// Whether the caller knows the process as `pid`.
    pub(crate) fn is(&self, process: i32, pid: i32) -> bool {
        match *self {
            Numbers::Host => process == pid,
            Numbers::Namespace { depth, inode, .. } => {
                let known = numbers(&Path::new(PROC).join(process.to_string()));
                known.is_some_and(|known| known.len() == depth && known[depth - 1] == pid)
                    && namespace(process) == Some(inode)
            }
        }
    }

    /// The scope with the number on this host of a thread of `process`.
    pub(crate) fn scope(&self, process: i32, covers: ApplicationScope) -> ApplicationScope {
        match (self, covers) {
            (Numbers::Namespace { .. }, ApplicationScope::Thread(thread)) => {
                let threads = threads::list(process).unwrap_or_default();
                let found = threads.into_iter().find(|candidate| self.shown(*candidate) == thread);
                // A number of this host that no thread has.
                ApplicationScope::Thread(found.unwrap_or(ThreadId(i32::MAX)))
            }
            _ => covers,
        }
    }

    /// The caller's number of a process or thread of this host.
    fn shown(&self, thread: ThreadId) -> ThreadId {
        match *self {
            Numbers::Host => thread,
            Numbers::Namespace { depth, inode, .. } => {
                let known = numbers(&Path::new(PROC).join(thread.0.to_string())).unwrap_or_default();
                let number = known.get(depth - 1).filter(|_| known.len() == depth);
                ThreadId(number.copied().filter(|_| namespace(thread.0) == Some(inode)).unwrap_or(0))
            }
        }
    }

    /// Replaces the numbers of an application by those of the caller.
    pub(crate) fn show(&self, application: &mut Application) {
        if *self != Numbers::Host {
            application.pid = self.shown(ThreadId(application.pid)).0;
            application.threads.iter_mut().for_each(|thread| thread.tid = self.shown(thread.tid));
        }
    }
}

/// The numbers of a process or thread, the outermost namespace first. `None`: it has ended.
fn numbers(folder: &Path) -> Option<Vec<i32>> {
    parse(&fs::read_to_string(folder.join("status")).ok()?)
}

fn parse(status: &str) -> Option<Vec<i32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let numbers: Vec<i32> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    (!numbers.is_empty()).then_some(numbers)
}

/// The inode of the pid namespace of a process.
fn namespace(process: i32) -> Option<u64> {
    Some(fs::metadata(format!("{PROC}/{process}/ns/pid")).ok()?.ino())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use qfabric_types::Owner;

    use super::*;

    #[test]
    fn the_numbers_of_a_process_are_read_from_the_outermost_namespace_inwards() {
        assert_eq!(parse("Name:\tx\nNSpid:\t4711\t17\t1\n"), Some(vec![4711, 17, 1]));
        assert_eq!((parse("NSpid:\n"), parse("NSpid:\tx\n"), parse("")), (None, None, None));
    }

    #[test]
    fn a_caller_in_the_same_namespace_uses_the_numbers_of_this_host() {
        let owner = Owner { uid: 0, gid: 0 };
        let own = std::process::id() as i32;
        let numbers = Numbers::of(Peer { pid: own, owner }).unwrap();
        assert_eq!((numbers, numbers.process(7).ok()), (Numbers::Host, Some(7)));
        assert_eq!(Numbers::of(Peer { pid: 0, owner }), Ok(Numbers::Host));
        assert_eq!(Numbers::of(Peer { pid: i32::MAX, owner }).unwrap_err().code, "gone");
    }

    /// In the namespace, the shell is process 1 and its child process 2.
    #[test]
    fn a_caller_in_a_container_names_its_processes_by_its_own_numbers() {
        let mut command = Command::new("unshare");
        let command = command.args(["--pid", "--fork", "--kill-child", "sh", "-c", "sleep 60 & wait"]);
        let Ok(mut container) = command.stderr(Stdio::null()).spawn() else { return };
        let below = loop {
            let below = threads::descendants(container.id() as i32);
            if below.len() == 2 || container.try_wait().unwrap().is_some() {
                break below;
            }
        };
        let &[shell, child] = &below[..] else {
            return qfabric_linux::testing::skip("this test needs a pid namespace that it may make");
        };
        let numbers = Numbers::of(Peer { pid: shell, owner: Owner { uid: 0, gid: 0 } }).unwrap();
        assert_eq!((numbers.process(1).ok(), numbers.process(2).ok()), (Some(shell), Some(child)));
        assert_eq!(numbers.process(child).unwrap_err().code, "other_pid_namespace");
        assert_eq!((numbers.shown(ThreadId(child)), numbers.shown(ThreadId(1))), (ThreadId(2), ThreadId(0)));
        let scope = |thread| numbers.scope(child, ApplicationScope::Thread(ThreadId(thread)));
        assert_eq!(scope(2), ApplicationScope::Thread(ThreadId(child)));
        assert_eq!(scope(child), ApplicationScope::Thread(ThreadId(i32::MAX)));
        container.kill().unwrap();
        container.wait().unwrap();
    }
}
