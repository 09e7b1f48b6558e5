//! Schedulers of our own in the kernel: for the CPU (`ext`) and for packets.

use qfabric_types::MechanismName;
use rustix::thread::CapabilitySet;

use super::{Facts, Finding, State};
use crate::capability;
use crate::ext::{Ext, ExtError};
use crate::files;

pub(super) fn examine(facts: &mut Facts) -> [Finding; 2] {
    let types = files::bytes("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let rights = capability::held(CapabilitySet::BPF) && capability::held(CapabilitySet::PERFMON);
    let ext = ext(Ext::supported(), &types, rights);
    facts.ext = ext.state == State::Ok;
    if facts.ext && facts.mechanism.is_none() {
        facts.mechanism = Some(MechanismName::Ext);
    }
    [ext, qdisc(&types)]
}

fn ext(supported: Result<(), ExtError>, types: &[u8], rights: bool) -> Finding {
    let instead = "use the mechanism deadline, which needs none of it";
    match supported {
        Err(ExtError::Unsupported { release, why, instead }) => {
            Finding::new("ext", State::Missing, format!("Linux {release}: {why}")).fix(instead)
        }
        Err(ExtError::Occupied { name }) if name.starts_with("qfabric") => {
            Finding::ok("ext", format!("our scheduler {name} is in charge of this host"))
        }
        Err(other) => Finding::new("ext", State::Missing, other.to_string()).fix(instead),
        Ok(()) if types_are_broken(types) => {
            let reason =
                "this kernel's type information lacks scx_bpf_create_dsq_impl: it was made by too old a pahole";
            Finding::new("ext", State::Missing, reason).fix(format!("use another build of this kernel, or {instead}"))
        }
        Ok(()) if !rights => Finding::new("ext", State::Missing, "CAP_BPF and CAP_PERFMON are missing")
            .fix(format!("run it as root or by its systemd unit, or {instead}")),
        Ok(()) => Finding::ok("ext", "our scheduler can be loaded: windows, events, servers for whole programs"),
    }
}

/// Kernels whose functions were recorded by half: what is there under its new name must be so for all.
fn types_are_broken(types: &[u8]) -> bool {
    contains(types, b"scx_bpf_dsq_insert_impl") && !contains(types, b"scx_bpf_create_dsq_impl")
}

/// The kernel functions a packet scheduler needs are in the kernel's type information, or not.
fn qdisc(types: &[u8]) -> Finding {
    match contains(types, b"bpf_qdisc_watchdog_schedule") {
        true => Finding::ok("bpf_qdisc", "packet schedulers in BPF can be loaded (qfabric net attach --dwcs)"),
        false => Finding::new("bpf_qdisc", State::Missing, "this kernel has no packet schedulers in BPF")
            .fix("Linux 6.16 or later with CONFIG_NET_SCH_BPF; without it qfabric net shapes by classes (HTB)"),
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
    fn every_reason_against_ext_comes_with_what_to_use_instead() {
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
    fn a_sane_kernel_or_one_that_runs_it_already_is_well() {
        let whole = b"scx_bpf_dsq_insert_impl scx_bpf_create_dsq_impl";
        assert_eq!(ext(Ok(()), whole, true).state, State::Ok);
        assert_eq!(ext(Err(ExtError::Occupied { name: "qfabric".into() }), b"", false).state, State::Ok);
    }

    #[test]
    fn packets_need_the_kernels_functions_or_go_by_classes() {
        assert_eq!(qdisc(b"a bpf_qdisc_watchdog_schedule b").state, State::Ok);
        assert!(qdisc(b"bpf_qdisc").fix.unwrap().contains("HTB"));
    }
}
