//! The figures that the runs of the conference have to reach, judged by their rows. Pure. One run of each scenario is a
//! sign, not a proof: other programs on the machine disturb it.

use std::fmt;

use serde::Serialize;

use super::measure::{ConferenceRow, Series};
use super::scenes::{self, Adaptation};
use super::timeline::{Strain, Timeline};

/// Part of the utility of the best single adaptation that `integrated` needs at least.
const AS_GOOD: f64 = 0.95;
/// Longest recovery in seconds where CPU time is left.
const RECOVERY: f64 = 3.0;
/// Most changes of the level in a minute of a steady strain.
const CHANGES: usize = 2;
/// Length of a minute in seconds. A strain is steady from a minute after its begin or end.
const MINUTE: f64 = 60.0;

/// A figure, and what the runs say about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What has to be reached, and where.
    pub claim: String,
    /// What was measured.
    pub measured: String,
    /// Whether the runs reached it.
    pub is_reached: bool,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_reached { "reached" } else { "missed" };
        write!(f, "{word}: {} ({})", self.claim, self.measured)
    }
}

/// The figures for which there are runs; a run in the place `n` of `rows` has the series in the place `n`.
pub(super) fn figures(rows: &[ConferenceRow], series: &[Series], timeline: &Timeline) -> Vec<Figure> {
    let strains = [Strain::Spinning, Strain::NarrowLink, Strain::CostlyPictures];
    let utilities = strains.into_iter().filter_map(|strain| utility(rows, strain));
    let has_time = |row: &&ConferenceRow| {
        row.adaptation == Adaptation::Integrated && scenes::strain(&row.scenario) == Some(Strain::Spinning)
    };
    let recoveries = rows.iter().filter(has_time).map(recovery);
    let changes = rows.iter().zip(series).filter_map(|(row, series)| steadiness(row, series, timeline));
    utilities.chain(recoveries).chain(changes).collect()
}

/// Contracts and levels together beside each alone. None: one of the three runs is missing.
fn utility(rows: &[ConferenceRow], strain: Strain) -> Option<Figure> {
    let of = |adaptation: Adaptation| {
        let is_it =
            |row: &&ConferenceRow| row.adaptation == adaptation && scenes::strain(&row.scenario) == Some(strain);
        rows.iter().find(is_it).map(|row| row.utility)
    };
    let (level, cpu, both) = (of(Adaptation::Application)?, of(Adaptation::Cpu)?, of(Adaptation::Integrated)?);
    let strain = strain.name();
    Some(Figure {
        claim: format!("under {strain}, integrated has at least 95 % of the utility of each single adaptation"),
        measured: format!("{both:.2}; application {level:.2}, cpu {cpu:.2}"),
        is_reached: both >= AS_GOOD * level.max(cpu),
    })
}

fn recovery(row: &ConferenceRow) -> Figure {
    let measured: Vec<String> = row.recoveries.iter().map(ToString::to_string).collect();
    Figure {
        claim: format!("in scenario {} (integrated), the rate is back within 3 s of each disturbance", row.scenario),
        measured: measured.join(", "),
        is_reached: row.recovery_s.is_some_and(|seconds| seconds <= RECOVERY),
    }
}

/// The changes of the level while the strain is steady. None: nothing changes the level, or no strain is steady.
fn steadiness(row: &ConferenceRow, series: &Series, timeline: &Timeline) -> Option<Figure> {
    if !matches!(row.adaptation, Adaptation::Application | Adaptation::Integrated | Adaptation::Feedback) {
        return None;
    }
    let steps = timeline.steps(scenes::strain(&row.scenario)?);
    let times: Vec<f64> =
        std::iter::once(0.0).chain(steps.iter().map(|step| step.at)).chain([timeline.seconds()]).collect();
    let is_steady = |at: f64| times.windows(2).any(|pair| pair[0] + MINUTE <= at && at < pair[1]);
    if !times.iter().any(|begin| is_steady(begin + MINUTE)) {
        return None;
    }
    let changes: Vec<f64> = series.levels.iter().skip(1).map(|(at, _)| *at).filter(|at| is_steady(*at)).collect();
    let within = |from: &f64| changes.iter().filter(|at| (*from..from + MINUTE).contains(*at)).count();
    let most = changes.iter().map(within).max().unwrap_or(0);
    let (scenario, adaptation) = (&row.scenario, row.adaptation);
    Some(Figure {
        claim: format!(
            "in scenario {scenario} ({adaptation}), a steady strain changes the level at most twice a minute"
        ),
        measured: format!("{most} in the busiest minute"),
        is_reached: most <= CHANGES,
    })
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Outcome, Recovery};
    use super::*;

    fn row(scenario: &str, adaptation: Adaptation, utility: f64, recovery_s: Option<f64>) -> ConferenceRow {
        let outcome = if recovery_s.is_some() { Outcome::Recovered } else { Outcome::NotRecovered };
        ConferenceRow {
            scenario: scenario.to_owned(),
            adaptation,
            client: "client".to_owned(),
            utility,
            rate_mean: 20.0,
            jitter_p99_ms: 1.0,
            recovery_s,
            recoveries: vec![Recovery { strained: "server", outcome, seconds: recovery_s }],
            quality_changes: 0,
        }
    }

    fn reached(rows: &[ConferenceRow], series: &[Series], seconds: f64) -> Vec<bool> {
        figures(rows, series, &Timeline::of(seconds)).iter().map(|figure| figure.is_reached).collect()
    }

    #[test]
    fn integrated_is_judged_beside_the_single_adaptations_of_the_same_strain() {
        let rows = |both, recovery| {
            [
                row("b", Adaptation::Application, 0.5, Some(9.0)),
                row("c", Adaptation::Cpu, 0.9, None),
                row("d", Adaptation::Integrated, both, recovery),
                row("e", Adaptation::Integrated, 0.1, None),
            ]
        };
        assert_eq!(reached(&rows(0.86, Some(3.0)), &[], 35.0), [true, true]);
        assert_eq!(reached(&rows(0.85, Some(3.1)), &[], 35.0), [false, false]);
        assert_eq!(reached(&rows(0.95, None), &[], 35.0), [true, false]);
        assert!(reached(&rows(0.95, None)[..2], &[], 35.0).is_empty(), "there is no run of integrated");
        let text = figures(&rows(0.86, None), &[], &Timeline::of(35.0))[1].to_string();
        assert!(text.starts_with("missed: in scenario d") && text.ends_with("(server not)"), "{text}");
    }

    #[test]
    fn changes_of_the_level_count_a_minute_after_the_strain_has_changed() {
        let rows = [row("e", Adaptation::Application, 0.5, None), row("e", Adaptation::Cpu, 0.5, None)];
        let series = |times: &[f64]| {
            let levels = [&[1.0], times].concat().iter().map(|at| (*at, "level".to_owned())).collect();
            [Series { levels, ..Series::default() }, Series::default()]
        };
        // The link is narrow from 146 to 400 s.
        assert_eq!(reached(&rows, &series(&[147.0, 150.0, 153.0, 210.0, 269.0, 271.0, 401.0]), 420.0), [true]);
        assert_eq!(reached(&rows, &series(&[210.0, 230.0, 269.0]), 420.0), [false]);
        assert!(reached(&rows, &series(&[30.0, 31.0, 32.0]), 42.0).is_empty(), "no strain lasts for a minute");
    }
}
