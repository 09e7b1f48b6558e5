//! Network namespaces in refusals. Interfaces, addresses and sockets are those of the daemon's namespace; a caller in a
//! container usually has another one, and names what the daemon does not see.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use qfabric_types::api::Problem;

use crate::auth::Peer;

/// Where `ip netns` names network namespaces (ip-netns(8)).
const NAMES: &str = "/run/netns";
/// Names that are compared at most, so that a refusal never takes long.
const MOST_NAMES: usize = 1_024;

/// Names the daemon's network namespace and the caller's in a refusal that can be due to them: an interface or stream
/// is not found, or the packets are not the caller's. Leaves other refusals as they are.
pub(super) fn named(problem: Problem, peer: Peer) -> Problem {
    let is_missing = problem.code == "net_not_found";
    if !is_missing && problem.code != "net_not_permitted" {
        return problem;
    }
    // The thread, because a service in another program belongs to the thread that started it.
    let Some(own) = Namespace::of("thread-self") else { return problem };
    match Namespace::of(&peer.pid.to_string()) {
        Some(theirs) if theirs != own => apart(problem, own, theirs),
        Some(_) if is_missing => {
            let message = format!("{}; the daemon and you are in network namespace {own}", problem.message);
            Problem { message, ..problem }
        }
        // The caller has ended, or this process may not look at it.
        None if is_missing => {
            Problem { message: format!("{}; the daemon is in network namespace {own}", problem.message), ..problem }
        }
        _ => problem,
    }
}

fn apart(problem: Problem, own: Namespace, theirs: Namespace) -> Problem {
    let message = format!("{}; the daemon is in network namespace {own}, but you are in {theirs}", problem.message);
    let next_step = format!(
        "{}; only interfaces and sockets of the daemon's namespace count: run the program there \
         (nsenter --target {} --net PROGRAM), or give its container the host's network",
        problem.next_step,
        std::process::id()
    );
    Problem { message, next_step, ..problem }
}

/// A network namespace, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Namespace {
    device: u64,
    inode: u64,
}

impl Namespace {
    /// The namespace of a process, or of the calling thread (`thread-self`).
    fn of(process: &str) -> Option<Namespace> {
        Namespace::at(Path::new(&format!("/proc/{process}/ns/net")))
    }

    fn at(file: &Path) -> Option<Namespace> {
        let found = fs::metadata(file).ok()?;
        Some(Namespace { device: found.dev(), inode: found.ino() })
    }

    /// The first name of this namespace in `folder`.
    fn name_in(self, folder: &Path) -> Option<String> {
        let entries = fs::read_dir(folder).ok()?.flatten().take(MOST_NAMES);
        let mut named = entries.filter(|entry| Namespace::at(&entry.path()) == Some(self));
        named.next().map(|entry| entry.file_name().to_string_lossy().into_owned())
    }
}

/// The inode, as `lsns --type net` and `readlink /proc/PID/ns/net` show it, and a name if there is one.
impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inode)?;
        match self.name_in(Path::new(NAMES)) {
            Some(name) => write!(f, " ({name:?})"),
            None if Namespace::of("1") == Some(*self) => f.write_str(" (that of process 1)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use qfabric_linux::namespace::{self, Namespace as Other};
    use qfabric_linux::testing::skip;
    use qfabric_types::Owner;

    use super::*;
    use crate::net::problems;

    fn root(pid: i32) -> Peer {
        Peer { pid, owner: Owner { uid: 0, gid: 0 } }
    }

    #[test]
    fn a_namespace_is_shown_by_its_inode_and_found_under_its_name() {
        let own = Namespace::of("thread-self").unwrap();
        assert!(own.to_string().starts_with(&own.inode.to_string()));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("left-over"), "").unwrap();
        assert_eq!(own.name_in(folder.path()), None);
        std::os::unix::fs::symlink("/proc/thread-self/ns/net", folder.path().join("blue")).unwrap();
        assert_eq!(own.name_in(folder.path()).as_deref(), Some("blue"));
        assert_eq!(own.name_in(&folder.path().join("missing")), None);
    }

    #[test]
    fn a_caller_that_has_ended_learns_of_the_daemons_namespace_alone() {
        let told = named(problems::not_attached("qf9"), root(i32::MAX));
        let own = Namespace::of("thread-self").unwrap();
        assert!(told.message.ends_with(&format!("the daemon is in network namespace {own}")), "{told:?}");
        assert_eq!(told.next_step, problems::not_attached("qf9").next_step);
    }

    #[test]
    fn a_caller_in_another_namespace_learns_of_both_and_of_the_next_step() {
        if !namespace::may_make() {
            return skip("this test needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
        }
        let mut command = Command::new("sleep");
        Other::new().unwrap().enter_at_exec(command.arg("60")).unwrap();
        let mut caller = command.spawn().unwrap();
        let pid = i32::try_from(caller.id()).unwrap();
        let (own, theirs) = (Namespace::of("thread-self").unwrap(), Namespace::of(&pid.to_string()).unwrap());
        for refusal in [problems::not_attached("qf9"), problems::not_open("qf9", 7)] {
            let told = named(refusal.clone(), root(pid));
            let both = format!("network namespace {own}, but you are in {theirs}");
            assert!(told.message.starts_with(&refusal.message) && told.message.ends_with(&both), "{told:?}");
            assert!(told.next_step.starts_with(&refusal.next_step) && told.next_step.contains("nsenter"), "{told:?}");
        }
        let unrelated = problems::over_delay("full".to_owned());
        assert_eq!(named(unrelated.clone(), root(pid)), unrelated);
        caller.kill().unwrap();
        caller.wait().unwrap();
    }
}
