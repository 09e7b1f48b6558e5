//! Decides which user a caller is and which processes it may change. Only peer credentials count, never the
//! caller's words.
//!
//! A user may change only processes whose real, effective and saved user are all this user (so not a set-uid
//! program that the user started); root may change all. The daemon opens a pidfd before it reads the process's
//! folder in `/proc` and checks afterwards that the process is still alive. So the facts belong to the process of
//! the pidfd, however fast the kernel reuses process ids. The numbers of a caller in a pid namespace of its own are
//! translated ([`crate::pids`]) where it asks for contracts; elsewhere they are refused. An application belongs to the
//! user of its process, no matter which user requested the contract, and counts against that user's maximum.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use qfabric_linux::{threads, watch};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::{Owner, ThreadId};
use rustix::net::sockopt::socket_peercred;

use crate::pids::Numbers;
use crate::{connected, problem};

/// Handlers of other hosts run under these user ids, one for each host. No process of this host is served as one of them.
pub(crate) const USERS_OF_HOSTS: Range<u32> = 0xffff_0000..0xffff_1000;

/// The process at the other end of a socket, as the kernel recorded it when the process connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub pid: i32,
    pub owner: Owner,
}

impl Peer {
    /// Reads the credentials of a connected Unix socket. An error also if they are those of handlers of other hosts.
    pub(crate) fn of(socket: impl std::os::fd::AsFd) -> io::Result<Peer> {
        let credentials = socket_peercred(socket)?;
        let owner = Owner { uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() };
        Peer { pid: credentials.pid.as_raw_nonzero().get(), owner }.of_this_host()
    }

    fn of_this_host(self) -> io::Result<Peer> {
        match USERS_OF_HOSTS.contains(&self.owner.uid) {
            true => Err(io::Error::other(format!("user {} stands for another host", self.owner.uid))),
            false => Ok(self),
        }
    }

    /// Whether it is the service itself, which asks for the contracts of its configuration. No process at the other end
    /// of a socket has the number 0.
    pub(crate) fn is_service(self) -> bool {
        self.pid == 0
    }

    /// Whether the peer may change settings of the whole host: root and the user that the service runs as may.
    pub(crate) fn administers(self) -> bool {
        let own = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        self.may_touch(own)
    }

    /// Whether the peer may change a process or application of `owner`.
    pub(crate) fn may_touch(self, owner: Owner) -> bool {
        self.owner.uid == 0 || self.owner.uid == owner.uid
    }
}

/// How many of `most` places of the whole host user `uid` may fill together with all others: all users together leave an
/// eighth to root, at least one place of two or more.
pub(crate) fn places_for(uid: u32, most: usize) -> usize {
    let reserved = if most > 1 { (most / 8).max(1) } else { 0 };
    if uid == 0 { most } else { most - reserved }
}

/// A living process for which a contract is requested.
#[derive(Debug)]
pub(crate) struct Target {
    pub pid: i32,
    pub owner: Owner,
    /// All groups of the process: real, effective, saved, supplementary.
    pub groups: Vec<u32>,
    pub watch: watch::Process,
}

/// Finds the process `pid` that a request of `peer` names; checks the thread if the contract covers a single thread.
pub(crate) fn target(peer: Peer, pid: i32, covers: ApplicationScope) -> Result<Target, Problem> {
    if pid <= 0 {
        return Err(problem::invalid(format!("pid is {pid}; name a process by its positive number")));
    }
    check_numbers(peer, pid)?;
    watched(peer, pid, covers)
}

/// As [`target`], for a request for a contract: a caller in a container names processes by its own numbers. Also returns
/// the scope with the numbers of this host.
pub(crate) fn named(peer: Peer, pid: i32, covers: ApplicationScope) -> Result<(Target, ApplicationScope), Problem> {
    let numbers = Numbers::of(peer)?;
    if numbers == Numbers::Host {
        return target(peer, pid, covers).map(|target| (target, covers));
    }
    let process = numbers.process(pid)?;
    let covers = numbers.scope(process, covers);
    let target = watched(peer, process, covers)?;
    // The number may have become another process's before the process was watched.
    match numbers.is(process, pid) && !target.watch.ended() {
        true => Ok((target, covers)),
        false => Err(problem::gone(pid)),
    }
}

/// A process in a pid namespace of its own (a container) knows processes and threads under other numbers: the numbers
/// in its requests would mean strangers here. Its own number is the kernel's, and 0 is the daemon itself.
fn check_numbers(peer: Peer, pid: i32) -> Result<(), Problem> {
    if [0, pid].contains(&peer.pid) {
        return Ok(());
    }
    let depth = |process: &str| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(numbers(&status, "NSpid:")?.count())
    };
    match (depth(&peer.pid.to_string()), depth("self")) {
        (Some(theirs), Some(own)) if theirs == own => Ok(()),
        (None, _) => Err(problem::gone(peer.pid)),
        _ => Err(problem::other_pid_namespace(peer.pid)),
    }
}

