//! Decides what a caller may do with streams.
//!
//! Root and processes with CAP_NET_ADMIN may do everything. Any other user may begin, change and end own streams on a
//! link that the administrator opened, and only with selectors that take the user's own packets:
//!
//! | selector | allowed if |
//! |---|---|
//! | flow | the source is an address of this host, and all sockets that can send the flow belong to the user |
//! | cgroup | the folder of the cgroup belongs to the user |
//! | mark | never: a mark names no owner, and setting one needs CAP_NET_ADMIN |

use std::collections::BTreeSet;

use qfabric_linux::net::{cgroup_user, flow_users, is_own_address};
use qfabric_types::Nanos;
use qfabric_types::api::Problem;
use qfabric_types::api::net::{Flow, Selector, StreamSpec};

use super::problems;
use crate::auth::Peer;
use crate::problem;

/// Longest period of a user's stream. C may be sent at once, so the period bounds the burst before other packets.
pub(super) const PERIOD_MAX: Nanos = Nanos::from_millis(1_000);

/// A caller and its rights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub peer: Peer,
    /// The caller may change interfaces: root, or CAP_NET_ADMIN.
    pub is_privileged: bool,
}

impl Caller {
    pub(super) fn of(peer: Peer) -> Caller {
        Caller { peer, is_privileged: problems::check_permission(peer).is_ok() }
    }
}

/// Checks that a stream of an ordinary user takes only the user's own packets, and delays those of others little.
pub(super) fn check_stream(spec: &StreamSpec, uid: u32) -> Result<(), Problem> {
    check_attributes(spec)?;
    match &spec.selector {
        Selector::Mark(mark) => Err(problems::not_for_users(
            format!("user {uid} may not take the packets with mark {mark}: they may belong to other users"),
            "select the packets of your own socket (--flow) or cgroup (--cgroup)",
        )),
        Selector::Cgroup(path) => check_cgroup(path, uid),
        Selector::Flow(flow) => check_flow(flow, uid),
    }
}

/// Checks the attributes of an ordinary user's stream.
pub(super) fn check_attributes(spec: &StreamSpec) -> Result<(), Problem> {
    if spec.work_conserving {
        let message = "a work-conserving stream may send before the packets of other users".to_owned();
        return Err(problems::not_for_users(message, "ask for a larger C (--size) instead of --work-conserving"));
    }
    if spec.period > PERIOD_MAX {
        let message = format!("period is {}, which allows long bursts", spec.period);
        return Err(problems::invalid(message, format!("use a period of at most {PERIOD_MAX}")));
    }
    Ok(())
}

fn check_cgroup(path: &str, uid: u32) -> Result<(), Problem> {
    match cgroup_user(path).map_err(|error| error.problem())? {
        owner if owner == uid => Ok(()),
        owner => Err(problems::not_for_users(
            format!("cgroup {path} belongs to user {owner}, you are user {uid}"),
            "choose a cgroup that is delegated to you, such as one below user@UID.service",
        )),
    }
}

fn check_flow(flow: &Flow, uid: u32) -> Result<(), Problem> {
    if !is_own_address(flow.source.ip()) {
        let message = format!("{} is not an address of this host, so the flow may be another host's", flow.source.ip());
        return Err(problems::not_for_users(message, "name the address and port of your own socket as source"));
    }
    belongs(flow, &users(flow)?, uid)
}

fn belongs(flow: &Flow, users: &BTreeSet<u32>, uid: u32) -> Result<(), Problem> {
    let other = users.iter().find(|user| **user != uid);
    match other {
        None if !users.is_empty() => Ok(()),
        None => Err(problems::not_for_users(
            format!("no socket of this host sends the flow {flow}"),
            "open and bind the socket first, then add the stream",
        )),
        Some(other) => Err(problems::not_for_users(
            format!("a socket of user {other} can send the flow {flow}, you are user {uid}"),
            "select the packets of your own socket",
        )),
    }
}

fn users(flow: &Flow) -> Result<BTreeSet<u32>, Problem> {
    flow_users(flow).map_err(|error| problem::internal(format!("cannot read the table of sockets: {error}")))
}

/// Whether all packets of the selector still belong to the user. The kernel's tables may be unreadable for a moment;
/// then they do.
pub(super) fn still_own(selector: &Selector, uid: u32) -> bool {
    match selector {
        Selector::Flow(flow) => flow_users(flow).map_or(true, |users| belongs(flow, &users, uid).is_ok()),
        Selector::Cgroup(path) => cgroup_user(path).is_ok_and(|owner| owner == uid),
        Selector::Mark(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(selector: Selector) -> StreamSpec {
        StreamSpec::new(selector, Nanos::from_millis(40))
    }

    #[test]
    fn a_user_selects_only_packets_of_own_sockets() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let flow = format!("udp,{},127.0.0.1:9", socket.local_addr().unwrap());
        let own = rustix::process::geteuid().as_raw();
        let stream = spec(Selector::Flow(flow.parse().unwrap()));
        assert_eq!(check_stream(&stream, own), Ok(()));
        let other = check_stream(&stream, own + 1).unwrap_err();
        assert!(other.message.contains(&format!("a socket of user {own}")), "{other:?}");
        assert!(still_own(&stream.selector, own) && !still_own(&stream.selector, own + 1));
        drop(socket);
        assert!(check_stream(&stream, own).unwrap_err().message.contains("no socket"));
        assert!(!still_own(&stream.selector, own));
    }

    #[test]
    fn flows_of_other_hosts_and_marks_are_refused_to_users() {
        let forwarded = spec(Selector::Flow("udp,192.0.2.7:5000,192.0.2.8:6000".parse().unwrap()));
        assert!(check_stream(&forwarded, 7).unwrap_err().message.contains("192.0.2.7 is not an address"));
        let marked = check_stream(&spec(Selector::Mark(7)), 7).unwrap_err();
        assert!(marked.code == "net_not_permitted" && marked.next_step.contains("--flow"), "{marked:?}");
    }

    #[test]
    fn attributes_that_delay_other_users_are_refused() {
        let long = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(1_001));
        assert!(check_attributes(&long).unwrap_err().next_step.contains("at most 1 s"));
        let greedy = StreamSpec { work_conserving: true, ..spec(Selector::Mark(7)) };
        assert!(check_attributes(&greedy).is_err() && check_attributes(&spec(Selector::Mark(7))).is_ok());
    }
}
