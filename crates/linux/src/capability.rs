//! The capabilities of the service, and checks of those of the calling thread.

use rustix::thread::{CapabilitySet, capabilities};

/// All capabilities that the service uses, each with its name and what it is used for. The only definition: the hints
/// and `qfabric doctor` read it, and a check compares the systemd unit and the guide with it.
pub const SERVICE: [(&str, CapabilitySet, &str); 8] = [
    ("cap_sys_nice", CapabilitySet::SYS_NICE, "reservations"),
    ("cap_perfmon", CapabilitySet::PERFMON, "exact observation of programs of other users"),
    ("cap_sys_ptrace", CapabilitySet::SYS_PTRACE, "the process folders of other users"),
    ("cap_chown", CapabilitySet::CHOWN, "the group of an application's ring"),
    ("cap_ipc_lock", CapabilitySet::IPC_LOCK, "locked memory, without page faults"),
    ("cap_bpf", CapabilitySet::BPF, "handlers and schedulers in the kernel"),
    ("cap_net_admin", CapabilitySet::NET_ADMIN, "queues and handlers of network interfaces"),
    ("cap_kill", CapabilitySet::KILL, "events as signals to processes of other users"),
];

/// The argument that makes `setcap` grant all of [`SERVICE`] to a program.
pub fn setcap_argument() -> String {
    format!("{}+ep", SERVICE.map(|(name, _, _)| name).join(","))
}

/// True if all of `wanted` are in the effective set of the calling thread.
pub fn held(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_is_listed_once_under_its_own_name() {
        let all = SERVICE.iter().fold(CapabilitySet::empty(), |all, (_, set, _)| all | *set);
        assert_eq!(all.bits().count_ones() as usize, SERVICE.len());
        for (name, set, _) in SERVICE {
            let constant = name.strip_prefix("cap_").unwrap().to_uppercase();
            assert_eq!(format!("{set:?}"), format!("CapabilitySet({constant})"));
        }
        assert!(
            setcap_argument().starts_with("cap_sys_nice,cap_perfmon,") && setcap_argument().ends_with("cap_kill+ep")
        );
    }
}
