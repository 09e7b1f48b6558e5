//! Who asks, and what it may touch: peer credentials decide, nothing that the caller says of itself.
//!
//! A user touches only processes whose real, effective and saved user are all its own (a set-uid program it
//! started is not its own), root touches all. A process is pinned by a pidfd before its folder is read, and is
//! still alive after: so what was read is about the process that the pidfd means, however fast numbers are
//! reused. An application belongs to its process's user, whoever asked for it, and counts against that user's
//! maximum.

use std::io;

use qfabric_linux::{threads, watch};
use qfabric_types::api::{Covers, Problem};
use qfabric_types::{Owner, ThreadId};
use rustix::net::sockopt::socket_peercred;

use crate::problem;

/// The process at the other end of a socket, as the kernel vouches for it at the time of its connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub pid: i32,
    pub owner: Owner,
}

impl Peer {
    /// Of a connected Unix socket.
    pub fn of(socket: impl std::os::fd::AsFd) -> io::Result<Peer> {
        let credentials = socket_peercred(socket)?;
        let owner = Owner { uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() };
        Ok(Peer { pid: credentials.pid.as_raw_nonzero().get(), owner })
    }

    /// Whether it may change what concerns the whole host: root may, and the user that the service runs as.
    pub fn administers(self) -> bool {
        let own = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        self.may_touch(own)
    }

    /// Whether it may change what belongs to `owner`.
    pub fn may_touch(self, owner: Owner) -> bool {
        self.owner.uid == 0 || self.owner.uid == owner.uid
    }
}

/// A process that a contract is for: it is alive, and belongs to `owner`.
#[derive(Debug)]
pub(crate) struct Target {
    pub pid: i32,
    pub owner: Owner,
    /// All groups of its process: real, effective, saved, supplementary.
    pub groups: Vec<u32>,
    pub watch: watch::Process,
}

/// Finds the process `pid` for `peer`, and the thread where only one is meant.
pub(crate) fn target(peer: Peer, pid: i32, covers: Covers) -> Result<Target, Problem> {
    if pid <= 0 {
        return Err(problem::invalid(format!("pid is {pid}; name a process by its positive number")));
    }
    let watch = watch::Process::watch(pid).map_err(|error| problem::unwatchable(pid, &error))?;
    let users = Users::of(pid).ok_or_else(|| problem::gone(pid))?;
    if !users.belong_to(peer) {
        return Err(problem::not_yours(pid, users.owner().uid, peer.owner.uid));
    }
    if let Covers::Thread(thread) = covers {
        check_thread(pid, thread)?;
    }
    if watch.ended() {
        return Err(problem::gone(pid));
    }
    Ok(Target { pid, owner: users.owner(), groups: users.groups, watch })
}

/// Whether the process is still all of `owner`: it may have become a set-uid program since it was looked at.
pub(crate) fn still_owns(owner: Owner, pid: i32) -> bool {
    let peer = Peer { pid, owner };
    Users::of(pid).is_some_and(|users| users.belong_to(peer))
}

fn check_thread(pid: i32, thread: ThreadId) -> Result<(), Problem> {
    match threads::process_of(thread) {
        Some(process) if process == pid => Ok(()),
        _ => Err(problem::no_such_thread(pid, thread)),
    }
}

/// The users (real, effective, saved) and the groups a process runs under.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Users {
    uids: [u32; 3],
    /// The effective group.
    gid: u32,
    /// All of them.
    groups: Vec<u32>,
}

impl Users {
    fn of(pid: i32) -> Option<Users> {
        Users::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Users> {
        let uids = three(status, "Uid:")?;
        let gids = three(status, "Gid:")?;
        let groups = gids.into_iter().chain(numbers(status, "Groups:").into_iter().flatten()).collect();
        Some(Users { uids, gid: gids[1], groups })
    }

    fn belong_to(&self, peer: Peer) -> bool {
        peer.owner.uid == 0 || self.uids.iter().all(|uid| *uid == peer.owner.uid)
    }

    fn owner(&self) -> Owner {
        Owner { uid: self.uids[1], gid: self.gid }
    }
}

fn numbers<'a>(status: &'a str, key: &str) -> Option<impl Iterator<Item = u32> + 'a> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.split_whitespace().map_while(|word| word.parse().ok()))
}

fn three(status: &str, key: &str) -> Option<[u32; 3]> {
    let mut numbers = numbers(status, key)?;
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tcat\nState:\tR\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t44\t100\t100\nGroups:\t27 1000 \n";

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, owner: Owner { uid, gid: 7 } }
    }

    #[test]
    fn a_process_belongs_to_its_effective_user_and_group() {
        let users = Users::parse(STATUS).unwrap();
        assert_eq!(users.owner(), Owner { uid: 1000, gid: 44 });
        assert!(users.belong_to(peer(1000)) && users.belong_to(peer(0)) && !users.belong_to(peer(1001)));
        assert_eq!(users.groups, [100, 44, 100, 27, 1000]);
    }

    #[test]
    fn a_set_uid_program_is_not_its_starters() {
        let sudo = STATUS.replace("1000\t1000\t1000\t1000", "1000\t0\t0\t0");
        assert!(!Users::parse(&sudo).unwrap().belong_to(peer(1000)));
    }

    #[test]
    fn nonsense_status_is_nobodys() {
        for status in ["", "Uid:\n", "Uid:\t1\t2\n", "Uid:\tx\ty\tz\n", "Uid:\t1\t2\t3\nGid:\n"] {
            assert_eq!(Users::parse(status), None, "{status:?}");
        }
    }

    #[test]
    fn the_caller_may_name_itself_and_its_threads_only() {
        let me = std::process::id() as i32;
        let mine = Peer { pid: me, owner: threads_owner() };
        assert_eq!(target(mine, me, Covers::Program).unwrap().owner.uid, mine.owner.uid);
        assert_eq!(target(mine, me, Covers::Thread(ThreadId(1))).unwrap_err().code, "no_such_thread");
        let stranger = Peer { pid: me, owner: Owner { uid: 54_321, gid: 54_321 } };
        assert_eq!(target(stranger, me, Covers::Program).unwrap_err().code, "not_yours");
        assert!(still_owns(mine.owner, me) && !still_owns(stranger.owner, me));
    }

    #[test]
    fn nonsense_and_gone_processes_are_refused_by_name() {
        let root = peer(0);
        assert_eq!(target(root, 0, Covers::Program).unwrap_err().code, "invalid");
        assert_eq!(target(root, -4, Covers::Program).unwrap_err().code, "invalid");
        assert_eq!(target(root, i32::MAX, Covers::Program).unwrap_err().code, "gone");
    }

    fn threads_owner() -> Owner {
        Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}
