//! Reports the abilities of this host, with the reason and the next step if one is missing. Only reads and probes; only
//! [`fix`] and its siblings change something, and they write to the journal first.
//!
//! | file | contents |
//! |---|---|
//! | `bpf.rs` | requirements of handlers in the kernel, of their signals, and of the kernel path |
//! | `cpu.rs` | requirements of the mechanism `deadline` and its enforcement |
//! | `energy.rs` | meters and knobs of energy |
//! | `host.rs` | capabilities, observation, groups, time, battery |
//! | `schedulers.rs` | requirements of the mechanism `ext` and of packet schedulers |

mod bpf;
mod cpu;
mod energy;
mod host;
mod schedulers;

use std::path::Path;

use qfabric_types::api::Problem;
use qfabric_types::{MechanismName, Share};

use crate::books;
use crate::hrtick::{DEBUGFS, Feature};
use crate::journal::{Journal, SwitchError};
use crate::power;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Present and in order.
    Ok,
    /// Present, but could be better.
    Warn,
    /// Missing or not usable.
    Missing,
    /// Cannot be found out.
    Unknown,
    /// The machine or its kernel does not have it, and nothing needs it; there is no next step.
    Absent,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Finding {
    /// Stable short name, such as `hrtick_dl`.
    pub name: &'static str,
    pub state: State,
    /// The result in words, with its numbers.
    pub reason: String,
    /// Next step, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// True if [`fix`] can do the next step.
    pub fixable: bool,
}

impl Finding {
    fn new(name: &'static str, state: State, reason: impl Into<String>) -> Self {
        Finding { name, state, reason: reason.into(), fix: None, fixable: false }
    }

    fn ok(name: &'static str, reason: impl Into<String>) -> Self {
        Finding::new(name, State::Ok, reason)
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Results on which other code decides.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Facts {
    /// The mechanism to use; `None` if none works.
    pub mechanism: Option<MechanismName>,
    /// Bandwidth that the kernel would admit now, in CPUs; `None` if SCHED_DEADLINE cannot be used.
    pub capacity: Option<Share>,
    /// Booked bandwidth with no owner, in CPUs; negative if the kernel has booked too little; `None` if it cannot be
    /// found out.
    pub booked_for_nobody: Option<f64>,
    /// `perf` or `poll`.
    pub observer: &'static str,
    /// The scheduler's tick in nanoseconds; it enforces budgets while HRTICK_DL is off.
    pub tick_ns: Option<u64>,
    /// True if a separate timer enforces budgets.
    pub hrtick_dl: bool,
    /// True if reservations can use the bandwidth that others leave over (`SCHED_FLAG_RECLAIM`).
    pub grub: bool,
    /// True if `sched_getattr` reports the remaining budget (Linux 7.1).
    pub dynamic_getattr: bool,
    /// True if handlers can be installed in the kernel (ECalls).
    pub bpf: bool,
    /// True if the mechanism `ext` can be used.
    pub ext: bool,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub facts: Facts,
}

impl Report {
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.name == name)
    }
}

/// Checks this host. Changes nothing; takes some tens of milliseconds. While it probes the free bandwidth (less than a
/// millisecond on two CPUs), an increase of another program's reservation may fail.
pub fn examine() -> Report {
    let mut facts = Facts::default();
    let mut findings = vec![host::kernel()];
    findings.extend(cpu::examine(&mut facts, Path::new(DEBUGFS)));
    findings.extend(host::examine(&mut facts));
    findings.extend(energy::examine(Path::new(power::SYS), Path::new("/")));
    findings.extend(bpf::examine(&mut facts));
    findings.push(bpf::kernel_path());
    findings.extend(schedulers::examine(&mut facts));
    Report { findings, facts }
}

