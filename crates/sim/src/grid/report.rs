//! Runs many cells and prints the tables.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use super::{Cell, Extent, Outcome, Row, State, Verdict, run};

/// The results of all cells.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One outcome per row and cell, in their order.
    pub rows: Vec<Outcome>,
    /// The verdicts on the claims.
    pub verdicts: Vec<Verdict>,
}

impl Report {
    /// Runs `rows` in `cells` on all CPUs. The result does not depend on the number of CPUs.
    pub fn of(cells: &[Cell], rows: &[Row], extent: Extent) -> Report {
        let work: Vec<(Cell, Row)> = cells.iter().flat_map(|cell| rows.iter().map(|row| (*cell, *row))).collect();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(work.len())));
        let worker = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(cell, row)) = work.get(place) else { return };
                let outcome = run(cell, row, extent);
                done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((place, outcome));
            }
        };
        match thread::available_parallelism().map_or(1, usize::from) {
            1 => worker(),
            workers => thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker)))),
        }
        let mut outcomes = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        outcomes.sort_by_key(|(place, _)| *place);
        let rows: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        Report { verdicts: super::verdicts(&rows), rows }
    }

    /// The verdicts, followed by one table per kind of cell: rows by loads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Verdict { claim, state, found, low, high, samples } in &self.verdicts {
            let mark = match state {
                State::Held => '✔',
                State::Missed => '✘',
                State::Undecided => '–',
            };
            text += &format!("{mark} {claim}: {found:.2} ({low:.2} to {high:.2}, {samples} cells)\n");
        }
        let mut kinds: Vec<String> = Vec::new();
        for outcome in &self.rows {
            let kind = outcome.cell.label();
            if !kinds.contains(&kind) {
                text += &self.table(&kind);
                kinds.push(kind);
            }
        }
        text
    }

    fn table(&self, kind: &str) -> String {
        let here = || self.rows.iter().filter(|outcome| outcome.cell.label() == kind);
        let (mut loads, mut rows): (Vec<f64>, Vec<&str>) = (Vec::new(), Vec::new());
        for outcome in here() {
            if !loads.contains(&outcome.cell.load) {
                loads.push(outcome.cell.load);
            }
            if !rows.contains(&outcome.row.as_str()) {
                rows.push(&outcome.row);
            }
        }
        let head: String = loads.iter().map(|load| format!("{:>6.0} %", 100.0 * load)).collect();
        let mut text = format!("\nMisses in %: {kind}\n{:<40}{head}\n", "load");
        for row in rows {
            let misses = |load: &f64| {
                let found = here().find(|outcome| outcome.row == row && outcome.cell.load == *load);
                found.map_or(format!("{:>8}", ""), |outcome| format!("{:>8.1}", 100.0 * outcome.misses))
            };
            text += &format!("{row:<40}{}\n", loads.iter().map(misses).collect::<String>());
        }
        text
    }
}
