//! Checks meters and knobs of energy.

use std::path::Path;

use super::{Finding, State};
use crate::power::{self, KnobName, Meters};

/// `sys` is the root of sysfs, `root` that of the file system.
pub(super) fn examine(sys: &Path, root: &Path) -> Vec<Finding> {
    vec![meters(sys), clocks(sys), preference(sys), clamps(), manager(root), wifi(sys)]
}

fn meters(sys: &Path) -> Finding {
    let readings = Meters::find(sys).look(crate::clock::now());
    let (faults, good): (Vec<_>, Vec<_>) = readings.into_iter().partition(|reading| reading.fault.is_some());
    let fault = faults.first().and_then(|reading| reading.fault.as_ref()).map(|fault| fault.problem());
    match (&good[..], fault) {
        ([], None) => Finding::new("energy_meters", State::Absent, "no meter of energy: models are used instead"),
        (_, Some(problem)) => Finding::new("energy_meters", State::Warn, problem.message).fix(problem.next_step),
        (good, None) => {
            let names = good.iter().map(|r| format!("{} ({})", r.name, r.energy.source().name()));
            Finding::ok("energy_meters", names.collect::<Vec<_>>().join(", "))
        }
    }
}

fn clocks(sys: &Path) -> Finding {
    let clocks = power::clocks(sys);
    let Some(first) = clocks.first() else {
        return Finding::new("cpufreq", State::Absent, "no clock of a CPU can be set: they are fixed, or the host's");
    };
    let governor = first.knob(KnobName::Governor).value().unwrap_or_default();
    let (least, most) = (first.range.0 / 1_000, first.range.1 / 1_000);
    Finding::ok("cpufreq", format!("{} clocks, {least} to {most} MHz, governor {governor}", clocks.len()))
}

fn preference(sys: &Path) -> Finding {
    let value = power::clocks(sys).iter().find_map(|clock| clock.knob(KnobName::Preference).value());
    match value {
        Some(value) => Finding::ok("energy_preference", format!("the processor prefers {value}")),
        None => Finding::new("energy_preference", State::Absent, "no processor that chooses its clock itself (EPP)"),
    }
}

fn clamps() -> Finding {
    match power::has_clamps() {
        true => Finding::ok("uclamp", "the clock that a thread may ask for can be limited"),
        false => Finding::new("uclamp", State::Absent, "the kernel was built without CONFIG_UCLAMP_TASK"),
    }
}

fn manager(root: &Path) -> Finding {
    match power::power_manager(root) {
        None => Finding::ok("power_manager", "no other program manages the clocks"),
        Some(manager) => {
            let reason = format!("{manager}; Q-Fabric leaves them alone");
            Finding::new("power_manager", State::Warn, reason)
                .fix(format!("to let Q-Fabric set them: {}", manager.stop))
        }
    }
}

fn wifi(sys: &Path) -> Finding {
    let radios = power::radios(sys);
    if radios.is_empty() {
        return Finding::new("wifi_power_save", State::Absent, "no wireless network card");
    }
    let state = |radio: &power::Radio| match radio.power_save() {
        Ok(on) => format!("{} {}", radio.name, if on { "on" } else { "off" }),
        Err(error) => format!("{}: {error}", radio.name),
    };
    Finding::ok("wifi_power_save", radios.iter().take(8).map(state).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::power::PowerTree;

    #[test]
    fn knobs_and_meters_of_a_tree_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let tree = PowerTree::new(folder.path());
        let states = |tree: &PowerTree| -> Vec<State> {
            examine(tree.root(), tree.root()).iter().filter(|f| f.name != "uclamp").map(|f| f.state).collect()
        };
        use State::{Absent, Ok, Warn};
        assert_eq!(states(&tree), [Absent, Absent, Absent, Ok, Absent]);
        tree.zone("intel-rapl:0", "package-0", 7, None);
        tree.clock("policy0", 900_000, (800_000, 3_600_000));
        tree.set("devices/system/cpu/cpufreq/policy0/energy_performance_preference", "balance_performance");
        tree.set("class/net/wlan0/phy80211/index", 0);
        // No interface has this number.
        tree.set("class/net/wlan0/ifindex", i32::MAX);
        tree.set("proc/77/comm", "power-profiles-");
        assert_eq!(states(&tree), [Ok, Ok, Ok, Warn, Ok]);
        assert!(clocks(tree.root()).reason.contains("800 to 3600 MHz, governor schedutil"));
        assert!(manager(tree.root()).reason.contains("power-profiles-daemon"));
        tree.set("class/powercap/intel-rapl:0/energy_uj", "?");
        assert_eq!(states(&tree)[0], Warn);
    }
}
