//! The results: a table for people, JSON for programs. Medians of the rounds, with the smallest and largest value.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use qfabric_netlab::Spread;
use serde::Serialize;

use crate::engine::Engine;
use crate::goals::{self, Goal};
use crate::measure::{Measure, number};
use crate::{Experiment, Options};

/// A run that counts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    pub round: u32,
    #[serde(serialize_with = "word")]
    pub engine: Engine,
    /// Which flow of the engine, from 0.
    pub flow: usize,
    #[serde(flatten)]
    pub measure: Measure,
}

fn word<S: serde::Serializer>(engine: &Engine, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&engine.word())
}

/// An engine that could not take part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Missing {
    #[serde(serialize_with = "word")]
    pub engine: Engine,
    /// With the command that changes it.
    pub why: String,
}

/// One engine over all rounds: the fields that tools read are medians.
#[derive(Clone, Debug, Serialize)]
struct Row {
    engine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<String>,
    frames: usize,
    in_time: f64,
    delivered: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    sent_bytes: f64,
    returned_bytes: f64,
    delivered_bytes: f64,
    cpu_ms: f64,
    /// Megabits that arrived each second.
    mbit_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_bps: Option<f64>,
    rounds: usize,
    spread: Spreads,
}

/// Least and most of the rounds.
#[derive(Clone, Debug, Serialize)]
struct Spreads {
    in_time: Option<Spread>,
    p50_ms: Option<Spread>,
    p99_ms: Option<Spread>,
    cpu_ms: Option<Spread>,
}

/// The results of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The conditions, in words.
    pub(crate) conditions: String,
    pub(crate) seed: u64,
    pub(crate) frames: u32,
    #[serde(skip)]
    pub(crate) experiment: Experiment,
    /// The rest of the link beside the granted rate, if a TCP flow takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unreserved_bps: Option<f64>,
    #[serde(skip)]
    pub(crate) engines: Vec<Engine>,
    /// The names of the flows of each engine; one flow without a name, except in test cases.
    #[serde(skip)]
    flows: Vec<Option<String>>,
    rows: Vec<Row>,
    /// The largest p99 of the emulator's lateness in a run that counts.
    emulator_late_p99_ms: f64,
    stolen_percent: Option<Spread>,
    pub(crate) missing: Vec<Missing>,
    /// Runs that were repeated, because the emulator was late, and runs that failed.
    pub(crate) invalid: Vec<String>,
    pub(crate) failures: Vec<String>,
    goals: Vec<Goal>,
    pub(crate) records: Vec<Record>,
}

impl Report {
    pub(crate) fn new(
        conditions: String,
        options: &Options,
        engines: Vec<Engine>,
        flows: Vec<Option<String>>,
    ) -> Report {
        Report {
            conditions,
            experiment: options.experiment,
            seed: options.seed,
            frames: options.frames,
            unreserved_bps: options.unreserved().map(|rate| rate.as_f64()),
            engines,
            flows,
            rows: Vec::new(),
            emulator_late_p99_ms: 0.0,
            stolen_percent: None,
            missing: Vec::new(),
            invalid: Vec::new(),
            failures: Vec::new(),
            goals: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Computes rows and goals from the records.
    pub(crate) fn finish(mut self) -> Report {
        self.rows = self.played().into_iter().filter_map(|played| self.row(played)).collect();
        let late = self.records.iter().map(|record| record.measure.late_p99_ms);
        self.emulator_late_p99_ms = late.fold(0.0, f64::max);
        self.stolen_percent = Spread::of(self.records.iter().map(|record| record.measure.stolen_percent));
        self.goals = goals::of(&self);
        self
    }

    /// Each flow of each engine.
    fn played(&self) -> Vec<Played> {
        let flows = |engine: &Engine| (0..self.flows.len()).map(|flow| (*engine, flow)).collect::<Vec<_>>();
        self.engines.iter().flat_map(flows).collect()
    }

    fn records(&self, (engine, flow): Played) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| (record.engine, record.flow) == (engine, flow))
    }

    /// The numbers of an engine, with their rounds.
    pub(crate) fn values(&self, played: Played, of: impl Fn(&Measure) -> Option<f64>) -> Vec<(u32, f64)> {
        self.records(played).filter_map(|record| Some((record.round, of(&record.measure)?))).collect()
    }

