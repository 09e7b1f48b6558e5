//! The list of the grid's cells.

use super::{Cell, Pattern, Phases};

const LOADS: [f64; 8] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1];
const LOADED: [f64; 4] = [0.7, 0.8, 0.9, 1.0];
const PATTERNS: [Pattern; 4] = [Pattern::Closed, Pattern::Mpeg2, Pattern::Mixed, Pattern::None];

fn cell(players: usize, load: f64, pattern: Pattern, phases: Phases, steal: u32) -> Cell {
    Cell { players, load, pattern, phases, steal, hogs: 12, equal: false }
}

/// All cells: patterns, phases and loads for six players; then steal; then other numbers of players; then no hogs; then
/// equal players.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for pattern in PATTERNS {
        for phases in [Phases::Random, Phases::Together] {
            cells.extend(LOADS.map(|load| cell(6, load, pattern, phases, 0)));
        }
    }
    for steal in [5, 15, 30] {
        for pattern in [Pattern::Mpeg2, Pattern::Mixed] {
            cells.extend(LOADED.map(|load| cell(6, load, pattern, Phases::Random, steal)));
        }
    }
    for players in [1, 2, 4, 8, 12] {
        let loads = if players < 4 { [0.4, 0.5, 0.6, 0.7] } else { LOADED };
        for steal in [0, 15] {
            cells.extend(loads.map(|load| cell(players, load, Pattern::Mpeg2, Phases::Random, steal)));
        }
    }
    cells.extend([0.7, 0.9].map(|load| Cell { hogs: 0, ..cell(6, load, Pattern::Mpeg2, Phases::Random, 0) }));
    for phases in [Phases::Together, Phases::Random] {
        let equal = |load| Cell { equal: true, ..cell(8, load, Pattern::Closed, phases, 0) };
        cells.extend([0.7, 0.8, 0.9, 1.0, 1.1].map(equal));
    }
    cells
}

/// A few cells of each kind.
pub fn few() -> Vec<Cell> {
    let mut cells = LOADED.map(|load| cell(6, load, Pattern::Mpeg2, Phases::Random, 0)).to_vec();
    cells.extend([Pattern::Closed, Pattern::Mixed, Pattern::None].map(|p| cell(6, 0.8, p, Phases::Random, 0)));
    cells.push(cell(6, 0.8, Pattern::Mpeg2, Phases::Together, 0));
    cells.extend([4, 12].map(|players| cell(players, 0.8, Pattern::Mpeg2, Phases::Random, 0)));
    cells.extend([5, 15].map(|steal| cell(6, 0.8, Pattern::Mpeg2, Phases::Random, steal)));
    cells
}
