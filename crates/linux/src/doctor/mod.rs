//! What this host offers, why not, and what to do about it. Looks and probes; changes nothing but through
//! [`fix`], which writes into the journal first.
//!
//! | file | what |
//! |---|---|
//! | `bpf.rs` | what handlers in the kernel need |
//! | `cpu.rs` | what the mechanism `deadline` and its enforcement need |
//! | `host.rs` | the rest: rights, observation, groups, clocks, energy |
//! | `schedulers.rs` | what the mechanism `ext` and packet schedulers need |

mod bpf;
mod cpu;
mod host;
mod schedulers;

use std::path::Path;

use qfabric_types::{MechanismName, Share};

use crate::books;
use crate::hrtick::{DEBUGFS, Feature};
use crate::journal::{Journal, SwitchError};

/// How one finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There, and as it should be.
    Ok,
    /// There, but could be better.
    Warn,
    /// Not there, or not usable.
    Missing,
    /// Cannot be known here.
    Unknown,
    /// The machine or its kernel has no such thing, and nothing needs it: there is nothing to do.
    Absent,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Finding {
    /// Stable short name, such as `hrtick_dl`.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found, with its numbers.
    pub reason: String,
    /// What to do, where something can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether [`fix`] can do it.
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

/// Facts other code decides by.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Facts {
    /// The mechanism to use; `None` where none works.
    pub mechanism: Option<MechanismName>,
    /// What the kernel would admit now, in CPUs; `None` where SCHED_DEADLINE is not to be had.
    pub capacity: Option<Share>,
    /// Bandwidth that the kernel holds for nobody, in CPUs (negative: it has booked too little); `None` where that
    /// cannot be found out.
    pub booked_for_nobody: Option<f64>,
    /// `perf` or `poll`.
    pub observer: &'static str,
    /// The scheduler's tick in nanoseconds, by which budgets are enforced where HRTICK_DL is not on.
    pub tick_ns: Option<u64>,
    /// Whether budgets are enforced by a timer of their own.
    pub hrtick_dl: bool,
    /// Whether reservations may use what others leave over (`SCHED_FLAG_RECLAIM`).
    pub grub: bool,
    /// Whether `sched_getattr` tells what is left of a budget (Linux 7.1).
    pub dynamic_getattr: bool,
    /// Whether handlers can be put into the kernel (ECalls).
    pub bpf: bool,
    /// Whether the mechanism `ext` can be used.
    pub ext: bool,
}

/// Everything looked at.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// One line each.
    pub findings: Vec<Finding>,
    /// What they come to.
    pub facts: Facts,
}

impl Report {
    /// The finding of a name.
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.name == name)
    }
}

/// Looks at this host. Changes nothing; takes some tens of milliseconds. Probing the room may make an increase
/// of somebody else's reservation fail while it lasts (under a millisecond on two CPUs).
pub fn examine() -> Report {
    let mut facts = Facts::default();
    let mut findings = vec![host::kernel()];
    findings.extend(cpu::examine(&mut facts, Path::new(DEBUGFS)));
    findings.extend(host::examine(&mut facts));
    findings.push(bpf::examine(&mut facts));
    findings.extend(schedulers::examine(&mut facts));
    Report { findings, facts }
}

/// Switches HRTICK_DL on in the scheduler features below `debugfs` ([`DEBUGFS`]), writing into the journal
/// first what it was; [`Journal::switch_back`] and `restore` put it back. Answers what was done or refused.
pub fn fix(debugfs: &Path, journal: &mut Journal) -> Finding {
    match journal.switch(debugfs, Feature::HrtickDl, true) {
        Ok(true) => Finding::ok("hrtick_dl", "switched on; it will be put back"),
        Ok(false) => Finding::ok("hrtick_dl", "it was on already"),
        Err(SwitchError::Refused(state)) => cpu::hrtick(state, None),
        Err(error) => Finding::new("hrtick_dl", State::Missing, error.to_string()),
    }
}

/// Measures whether GRUB lends what is reserved ([`books::lent_too_much`]): takes a second or two, and all free CPU time.
pub fn reclaiming(debugfs: &Path) -> Finding {
    cpu::reclaiming(books::lent_too_much(debugfs))
}

/// Takes out of the kernel's sums what GRUB lends though it is reserved ([`books::stop_lending`]): 2 to 60 s with all free CPU
/// time; nothing is left to be put back.
pub fn fix_reclaiming(debugfs: &Path) -> Finding {
    cpu::fix_reclaiming(debugfs)
}

/// Frees bandwidth that is booked for nobody, by rebuilding the root domain of the first CPU; nothing is left to be put
/// back. Takes 5 s where there is such bandwidth: no departure may be pending.
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

    /// Writing to the real file switches one feature; to a plain file it overwrites the beginning.
    fn settle(root: &Path) {
        let written = std::fs::read_to_string(root.join("sched/features")).unwrap();
        let now = if written.starts_with("HRTICK_DL") { "NO_HRTICK HRTICK_DL\n" } else { "NO_HRTICK NO_HRTICK_DL\n" };
        std::fs::write(root.join("sched/features"), now).unwrap();
    }

    #[test]
    fn what_was_fixed_is_put_back_at_the_end() {
        let (root, run) = (tree(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(run.path()).unwrap();
        assert_eq!(fix(root.path(), &mut journal).state, State::Ok);
        settle(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::On);
        assert_eq!(journal.switch_back(), Vec::<String>::new());
        settle(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::Off);
    }

    #[test]
    fn what_was_fixed_is_put_back_after_a_crash() {
        let (root, run) = (tree(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(run.path()).unwrap();
        fix(root.path(), &mut journal);
        settle(root.path());
        drop(journal); // without putting anything back
        assert_eq!(journal::restore(run.path()).unwrap().settings, 1);
        settle(root.path());
        assert_eq!(hrtick::state(root.path(), Feature::HrtickDl), hrtick::State::Off);
        assert_eq!(journal::restore(run.path()).unwrap(), journal::Restored::default());
    }

    #[test]
    fn what_cannot_be_fixed_says_why_and_what_then() {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(run.path()).unwrap();
        let refused = fix(&run.path().join("none"), &mut journal);
        assert_ne!(refused.state, State::Ok);
        let fix = refused.fix.unwrap();
        assert!(refused.reason.contains("is not there") && fix.contains("mount -t debugfs"), "{fix}");
    }

    #[test]
    fn every_finding_has_a_reason_and_whatever_is_missing_a_way_out() {
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
