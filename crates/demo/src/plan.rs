//! Which runs there are and how long each takes.
//!
//! Policies share the processors, so they run one after another. A run near capacity gets twice the time of
//! a run under hogs: it has a shift half-way and must show what happens after it.

use crate::policy::{self, Policy};

/// One of the two settings of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// One player under CPU hogs.
    Hogs,
    /// Players near capacity, whose load shifts half-way.
    Shift,
}

impl Scenario {
    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Hogs => "hogs",
            Scenario::Shift => "shift",
        }
    }
    /// ρ of Q-Fabric's contracts: half-width of the predicted interval in standard deviations. A lone player
    /// on GRUB can be tight; where everybody needs what the others leave over, a wider margin pays.
    pub fn rho(self) -> f64 {
        match self {
            Scenario::Hogs => 0.5,
            Scenario::Shift => 1.3,
        }
    }
    fn weight(self) -> f64 {
        match self {
            Scenario::Hogs => 1.0,
            Scenario::Shift => 2.0,
        }
    }
    fn policies(self) -> Vec<Policy> {
        match self {
            Scenario::Hogs => policy::under_hogs(),
            Scenario::Shift => policy::near_capacity(),
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// In which setting.
    pub scenario: Scenario,
    /// Under which policy.
    pub policy: Policy,
    /// How long it plays.
    pub seconds: f64,
}

/// What a run costs beside playing: starting players, loading clips, late frames.
const OVERHEAD_SECONDS: f64 = 0.9;
/// The trial execution.
const TRIAL_SECONDS: f64 = 3.0;
/// Two seconds are 50 jobs, of which 12 warm up; less says nothing.
const SHORTEST_SECONDS: f64 = 2.0;

/// The runs that fit into `seconds`, or the shortest ones where none fit. `only` keeps those whose scenario
/// or label contains one of its words, whatever their case; empty keeps all.
pub fn plan(seconds: f64, only: &[String]) -> Vec<Run> {
    let mut runs: Vec<Run> = [Scenario::Hogs, Scenario::Shift]
        .into_iter()
        .flat_map(|scenario| scenario.policies().into_iter().map(move |policy| (scenario, policy)))
        .filter(|(scenario, policy)| wanted(*scenario, policy, only))
        .map(|(scenario, policy)| Run { scenario, policy, seconds: 0.0 })
        .collect();
    let weights: f64 = runs.iter().map(|run| run.scenario.weight()).sum();
    let playing = seconds - TRIAL_SECONDS - OVERHEAD_SECONDS * runs.len() as f64;
    for run in &mut runs {
        let share = playing * run.scenario.weight() / weights;
        run.seconds = (share.max(SHORTEST_SECONDS) * 25.0).floor() / 25.0;
    }
    runs
}

fn wanted(scenario: Scenario, policy: &Policy, only: &[String]) -> bool {
    let text = format!("{}: {}", scenario.name(), policy.label()).to_lowercase();
    only.is_empty() || only.iter().any(|word| text.contains(&word.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(runs: &[Run]) -> f64 {
        runs.iter().map(|r| r.seconds + OVERHEAD_SECONDS).sum::<f64>() + TRIAL_SECONDS
    }

    #[test]
    fn the_runs_fill_the_seconds_and_no_more() {
        for seconds in [75.0, 120.0, 600.0] {
            let total = total(&plan(seconds, &[]));
            assert!(total <= seconds && total > seconds - 1.0, "{total} of {seconds}");
        }
    }

    #[test]
    fn a_run_with_a_shift_is_twice_as_long() {
        let runs = plan(120.0, &[]);
        let seconds = |scenario| runs.iter().find(|r| r.scenario == scenario).unwrap().seconds;
        assert!((seconds(Scenario::Shift) - 2.0 * seconds(Scenario::Hogs)).abs() < 0.1);
    }

    #[test]
    fn too_few_seconds_give_the_shortest_runs_that_say_something() {
        assert!(plan(1.0, &[]).iter().all(|run| run.seconds == SHORTEST_SECONDS));
    }

    #[test]
    fn only_keeps_what_is_named() {
        let labels = |only: &str| plan(60.0, &[only.into()]).iter().map(|r| r.policy.label()).collect::<Vec<_>>();
        assert_eq!(labels("plain"), ["plain"]);
        assert_eq!(labels("shift: nice"), ["nice -20"]);
        assert_eq!(labels("HINT").len(), 3);
        assert!(labels("no such policy").is_empty());
    }
}