/// Switches HRTICK_DL on in the scheduler features below `debugfs` ([`DEBUGFS`]) after recording its state in the
/// journal. [`Journal::switch_back`] and `restore` switch it back. Returns the result as a finding.
pub fn fix(debugfs: &Path, journal: &mut Journal) -> Finding {
    match journal.switch(debugfs, Feature::HrtickDl, true) {
        Ok(true) => Finding::ok("hrtick_dl", "switched on; the former state will be restored"),
        Ok(false) => Finding::ok("hrtick_dl", "it was already on"),
        Err(SwitchError::Refused(state)) => cpu::hrtick(state, None),
        Err(SwitchError::Journal(error)) => {
            let Problem { message, next_step, .. } = error.problem();
            Finding::new("hrtick_dl", State::Missing, message).fix(next_step)
        }
    }
}

/// Measures if GRUB lends reserved bandwidth ([`books::lent_too_much`]). Uses all free CPU time for one or two seconds.
pub fn reclaiming(debugfs: &Path) -> Finding {
    cpu::reclaiming(books::lent_too_much(debugfs))
}

/// Removes wrongly lent bandwidth from the kernel's sums ([`books::stop_lending`]). Uses all free CPU time for 2 to 60
/// s. There is nothing to undo.
pub fn fix_reclaiming(debugfs: &Path) -> Finding {
    cpu::fix_reclaiming(debugfs)
}

/// Frees booked bandwidth with no owner by rebuilding the root domain of the first CPU. There is nothing to undo. Takes
/// 5 s if there is such bandwidth, because no departure may be pending.
pub fn fix_booked(debugfs: &Path) -> Finding {
    cpu::fix_booked(debugfs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hrtick, journal};

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("sched")).unwrap();
        std::fs::write(root.path().join("sched/features"), "NO_HRTICK NO_HRTICK_DL\n").unwrap();
        root
    }

    /// A write to the real file switches one feature; a write to this plain file overwrites its beginning. This
    /// restores the form.
    fn emulate_switch(root: &Path) {
        let written = std::fs::read_to_string(root.join("sched/features")).unwrap();
        let now = if written.starts_with("HRTICK_DL") { "NO_HRTICK HRTICK_DL\n" } else { "NO_HRTICK NO_HRTICK_DL\n" };
        std::fs::write(root.join("sched/features"), now).unwrap();
    }

    #[test]
    fn a_fix_is_undone_at_the_end() {
        let (root, run) = (tree(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(run.path()).unwrap();
        assert_eq!(fix(root.path(), &mut journal).state, State::Ok);
        emulate_switch(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::On);
        assert_eq!(journal.switch_back(), Vec::<String>::new());
        emulate_switch(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::Off);
    }

    #[test]
    fn a_fix_is_undone_after_a_crash() {
        let (root, run) = (tree(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(run.path()).unwrap();
        fix(root.path(), &mut journal);
        emulate_switch(root.path());
        drop(journal); // a crash: nothing was put back
        assert_eq!(journal::restore(run.path()).unwrap().settings, 1);
        emulate_switch(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::Off);
        assert_eq!(journal::restore(run.path()).unwrap(), journal::Restored::default());
    }

    #[test]
    fn a_failed_fix_names_the_reason_and_the_next_step() {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(run.path()).unwrap();
        let refused = fix(&run.path().join("none"), &mut journal);
        assert_ne!(refused.state, State::Ok);
        let fix = refused.fix.unwrap();
        assert!(refused.reason.contains("does not exist") && fix.contains("mount -t debugfs"), "{fix}");
    }

    #[test]
    fn every_finding_has_a_reason_and_a_missing_ability_has_a_next_step() {
        let _alone = crate::testing::live_lock();
        let report = examine();
        for finding in &report.findings {
            assert!(!finding.reason.is_empty(), "{finding:?}");
            let nothing_to_do = [State::Ok, State::Absent].contains(&finding.state);
            assert!(nothing_to_do || finding.fix.is_some(), "{finding:?}");
        }
        let names: std::collections::HashSet<_> = report.findings.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), report.findings.len());
        assert_eq!(report.facts.mechanism.is_some(), report.facts.capacity.is_some());
    }
}
