//! The result of a scenario: one row for each policy.

use qfabric_energy::{Energy, Model, Tally};
use serde::Serialize;

use super::device::Usage;

/// A scenario's result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub scenario: &'static str,
    pub title: String,
    pub seed: u64,
    pub model: ModelInfo,
    /// The first row, or the first one of a group, is the reference of the savings after it.
    pub rows: Vec<Row>,
    #[serde(skip)]
    reference: Option<Energy>,
}

/// The model by which the joules were computed, with counts of its numbers by their origin.
#[derive(Clone, Debug, Serialize)]
pub struct ModelInfo {
    pub name: String,
    #[serde(flatten)]
    pub tally: Tally,
}

/// One policy. Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub policy: String,
    /// `joules` and `source` in JSON.
    #[serde(flatten)]
    pub energy: Energy,
    /// Part of the energy of the group's first row that was saved; negative if more was used.
    pub saving: f64,
    /// The saving as energy, with its source.
    pub saved: Energy,
    pub utility: f64,
    /// Misses and late packets are those of the whole run, also where the rest is a mean.
    pub misses: u64,
    pub late: u64,
    pub wakeups: f64,
    pub awake_ms: f64,
    pub mean_mhz: f64,
}

impl Report {
    pub(super) fn new(scenario: &'static str, title: &str, seed: u64, model: &Model) -> Self {
        let info = ModelInfo { name: model.name.clone(), tally: model.tally };
        Report { scenario, title: title.to_owned(), seed, model: info, rows: Vec::new(), reference: None }
    }

    /// Adds a policy; the first one of a group becomes the reference.
    pub(super) fn add(&mut self, policy: &str, utility: f64, usage: &Usage) {
        let reference = *self.reference.get_or_insert(usage.energy);
        let saved = reference.minus(usage.energy).expect("all rows are modelled");
        self.rows.push(Row {
            policy: policy.to_owned(),
            energy: usage.energy,
            saving: saved.ratio(reference),
            saved,
            utility,
            misses: usage.misses,
            late: usage.late,
            wakeups: usage.wakeups,
            awake_ms: usage.awake / 1e6,
            mean_mhz: usage.mean_mhz,
        });
    }

    /// The next policy becomes the reference of those after it.
    pub(super) fn begin_group(&mut self) {
        self.reference = None;
    }

    /// The row of a policy.
    pub fn row(&self, policy: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.policy == policy)
    }
}
