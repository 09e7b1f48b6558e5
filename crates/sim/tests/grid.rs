//! Checks the claims on a small part of the grid, with fixed seeds, so that the numbers are the same on every
//! machine. `cargo bench -p qfabric-sim --bench grid` runs the whole grid.

use std::sync::OnceLock;

use qfabric_sim::grid::{Cell, Extent, Outcome, PERIOD, Pattern, Phases, Policy, RIVAL, Report, Row};
use qfabric_sim::world::Skip;

const EXTENT: Extent = Extent { seeds: 2, first_seed: 100, jobs: 200, period: PERIOD };
const OURS: Row = Row { policy: Policy::GiveBack, skip: Skip::None };
const FEEDBACK: Row = Row { policy: Policy::Feedback, skip: Skip::None };
const OURS_SKIPPING: Row = Row { policy: Policy::GiveBack, skip: Skip::Predicted };

fn cell(load: f64, pattern: Pattern, steal: u32) -> Cell {
    Cell { players: 6, load, pattern, phases: Phases::Random, steal, hogs: 12, equal: false }
}

fn report() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| {
        let mut cells: Vec<Cell> = [0.8, 0.9, 1.0].map(|load| cell(load, Pattern::Mpeg2, 0)).to_vec();
        cells.push(cell(0.8, Pattern::Mixed, 0));
        cells.push(cell(0.8, Pattern::Mpeg2, 15));
        cells.push(Cell { phases: Phases::Together, ..cell(0.8, Pattern::Mpeg2, 0) });
        cells.push(Cell { players: 12, ..cell(0.8, Pattern::Mpeg2, 0) });
        let report = Report::of(&cells, &[RIVAL, FEEDBACK, OURS, OURS_SKIPPING], EXTENT);
        println!("{}", report.text());
        report
    })
}

fn pairs(row: Row) -> impl Iterator<Item = (&'static Outcome, &'static Outcome)> {
    of(row).zip(of(RIVAL))
}

fn of(row: Row) -> impl Iterator<Item = &'static Outcome> {
    report().rows.iter().filter(move |o| (o.policy, o.skip) == (row.policy, row.skip))
}

#[test]
fn no_cell_has_more_misses_than_static_grub_with_the_same_room() {
    for (ours, rival) in pairs(OURS) {
        assert!(ours.misses <= rival.misses, "{:?}: {} against {}", ours.cell, ours.misses, rival.misses);
    }
}

#[test]
fn no_cell_has_more_misses_than_without_giving_back() {
    for (ours, before) in of(OURS).zip(of(FEEDBACK)) {
        assert!(ours.misses <= before.misses, "{:?}: {} against {}", ours.cell, ours.misses, before.misses);
    }
}

#[test]
fn in_the_mean_the_loaded_calm_cells_have_at_most_half_the_misses() {
    let calm: Vec<_> = pairs(OURS).filter(|(ours, _)| ours.cell.is_calm()).collect();
    let logs = calm.iter().map(|(ours, rival)| (ours.misses.max(1e-3) / rival.misses).ln());
    let mean = (logs.sum::<f64>() / calm.len() as f64).exp();
    assert!(calm.len() == 6 && mean <= 0.5, "{mean}");
}

#[test]
fn skipping_jobs_predicted_late_halves_the_misses_of_every_cell() {
    for (ours, rival) in pairs(OURS_SKIPPING) {
        assert!(ours.misses <= 0.5 * rival.misses, "{:?}: {} against {}", ours.cell, ours.misses, rival.misses);
    }
}

#[test]
fn a_seed_repeats_its_numbers() {
    let extent = Extent { seeds: 1, first_seed: 7, jobs: 50, period: PERIOD };
    let run = || qfabric_sim::grid::run(cell(0.9, Pattern::None, 15), OURS, extent);
    assert_eq!(run(), run());
}
