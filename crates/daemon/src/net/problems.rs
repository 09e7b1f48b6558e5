//! Refusals of packet scheduling.

use qfabric_types::BitRate;
use qfabric_types::api::Problem;
use qfabric_types::api::net::{HeldRateId, StreamId};

use super::interface::Interface;
use crate::auth::{self, Peer};
use crate::problem;

/// CAP_NET_ADMIN's bit (include/uapi/linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;

/// Allows root, and processes that may change interfaces without this daemon.
pub(super) fn check_permission(peer: Peer) -> Result<(), Problem> {
    if peer.owner.uid == 0 || has_net_admin(peer) {
        return Ok(());
    }
    let message = format!("user {} may not change how interfaces send packets", peer.owner.uid);
    Err(problem::new("net_not_permitted", message, "use root or a process with CAP_NET_ADMIN in its ambient set"))
}

/// Every user has all capabilities in a user namespace of its own, so only those in the daemon's namespace count. Those of
/// a set-uid program, or of a program with file capabilities, that the user's process became do not: other processes may
/// have the same connection. The kernel clears the ambient set when a process executes such a program.
fn has_net_admin(peer: Peer) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    // Before the namespace: a process may enter another one at any time, but does not come back.
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.pid)).unwrap_or_default();
    let (theirs, own) = (namespace(&peer.pid.to_string()), namespace("self"));
    let is_in_same = theirs.is_some() && theirs == own;
    is_in_same && auth::is_only(&status, peer.owner.uid) && ambient(&status) & CAP_NET_ADMIN != 0
}

/// The effective capabilities that are also ambient.
fn ambient(status: &str) -> u64 {
    set(status, "CapEff:") & set(status, "CapAmb:")
}

fn set(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
}

pub(super) fn not_attached(interface: &str) -> Problem {
    let shown: String = interface.chars().take(40).collect();
    let message = format!("interface {shown} is not under packet scheduling");
    problem::new("net_not_found", message, format!("attach it first: qfabric net attach {shown}"))
}

pub(super) fn not_open(interface: &str, uid: u32) -> Problem {
    let message = format!("user {uid} may not change how {interface} sends packets: its link is not open to all users");
    let next = format!("ask the administrator to open it: qfabric net link add {interface} --rate 100M");
    problem::new("net_not_permitted", message, next)
}

pub(super) fn not_your_stream(interface: &str, id: StreamId, theirs: u32, yours: u32) -> Problem {
    let message = format!("stream {id} of {interface} belongs to user {theirs}, you are user {yours}");
    problem::new("not_yours", message, "change your own streams, or use root")
}

pub(super) fn not_held(id: HeldRateId) -> Problem {
    let message = format!("rate {id} is not held: its contract or loan has ended, or the link was closed");
    problem::new("net_not_found", message, "list the rates that are held: qfabric net link ls")
}

pub(super) fn not_your_rate(id: HeldRateId, theirs: u32, yours: u32) -> Problem {
    let message = format!("held rate {id} belongs to user {theirs}, you are user {yours}");
    problem::new("not_yours", message, "draw from the rates of your own contracts, or use root")
}

pub(super) fn only_counted(id: HeldRateId) -> Problem {
    let message = format!("held rate {id} is for packets that this host receives, which have no stream here");
    problem::new("net_refused", message, "add the stream on the host that sends the packets")
}

/// The link cannot be closed without breaking promises.
pub(super) fn still_used(entry: &Interface) -> Problem {
    let interface = entry.attachment.interface();
    let holders: Vec<String> =
        entry.broker.holders().iter().chain(&entry.incoming.holders()).map(ToString::to_string).collect();
    let message = format!("the link of {interface} stays open, because it has promises: {}", holders.join(", "));
    problem::new("net_refused", message, format!("wait until they end, or end them: qfabric net link rm {interface}"))
}

pub(super) fn not_for_users(message: String, next_step: &str) -> Problem {
    problem::new("net_not_permitted", message, next_step)
}

pub(super) fn invalid(message: String, next_step: impl Into<String>) -> Problem {
    problem::new("net_invalid", message, next_step)
}

pub(super) fn not_open_yet(interface: &str) -> Problem {
    let message = format!("the link of {interface} is not open to all users");
    problem::new("net_not_found", message, format!("open it: qfabric net link add {interface} --rate 100M"))
}

pub(super) fn above_attachment(interface: &str, asked: BitRate, attached: BitRate) -> Problem {
    let message = format!("{interface} is attached at {attached}, so a link of {asked} cannot be promised");
    let next = format!("state at most {attached}, or attach it again with a higher --rate");
    problem::new("net_refused", message, next)
}

pub(super) fn over_delay(message: String) -> Problem {
    let next = "ask for a larger C, a shorter period or a longer delay; bounds need DWCS (Linux 6.16) and no window";
    problem::new("over_link", message, next)
}

pub(super) fn over_measured_delay(message: String) -> Problem {
    let next =
        "ask for a larger C or a longer delay, send smaller messages, or measure again: qfabric net profile HOST";
    problem::new("over_link", message, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Owner;

    #[test]
    fn root_and_cap_net_admin_may_change_interfaces() {
        let status = |ambient: u64| format!("Name:\tx\nCapEff:\t0000000000003000\nCapAmb:\t{ambient:016x}\n");
        assert_eq!(ambient(&status(CAP_NET_ADMIN)), CAP_NET_ADMIN);
        assert_eq!((ambient(&status(0)), ambient("")), (0, 0), "a program with file capabilities has none");
        let peer = |uid| Peer { pid: i32::MAX, owner: Owner { uid, gid: 1 } };
        assert!(check_permission(peer(0)).is_ok());
        let refusal = check_permission(peer(1000)).unwrap_err();
        assert!(refusal.message.contains("1000") && refusal.next_step.contains("CAP_NET_ADMIN"));
        let mut inside =
            std::process::Command::new("unshare").args(["--user", "--map-root-user", "sleep", "30"]).spawn().unwrap();
        let pid = inside.id() as i32;
        let namespace = |process: String| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
        while namespace(pid.to_string()) == namespace("self".to_owned()) {
            std::thread::yield_now();
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(set(&status, "CapEff:") & CAP_NET_ADMIN != 0, "the process has the capability in its own namespace");
        assert!(check_permission(Peer { pid, owner: Owner { uid: 1000, gid: 1 } }).is_err());
        inside.kill().unwrap();
        inside.wait().unwrap();
    }
}
