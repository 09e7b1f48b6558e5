//! The goal on a small part of the grid: `qfabric sim grid --cells full` is the whole of it. Fixed seeds: the same numbers
//! on every machine.

use std::sync::OnceLock;

use qfabric_sim::grid::{Cell, Extent, Outcome, Pattern, Phases, Policy, RIVAL, Report, Row};
use qfabric_sim::world::Skip;

const EXTENT: Extent = Extent { seeds: 2, first_seed: 100, jobs: 200 };
const OURS: Row = Row { policy: Policy::GiveBack, skip: Skip::None };
const OURS_SKIPPING: Row = Row { policy: Policy::GiveBack, skip: Skip::Predicted };

fn cell(load: f64, pattern: Pattern, steal: u32) -> Cell {
    Cell { players: 6, load, pattern, phases: Phases::Random, steal, hogs: 12 }
}

fn report() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| {
        let mut cells: Vec<Cell> = [0.8, 0.9].map(|load| cell(load, Pattern::Mpeg2, 0)).to_vec();
        cells.push(cell(0.8, Pattern::Mixed, 0));
        cells.push(cell(0.8, Pattern::Mpeg2, 15));
        let report = Report::of(&cells, &[RIVAL, OURS, OURS_SKIPPING], EXTENT);
        println!("{}", report.text());
        report
    })
}

fn pairs(row: Row) -> impl Iterator<Item = (&'static Outcome, &'static Outcome)> {
    let of = |row: Row| report().rows.iter().filter(move |o| (o.policy, o.skip) == (row.policy, row.skip));
    of(row).zip(of(RIVAL))
}

#[test]
fn no_cell_has_more_misses_than_static_grub_of_the_same_room() {
    for (ours, rival) in pairs(OURS) {
        assert!(ours.misses <= rival.misses, "{:?}: {} against {}", ours.cell, ours.misses, rival.misses);
    }
}

#[test]
fn the_loaded_calm_cells_have_at_most_half_the_misses_in_the_mean() {
    let calm: Vec<_> = pairs(OURS).filter(|(ours, _)| ours.cell.is_calm()).collect();
    let logs = calm.iter().map(|(ours, rival)| (ours.misses.max(1e-3) / rival.misses).ln());
    let mean = (logs.sum::<f64>() / calm.len() as f64).exp();
    assert!(calm.len() == 3 && mean <= 0.5, "{mean}");
}

#[test]
fn skipping_what_is_predicted_late_halves_the_misses_of_every_cell() {
    for (ours, rival) in pairs(OURS_SKIPPING) {
        assert!(ours.misses <= 0.5 * rival.misses, "{:?}: {} against {}", ours.cell, ours.misses, rival.misses);
    }
}

#[test]
fn a_seed_repeats_its_numbers() {
    let extent = Extent { seeds: 1, first_seed: 7, jobs: 50 };
    let run = || qfabric_sim::grid::run(cell(0.9, Pattern::None, 15), OURS, extent);
    assert_eq!(run(), run());
}
