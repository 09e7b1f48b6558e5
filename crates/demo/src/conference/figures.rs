//! The figures that the runs of the conference have to reach, judged by the medians of their rows. Pure. One run of
//! each scenario is a sign, not a proof: other programs on the machine disturb it.

use std::fmt;

use qfabric_netlab::Spread;
use serde::Serialize;

use super::measure::{ConferenceRow, Series};
use super::scenes::{self, Adaptation};
use super::timeline::{Strain, Timeline};

/// Part of the utility of the best single adaptation that `integrated` needs at least.
const AS_GOOD: f64 = 0.95;
/// Longest recovery in seconds where CPU time is left.
const RECOVERY: f64 = 3.0;
/// Most changes of the level in a minute of a steady strain.
const CHANGES: f64 = 2.0;
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
    let recovery = recovery(&rows.iter().filter(has_time).collect::<Vec<_>>());
    let minute = |(row, series)| Some((row, busiest_minute(row, series, timeline)?));
    let minutes: Vec<(&ConferenceRow, usize)> = rows.iter().zip(series).filter_map(minute).collect();
    utilities.chain(recovery).chain(steadiness(&minutes)).collect()
}

/// Contracts and levels together beside each alone. None: the runs of one of the three are missing.
fn utility(rows: &[ConferenceRow], strain: Strain) -> Option<Figure> {
    let of = |adaptation: Adaptation| {
        let is_it =
            |row: &&ConferenceRow| row.adaptation == adaptation && scenes::strain(&row.scenario) == Some(strain);
        Spread::of(rows.iter().filter(is_it).map(|row| row.utility))
    };
    let (level, cpu, both) = (of(Adaptation::Application)?, of(Adaptation::Cpu)?, of(Adaptation::Integrated)?);
    let strain = strain.name();
    let text = |spread: Spread| spread.text(|utility| format!("{utility:.2}"));
    Some(Figure {
        claim: format!("under {strain}, integrated has at least 95 % of the utility of each single adaptation"),
        measured: format!("{}; application {}, cpu {}", text(both), text(level), text(cpu)),
        is_reached: both.median >= AS_GOOD * level.median.max(cpu.median),
    })
}

/// The recoveries of the runs of one scenario. None: there are none.
fn recovery(rows: &[&ConferenceRow]) -> Option<Figure> {
    let seconds = Spread::of(rows.iter().map(|row| row.recovery()))?;
    let measured: Vec<String> = rows.iter().map(|row| row.recoveries_text()).collect();
    Some(Figure {
        claim: format!(
            "in scenario {} (integrated), the rate is back within 3 s of each disturbance",
            rows.first()?.scenario
        ),
        measured: measured.join("; "),
        is_reached: seconds.median <= RECOVERY,
    })
}

/// The most changes of the level in a minute while the strain is steady. None: nothing changes the level, or no strain
/// is steady.
fn busiest_minute(row: &ConferenceRow, series: &Series, timeline: &Timeline) -> Option<usize> {
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
    Some(changes.iter().map(within).max().unwrap_or(0))
}

/// One figure for the runs of each scenario with the same adaptation, in the order of the first runs.
fn steadiness(minutes: &[(&ConferenceRow, usize)]) -> Vec<Figure> {
    let is_first = |at: usize, row: &ConferenceRow| !minutes[..at].iter().any(|(one, _)| one.is_same_scenario(row));
    let figure = |(at, (row, _)): (usize, &(&ConferenceRow, usize))| {
        let same = minutes.iter().filter(|(one, _)| one.is_same_scenario(row));
        let changes = Spread::of(same.map(|(_, most)| *most as f64)).filter(|_| is_first(at, row))?;
        let (scenario, adaptation) = (&row.scenario, row.adaptation);
        Some(Figure {
            claim: format!(
                "in scenario {scenario} ({adaptation}), a steady strain changes the level at most twice a minute"
            ),
            measured: format!("{} in the busiest minute", changes.text(|most| format!("{most}"))),
            is_reached: changes.median <= CHANGES,
        })
    };
    minutes.iter().enumerate().filter_map(figure).collect()
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
            run: 1,
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
    fn several_runs_are_judged_by_their_medians_and_their_spread_is_shown() {
        let runs = |both: [f64; 3], recoveries: [Option<f64>; 3]| {
            let of = |at: usize| {
                [
                    row("b", Adaptation::Application, 0.5, Some(9.0)),
                    row("c", Adaptation::Cpu, 0.9, None),
                    row("d", Adaptation::Integrated, both[at], recoveries[at]),
                ]
            };
            [of(0), of(1), of(2)].concat()
        };
        let rows = runs([0.95, 0.2, 0.86], [Some(1.0), None, Some(3.0)]);
        assert_eq!(reached(&rows, &[], 35.0), [true, true]);
        let text = figures(&rows, &[], &Timeline::of(35.0))[0].to_string();
        assert!(text.ends_with("(0.86 (0.20 to 0.95); application 0.50, cpu 0.90)"), "{text}");
        assert_eq!(reached(&runs([0.95, 0.2, 0.8], [Some(1.0), None, None]), &[], 35.0), [false, false]);
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
