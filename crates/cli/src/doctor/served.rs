//! Corrects the findings for users of a running daemon: the daemon acts for its users with its own rights, so a right
//! that this process lacks is no problem if the daemon has it.

use std::path::PathBuf;

use qfabric_client::Client;
use qfabric_linux::capability::SERVICE;
use qfabric_linux::doctor::{Finding, State};
use qfabric_types::api::HostStatus;
use rustix::thread::CapabilitySet;

/// A daemon that answered.
pub(super) struct Served {
    socket: PathBuf,
    status: HostStatus,
    /// Number of kernel services that are available, and of all kernel services.
    services: Option<(usize, usize)>,
    /// Effective capabilities; none: they cannot be read.
    holds: Option<CapabilitySet>,
}

impl Served {
    /// The daemon of this host, if one answers.
    pub(super) fn ask() -> Option<Served> {
        let client = Client::connect().ok()?;
        let status = client.status().ok()?;
        let kernel = |service: &&qfabric_types::api::ecalls::ServiceInfo| service.pid.is_none();
        let services = client.services().ok().map(|all| {
            let there = all.iter().filter(kernel).filter(|service| service.unavailable.is_none()).count();
            (there, all.iter().filter(kernel).count())
        });
        let holds = capabilities(client.socket());
        Some(Served { socket: client.socket().to_owned(), status, services, holds })
    }

    /// Mechanism of the daemon; `None` if it has no mechanism.
    pub(super) fn mechanism(&self) -> Option<&str> {
        Some(self.status.mechanism.as_str()).filter(|name| *name != "none")
    }

    pub(super) fn verdict(&self) -> String {
        let HostStatus { mechanism, capacity, granted, .. } = &self.status;
        let socket = self.socket.display();
        format!("the daemon at {socket} serves you: mechanism {mechanism}, {granted} of {capacity} granted\n")
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let HostStatus { mechanism, capacity, granted, .. } = &self.status;
        serde_json::json!({ "socket": self.socket, "mechanism": mechanism, "capacity": capacity, "granted": granted })
    }

    /// The finding from the view of a user of this daemon: it is `Ok` if the daemon does the work replacement.
    pub(super) fn for_user(&self, finding: Finding) -> Finding {
        if finding.state == State::Ok {
            return finding;
        }
        match self.replacement(finding.name) {
            Some(reason) => Finding { state: State::Ok, reason, fix: None, fixable: false, ..finding },
            None => finding,
        }
    }

    fn replacement(&self, name: &str) -> Option<String> {
        let HostStatus { capacity, guaranteed, .. } = &self.status;
        let holds = |right: &CapabilitySet| self.holds.is_some_and(|holds| holds.contains(*right));
        match name {
            "mechanism" => Some(format!("{}: the daemon reserves for you", self.mechanism()?)),
            "admission_room" => {
                Some(format!("the daemon may promise {capacity}; {guaranteed} of it is guaranteed to applications"))
            }
            "memory_lock" if holds(&CapabilitySet::IPC_LOCK) => Some("the daemon may lock its memory".to_owned()),
            "bpf" => {
                let (there, all) = self.services.filter(|(there, _)| *there > 0)?;
                Some(format!("the daemon installs handlers in the kernel; {there} of {all} services are available"))
            }
            _ => SERVICE
                .iter()
                .find(|(right, set, _)| *right == name && holds(set))
                .map(|_| "you do not have it and do not need it: the daemon has it".to_owned()),
        }
    }
}

/// The effective capabilities of the process that listens at `socket`.
fn capabilities(socket: &std::path::Path) -> Option<CapabilitySet> {
    let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
    let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    effective(&status)
}

fn effective(status: &str) -> Option<CapabilitySet> {
    let word = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    Some(CapabilitySet::from_bits_truncate(u64::from_str_radix(word.trim(), 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::host;

    fn finding(name: &'static str, state: State) -> Finding {
        let (reason, fix) = ("this process lacks CAP_SYS_NICE".into(), Some("run it as root".into()));
        Finding { name, state, reason, fix, fixable: false }
    }

    fn served(holds: Option<CapabilitySet>) -> Served {
        Served { socket: "/run/qfabric/qfabric.sock".into(), status: host(vec![]), services: Some((11, 13)), holds }
    }

    #[test]
    fn a_right_that_the_daemon_uses_for_its_users_is_not_missing() {
        let served = served(Some(CapabilitySet::SYS_NICE));
        for (name, part) in [
            ("mechanism", "deadline: the daemon reserves for you"),
            ("admission_room", "may promise 1.8 CPU"),
            ("cap_sys_nice", "the daemon has it"),
            ("bpf", "11 of 13"),
        ] {
            let finding = served.for_user(finding(name, State::Missing));
            assert_eq!((finding.state, finding.fix.as_deref()), (State::Ok, None), "{name}");
            assert!(finding.reason.contains(part), "{name}: {}", finding.reason);
        }
        assert!(served.verdict().contains("/run/qfabric/qfabric.sock serves you"));
    }

    #[test]
    fn a_right_that_the_daemon_lacks_too_stays_missing() {
        let missing = |name| finding(name, State::Missing);
        let rightless = Served { services: Some((0, 13)), ..served(None) };
        for name in ["cap_sys_nice", "cap_bpf", "bpf", "ext", "memory_lock"] {
            assert_eq!(rightless.for_user(missing(name)), missing(name));
        }
        let mut none = served(None);
        none.status.mechanism = "none".to_owned();
        assert_eq!((none.mechanism(), none.for_user(missing("mechanism")).state), (None, State::Missing));
    }

    #[test]
    fn capabilities_are_parsed_from_the_status_of_a_process() {
        let held = effective("Name:\tqfabric\nCapEff:\t0000000000800000\n");
        assert_eq!(held, Some(CapabilitySet::SYS_NICE));
        assert_eq!(effective(""), None);
    }
}
