//! The runs of a scenario together: median, least and most of each number. Pure.

use qfabric_netlab::Spread;
use serde::Serialize;

use super::measure::ConferenceRow;
use super::scenes::Adaptation;

/// A client in all runs of a scenario with the same adaptation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConferenceSpread {
    /// Letter of the scenario.
    pub scenario: String,
    /// What adapts.
    pub adaptation: Adaptation,
    /// Name of the client.
    pub client: String,
    /// Number of runs.
    pub runs: usize,
    /// Of [`ConferenceRow::utility`].
    pub utility: Spread,
    /// Of [`ConferenceRow::rate_mean`].
    pub rate_mean: Spread,
    /// Of [`ConferenceRow::jitter_p99_ms`].
    pub jitter_p99_ms: Spread,
    /// Of [`ConferenceRow::recovery_s`]; a rate that did not come back counts as infinite, which is `null` in JSON.
    pub recovery_s: Spread,
    /// Of [`ConferenceRow::quality_changes`].
    pub quality_changes: Spread,
}

impl ConferenceSpread {
    /// In the order of the first runs.
    pub(super) fn of(rows: &[ConferenceRow]) -> Vec<ConferenceSpread> {
        groups(rows).iter().filter_map(|group| ConferenceSpread::of_runs(group)).collect()
    }

    /// `None` without a run.
    fn of_runs(rows: &[&ConferenceRow]) -> Option<ConferenceSpread> {
        let of = |number: fn(&ConferenceRow) -> f64| Spread::of(rows.iter().map(|row| number(row)));
        let first = rows.first()?;
        Some(ConferenceSpread {
            scenario: first.scenario.clone(),
            adaptation: first.adaptation,
            client: first.client.clone(),
            runs: rows.len(),
            utility: of(|row| row.utility)?,
            rate_mean: of(|row| row.rate_mean)?,
            jitter_p99_ms: of(|row| row.jitter_p99_ms)?,
            recovery_s: of(ConferenceRow::recovery)?,
            quality_changes: of(|row| f64::from(row.quality_changes))?,
        })
    }
}

/// The runs of each scenario with the same adaptation, in the order of the first runs.
pub(super) fn groups(rows: &[ConferenceRow]) -> Vec<Vec<&ConferenceRow>> {
    let mut groups: Vec<Vec<&ConferenceRow>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.is_same_scenario(row))) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Outcome, Recovery};
    use super::*;

    fn row(run: u32, adaptation: Adaptation, utility: f64, recovery_s: Option<f64>) -> ConferenceRow {
        let outcome = if recovery_s.is_some() { Outcome::Recovered } else { Outcome::NotRecovered };
        ConferenceRow {
            scenario: "d".to_owned(),
            adaptation,
            client: "client".to_owned(),
            run,
            utility,
            rate_mean: 20.0,
            jitter_p99_ms: 1.0,
            recovery_s,
            recoveries: vec![Recovery { strained: "server", outcome, seconds: recovery_s }],
            quality_changes: run,
        }
    }

    #[test]
    fn the_runs_of_a_scenario_have_one_spread_and_a_rate_that_stays_low_is_the_worst_one() {
        let rows = [
            row(1, Adaptation::Integrated, 0.9, Some(2.0)),
            row(1, Adaptation::Priority, 0.5, Some(1.0)),
            row(2, Adaptation::Integrated, 0.7, None),
            row(3, Adaptation::Integrated, 0.8, Some(4.0)),
        ];
        let spreads = ConferenceSpread::of(&rows);
        assert_eq!(
            spreads.iter().map(|one| (one.adaptation, one.runs)).collect::<Vec<_>>(),
            [(Adaptation::Integrated, 3), (Adaptation::Priority, 1)]
        );
        assert_eq!(spreads[0].utility, Spread { median: 0.8, least: 0.7, most: 0.9 });
        assert_eq!(spreads[0].recovery_s, Spread { median: 4.0, least: 2.0, most: f64::INFINITY });
        let json = serde_json::to_value(&spreads[0]).unwrap();
        assert_eq!(
            (&json["recovery_s"]["most"], &json["quality_changes"]["most"]),
            (&serde_json::Value::Null, &3.0.into())
        );
    }
}