fn watched(peer: Peer, pid: i32, covers: ApplicationScope) -> Result<Target, Problem> {
    let watch = watch::Process::watch(pid).map_err(|error| problem::unwatchable(pid, &error))?;
    let users = Users::of(pid).ok_or_else(|| problem::gone(pid))?;
    if !users.belong_to(peer) {
        return Err(problem::not_yours(pid, users.owner().uid, peer.owner.uid));
    }
    if let ApplicationScope::Thread(thread) = covers {
        check_thread(pid, thread)?;
    }
    if watch.ended() {
        return Err(problem::gone(pid));
    }
    Ok(Target { pid, owner: users.owner(), groups: users.groups, watch })
}

/// All groups of the peer's process. If the process has ended, its groups when it connected.
pub(crate) fn groups(peer: Peer) -> Vec<u32> {
    let users = Users::of(peer.pid).filter(|users| users.belong_to(peer));
    let when_connected =
        || [peer.owner.gid].into_iter().chain(connected::groups_of(peer).into_iter().flatten()).collect();
    users.map_or_else(when_connected, |users| users.groups)
}

/// Whether all users of the process are still `owner`: it may have executed a set-uid program since the last check.
pub(crate) fn still_owns(owner: Owner, pid: i32) -> bool {
    let peer = Peer { pid, owner };
    Users::of(pid).is_some_and(|users| users.belong_to(peer))
}

/// Random bytes for a secret, from `/dev/urandom`.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Compares secrets in a time that does not depend on the first difference.
pub(crate) fn is_same_secret(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn check_thread(pid: i32, thread: ThreadId) -> Result<(), Problem> {
    match threads::process_of(thread) {
        Some(process) if process == pid => Ok(()),
        _ => Err(problem::no_such_thread(pid, thread)),
    }
}

/// Whether the `status` of a process shows `uid` as its real, effective and saved user: it is neither a set-uid program that
/// the user started, nor a later process of another user with the same number.
pub(crate) fn is_only(status: &str, uid: u32) -> bool {
    Users::parse(status).is_some_and(|users| users.are_only(uid))
}

/// The users (real, effective, saved) and the groups that a process runs under.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Users {
    uids: [u32; 3],
    /// The effective group.
    gid: u32,
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
        peer.owner.uid == 0 || self.are_only(peer.owner.uid)
    }

    fn are_only(&self, uid: u32) -> bool {
        self.uids.iter().all(|own| *own == uid)
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

    #[test]
    fn users_leave_an_eighth_of_all_places_to_root() {
        for (most, users) in [(256, 224), (16, 14), (7, 6), (2, 1), (1, 1), (0, 0)] {
            assert_eq!((places_for(1_000, most), places_for(0, most)), (users, most));
        }
    }

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
    fn no_process_of_this_host_is_served_as_another_host() {
        let (first, last) = (USERS_OF_HOSTS.start, USERS_OF_HOSTS.end - 1);
        assert!([first, last].into_iter().all(|uid| peer(uid).of_this_host().is_err()));
        assert!([0, 1000, first - 1, last + 1].into_iter().all(|uid| peer(uid).of_this_host().is_ok()));
    }

    #[test]
    fn a_set_uid_program_does_not_belong_to_the_user_who_started_it() {
        let sudo = STATUS.replace("1000\t1000\t1000\t1000", "1000\t0\t0\t0");
        assert!(!Users::parse(&sudo).unwrap().belong_to(peer(1000)));
        assert!(is_only(STATUS, 1000) && !is_only(STATUS, 0) && !is_only(&sudo, 1000) && !is_only("", 0));
    }

    #[test]
    fn an_unreadable_status_belongs_to_no_user() {
        for status in ["", "Uid:\n", "Uid:\t1\t2\n", "Uid:\tx\ty\tz\n", "Uid:\t1\t2\t3\nGid:\n"] {
            assert_eq!(Users::parse(status), None, "{status:?}");
        }
    }

    #[test]
    fn the_caller_may_name_itself_and_its_threads_only() {
        let me = std::process::id() as i32;
        let mine = Peer { pid: me, owner: threads_owner() };
        assert_eq!(target(mine, me, ApplicationScope::Program).unwrap().owner.uid, mine.owner.uid);
        assert_eq!(target(mine, me, ApplicationScope::Thread(ThreadId(1))).unwrap_err().code, "no_such_thread");
        let stranger = Peer { pid: me, owner: Owner { uid: 54_321, gid: 54_321 } };
        assert_eq!(target(stranger, me, ApplicationScope::Program).unwrap_err().code, "not_yours");
        assert!(still_owns(mine.owner, me) && !still_owns(stranger.owner, me));
    }

    #[test]
    fn a_caller_that_has_ended_can_name_no_process_but_itself() {
        let (me, owner) = (std::process::id() as i32, threads_owner());
        let code = |pid| target(Peer { pid, owner }, me, ApplicationScope::Program).err().map(|problem| problem.code);
        assert_eq!(code(i32::MAX).as_deref(), Some("gone"));
        assert_eq!((code(me), code(0)), (None, None));
    }

    #[test]
    fn invalid_pids_and_ended_processes_are_refused_with_their_code() {
        let root = peer(0);
        assert_eq!(target(root, 0, ApplicationScope::Program).unwrap_err().code, "invalid");
        assert_eq!(target(root, -4, ApplicationScope::Program).unwrap_err().code, "invalid");
        assert_eq!(target(root, i32::MAX, ApplicationScope::Program).unwrap_err().code, "gone");
    }

    fn threads_owner() -> Owner {
        Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}
