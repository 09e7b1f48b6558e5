//! Checks if Q-Fabric's own schedulers can be loaded: for the CPU (`ext`) and for packets.

use qfabric_types::MechanismName;
use qfabric_types::api::Problem;
use rustix::thread::CapabilitySet;

use super::{Facts, Finding, State};
use crate::capability;
use crate::dispatcher;
use crate::ext::{Ext, ExtError};
use crate::files;

pub(super) fn examine(facts: &mut Facts) -> [Finding; 3] {
    let types = files::bytes("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let rights = capability::held(CapabilitySet::BPF) && capability::held(CapabilitySet::PERFMON);
    let ext = ext(Ext::supported(), &types, rights);
    facts.ext = ext.state == State::Ok;
    if facts.ext && facts.mechanism.is_none() {
        facts.mechanism = Some(MechanismName::Ext);
    }
    [ext, dispatcher(dispatcher::supported()), qdisc(&types)]
}

fn dispatcher(supported: Result<(), Problem>) -> Finding {
    match supported {
        Ok(()) => Finding::ok(
            "dispatcher",
            "slots of one CPU can be reserved (--mechanism dispatcher), also for programs that are pinned to CPUs",
        ),
        Err(Problem { message, next_step, .. }) => Finding::new("dispatcher", State::Missing, message).fix(next_step),
    }
}

fn ext(supported: Result<(), ExtError>, types: &[u8], rights: bool) -> Finding {
    let instead = "use the mechanism deadline, which needs neither";
    match supported {
        Err(ExtError::Unsupported { release, why, instead }) => {
            Finding::new("ext", State::Missing, format!("Linux {release}: {why}")).fix(instead)
        }
        Err(ExtError::Occupied { name }) if name.starts_with("qfabric") => {
            Finding::ok("ext", format!("Q-Fabric's scheduler {name} is in charge of this host"))
        }
        Err(other) => Finding::new("ext", State::Missing, other.to_string()).fix(instead),
        Ok(()) if types_are_broken(types) => {
            let reason =
                "this kernel's type information lacks scx_bpf_create_dsq_impl; a pahole that is too old created it";
            Finding::new("ext", State::Missing, reason).fix(format!("use another build of this kernel, or {instead}"))
        }
        Ok(()) if !rights => Finding::new("ext", State::Missing, "CAP_BPF and CAP_PERFMON are missing")
            .fix(format!("run it as root or from its systemd unit, or {instead}")),
        Ok(()) => Finding::ok(
            "ext",
            "Q-Fabric's scheduler can be loaded; it has windows, events, and servers for whole programs",
        ),
    }
}

/// True for kernels whose type information has only half of the functions: if one function has its new name, all must
/// have it.
fn types_are_broken(types: &[u8]) -> bool {
    contains(types, b"scx_bpf_dsq_insert_impl") && !contains(types, b"scx_bpf_create_dsq_impl")
}

/// Checks if the kernel's type information has the functions that a packet scheduler needs.
fn qdisc(types: &[u8]) -> Finding {
    match contains(types, b"bpf_qdisc_watchdog_schedule") {
        true => Finding::ok("bpf_qdisc", "packet schedulers in BPF can be loaded (qfabric net attach --dwcs)"),
        false => Finding::new("bpf_qdisc", State::Missing, "this kernel does not support packet schedulers in BPF")
            .fix("use Linux 6.16 or newer with CONFIG_NET_SCH_BPF; without it, qfabric net uses HTB classes"),
    }
}

fn contains(types: &[u8], name: &[u8]) -> bool {
    let starts = types.iter().enumerate().filter(|(_, byte)| **byte == name[0]);
    starts.into_iter().any(|(at, _)| types[at..].starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_against_ext_names_an_alternative() {
        let old = ExtError::Unsupported { release: "6.12".into(), why: "too old".into(), instead: "use 6.19".into() };
        let busy = ExtError::Occupied { name: "scx_rusty".into() };
        let broken = b"..scx_bpf_dsq_insert_impl..";
        for (finding, part) in [
            (ext(Err(old), b"", true), "6.12: too old"),
            (ext(Err(busy), b"", true), "scx_rusty"),
            (ext(Ok(()), broken, true), "scx_bpf_create_dsq_impl"),
            (ext(Ok(()), b"", false), "CAP_BPF"),
        ] {
            assert!(finding.state == State::Missing && finding.reason.contains(part), "{finding:?}");
            assert!(finding.fix.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn a_complete_kernel_and_one_that_already_runs_it_are_ok() {
        let whole = b"scx_bpf_dsq_insert_impl scx_bpf_create_dsq_impl";
        assert_eq!(ext(Ok(()), whole, true).state, State::Ok);
        assert_eq!(ext(Err(ExtError::Occupied { name: "qfabric".into() }), b"", false).state, State::Ok);
    }

    #[test]
    fn a_host_without_fixed_priorities_has_no_dispatcher_and_a_next_step() {
        assert_eq!(dispatcher(Ok(())).state, State::Ok);
        let refused = dispatcher(Err(Problem::new("unavailable", "EPERM", "run as root")));
        assert_eq!((refused.state, refused.fix.as_deref()), (State::Missing, Some("run as root")));
    }

    #[test]
    fn packet_scheduling_needs_the_kernels_functions_or_uses_classes() {
        assert_eq!(qdisc(b"a bpf_qdisc_watchdog_schedule b").state, State::Ok);
        assert!(qdisc(b"bpf_qdisc").fix.unwrap().contains("HTB"));
    }
}