    pub(crate) fn summary(&self, played: Played, of: impl Fn(&Measure) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.values(played, of).into_iter().map(|(_, value)| value))
    }

    fn row(&self, played: Played) -> Option<Row> {
        let median = |of: fn(&Measure) -> f64| self.summary(played, |m| Some(of(m))).map(|summary| summary.median);
        let optional = |of: fn(&Measure) -> Option<f64>| self.summary(played, of);
        Some(Row {
            engine: played.0.word(),
            flow: self.flows[played.1].clone(),
            frames: self.records(played).next()?.measure.frames,
            in_time: median(|m| m.in_time)?,
            delivered: median(|m| m.delivered)?,
            p50_ms: optional(|m| m.p50_ms).map(|summary| summary.median),
            p99_ms: optional(|m| m.p99_ms).map(|summary| summary.median),
            sent_bytes: median(|m| m.sent_bytes)?,
            returned_bytes: median(|m| m.returned_bytes)?,
            delivered_bytes: median(|m| m.delivered_bytes)?,
            cpu_ms: median(|m| m.cpu_ms)?,
            mbit_per_s: optional(Measure::mbit_per_s).map(|summary| summary.median),
            beside_bps: optional(|m| m.beside_bps).map(|summary| summary.median),
            rounds: self.records(played).count(),
            spread: Spreads {
                in_time: optional(|m| Some(m.in_time)),
                p50_ms: optional(|m| m.p50_ms),
                p99_ms: optional(|m| m.p99_ms),
                cpu_ms: optional(|m| Some(m.cpu_ms)),
            },
        })
    }

    /// The table, and what a reader must know beside it.
    pub fn text(&self) -> String {
        let stolen = self.stolen_percent.map_or("–".to_owned(), |stolen| stolen.text(number));
        let mut text = format!(
            "{}\nMedians of the rounds (least to most). CPU time stolen: {stolen} %. Emulator late, p99: {} ms.\n\n{}\n\n",
            self.conditions,
            number(self.emulator_late_p99_ms),
            self.table(),
        );
        self.missing.iter().for_each(|lack| text += &format!("{} is missing: {}\n", lack.engine.word(), lack.why));
        self.invalid.iter().chain(&self.failures).for_each(|line| text += &format!("{line}\n"));
        if !self.goals.is_empty() {
            text += &format!("\n{}\n", goals::table(&self.goals));
        }
        text
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns: Vec<Column> = match self.experiment {
            Experiment::Loopback => vec![("Mbit/s", Measure::mbit_per_s), ("delivered", |m| Some(m.delivered))],
            Experiment::Rfc8867 { .. } => vec![
                ("frames", |m| Some(m.frames as f64)),
                ("in time", |m| Some(m.in_time)),
                ("Mbit/s", Measure::mbit_per_s),
                ("p50 ms", |m| m.p50_ms),
                ("p99 ms", |m| m.p99_ms),
            ],
            _ => vec![
                ("in time", |m| Some(m.in_time)),
                ("delivered", |m| Some(m.delivered)),
                ("p50 ms", |m| m.p50_ms),
                ("p99 ms", |m| m.p99_ms),
            ],
        };
        if self.experiment == Experiment::Deadlines {
            columns.push(("sent, of delivered", |m| (m.sent_bytes > 0.0).then(|| m.sent_bytes / m.delivered_bytes)));
        }
        columns.extend([("CPU ms", (|m| Some(m.cpu_ms.round())) as Of), ("CPU ms per Mbit", Measure::cpu_ms_per_mbit)]);
        if self.records.iter().any(|record| record.measure.beside_bps.is_some()) {
            columns.push(("TCP beside, Mbit/s", |m| Some(m.beside_bps? / 1e6)));
        }
        columns
    }

    fn table(&self) -> Table {
        let columns = self.columns();
        let names = ["engine"].into_iter().chain(columns.iter().map(|(name, _)| *name));
        let mut table = table(names.map(str::to_owned));
        for played in self.played().into_iter().filter(|played| self.records(*played).next().is_some()) {
            let cell = |of: Of| self.summary(played, of).map_or("–".into(), |summary| summary.text(number));
            let flow = self.flows[played.1].as_ref().map_or(String::new(), |flow| format!(" {flow}"));
            let name = played.0.word() + &flow;
            table.add_row([name].into_iter().chain(columns.iter().map(|(_, of)| cell(*of))));
        }
        table
    }
}

/// An engine, and which of its flows.
pub(crate) type Played = (Engine, usize);

/// A number of a run, and its name in the table.
type Column = (&'static str, Of);
type Of = fn(&Measure) -> Option<f64>;

/// A table without lines; numbers are at the right.
pub(crate) fn table(head: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
