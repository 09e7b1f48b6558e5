//! Checks the rest of the host: observation, control groups, memory, clocks, energy.

use std::path::Path;

use qfabric_types::Nanos;
use qfabric_types::api::Problem;

use super::{Facts, Finding, State, cpu};
use crate::cgroup::{self, Mounts};
use crate::files;
use crate::memory;
use crate::memory_groups;
use crate::observe::SwitchObserver;
use crate::release;

pub(super) fn examine(facts: &mut Facts) -> Vec<Finding> {
    let mut findings = cpu::rights();
    findings.extend([
        observation(facts),
        memory_lock(),
        memory_protection(&Mounts::here()),
        open_files(),
        groups(),
        psi(),
        clocksource(
            &files::trimmed("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default(),
        ),
        timer_slack(),
        battery(Path::new("/sys/class/power_supply")),
    ]);
    findings
}

pub(super) fn kernel() -> Finding {
    let release = release::text();
    match release::version_in(&release) {
        Some(version) if version >= (4, 13) => Finding::ok("kernel", format!("Linux {release}")),
        Some(_) => {
            Finding::new("kernel", State::Missing, format!("Linux {release} is too old")).fix("use 4.13 or later")
        }
        None => Finding::new("kernel", State::Unknown, format!("Linux {release:?}")).fix("use 4.13 or later"),
    }
}

fn observation(facts: &mut Facts) -> Finding {
    match SwitchObserver::new() {
        Ok(_) => {
            facts.observer = "perf";
            Finding::ok("observation", "perf events report every context switch, start and end of threads")
        }
        Err(error) => {
            facts.observer = "poll";
            let paranoid = files::trimmed("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            let reason = format!(
                "perf events are refused ({error}; kernel.perf_event_paranoid is {paranoid}), so /proc is polled"
            );
            Finding::new("observation", State::Warn, reason).fix("grant CAP_PERFMON")
        }
    }
}

fn memory_lock() -> Finding {
    match memory::may_lock() {
        true => Finding::ok("memory_lock", "memory can be locked"),
        false => Finding::new(
            "memory_lock",
            State::Warn,
            format!("at most {} bytes of memory can be locked", memory::lock_limit()),
        )
        .fix("grant CAP_IPC_LOCK, or set LimitMEMLOCK=infinity in the unit"),
    }
}

fn memory_protection(mounts: &Mounts) -> Finding {
    match memory_groups::memory_root(mounts) {
        Ok(root) => {
            let reason = format!("memory.min of groups below {} protects the memory of programs", root.display());
            Finding::ok("memory_protection", reason)
        }
        Err(lack) => {
            let Problem { message, next_step, .. } = lack.problem();
            let reason = format!("{message}; reserves of `qfabric run --memory` are only counted");
            Finding::new("memory_protection", State::Warn, reason).fix(next_step)
        }
    }
}

fn open_files() -> Finding {
    let limit = memory::open_files_limit();
    let cpus = crate::cpus::CpuList::online().len() as u64;
    let reason =
        format!("at most {limit} open files, enough for about {} observed threads on {cpus} CPUs", limit / cpus);
    match limit / cpus >= 1_000 {
        true => Finding::ok("open_files", reason),
        false => {
            Finding::new("open_files", State::Warn, reason).fix("set LimitNOFILE=65536 in the unit, or raise ulimit -n")
        }
    }
}

fn groups() -> Finding {
    let mounts = Mounts::here();
    let layout = format!("control groups {:?}", mounts.layout()).to_lowercase();
    match cgroup::group_rt_runtime_us(std::process::id() as i32) {
        Some(us) => {
            let time = Nanos::from_micros(us.max(0) as u64);
            let reason =
                format!("SCHED_FIFO in this group gets {time} of each period; groups do not limit SCHED_DEADLINE");
            Finding::ok("cgroups", format!("{layout}; {reason}"))
        }
        None => Finding::ok("cgroups", format!("{layout}; groups do not limit real-time threads")),
    }
}

fn psi() -> Finding {
    match files::trimmed("/proc/pressure/cpu") {
        Some(_) => Finding::ok("psi", "the kernel measures pressure of CPU, memory and I/O"),
        None => Finding::new("psi", State::Missing, "/proc/pressure does not exist").fix("boot with psi=1"),
    }
}

fn clocksource(current: &str) -> Finding {
    match current {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => {
            Finding::ok("clocksource", format!("{current}, which is read without a system call"))
        }
        "" => {
            Finding::new("clocksource", State::Unknown, "the kernel does not name its clock source").fix("mount /sys")
        }
        other => Finding::new("clocksource", State::Warn, format!("{other}: reading the time is slow"))
            .fix("boot with clocksource=tsc if the TSC of this machine is stable"),
    }
}

fn timer_slack() -> Finding {
    let slack = files::trimmed("/proc/self/timerslack_ns").and_then(|t| t.parse::<u64>().ok());
    match slack {
        Some(ns) => {
            let slack = Nanos::new(ns);
            Finding::ok("timer_slack", format!("{slack} for ordinary threads, 0 under a reservation"))
        }
        None => Finding::new("timer_slack", State::Unknown, "the kernel does not report the timer slack")
            .fix("use Linux 4.6 or later"),
    }
}

fn battery(supplies: &Path) -> Finding {
    let supplies = files::folder(supplies).into_iter().flatten().flatten();
    let is_battery = |dir: &Path| files::trimmed(dir.join("type")).as_deref() == Some("Battery");
    match supplies.filter(|s| is_battery(&s.path())).count() {
        0 => Finding::new("battery", State::Absent, "no battery: the host has mains power"),
        n => Finding::ok("battery", format!("{n} found")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn absent_hardware_has_no_next_step() {
        let empty = tempfile::tempdir().unwrap();
        let finding = battery(empty.path());
        assert_eq!((finding.state, &finding.fix), (State::Absent, &None), "{finding:?}");
        fs::create_dir(empty.path().join("BAT0")).unwrap();
        fs::write(empty.path().join("BAT0/type"), "Battery\n").unwrap();
        assert_eq!(battery(empty.path()).state, State::Ok);
    }

    #[test]
    fn a_host_without_protection_of_memory_says_what_is_missing() {
        let v1 = Mounts::parse("c /sys/fs/cgroup/memory cgroup rw,memory 0 0\n");
        let finding = memory_protection(&v1);
        assert!(finding.reason.contains("this host has it in version 1"), "{finding:?}");
        assert!(finding.fix.unwrap().contains("cgroup_no_v1=memory"));
    }

    #[test]
    fn a_slow_clock_is_named() {
        assert_eq!(clocksource("tsc").state, State::Ok);
        assert!(clocksource("hpet").reason.contains("hpet"));
        assert_eq!(clocksource("").state, State::Unknown);
    }
}
