//! Runs the whole grid: `cargo bench -p qfabric-sim --bench grid` prints the verdicts and the tables. Arguments:
//! `few` (a dozen cells), `equal` (the cells with equal players), a number (runs of each row in each cell), a second
//! number (the first seed), a third one (jobs of each player), a fourth one (T in ms), `ours` (only the rows that the
//! claims are about). `--max-time`, which makes all benches short, runs a dozen cells once each. `20 100 87 72 ours
//! equal` is like the live rounds of 8 players. Settings per job come last.

use qfabric_sim::grid::{Extent, Policy, RIVAL, Report, Row, all, few};
use qfabric_sim::world::Skip;
use qfabric_types::Nanos;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let has = |word: &str| words.iter().any(|said| said == word);
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize| numbers.get(at).copied();
    let usual = Extent::default();
    let extent = Extent {
        seeds: number(0).unwrap_or(usual.seeds),
        first_seed: number(1).unwrap_or(usual.first_seed),
        jobs: number(2).map_or(usual.jobs, |jobs| jobs as usize),
        period: number(3).map_or(usual.period, Nanos::from_millis),
    };
    let shortly = std::env::args().any(|word| word == "--max-time");
    let extent = if shortly { Extent { seeds: 1, ..extent } } else { extent };
    let mut cells = if shortly || has("few") { few() } else { all() };
    cells.retain(|cell| cell.equal || !has("equal"));
    let ours = |row: &Row| {
        let soft = Row { policy: Policy::Soft, skip: Skip::Predicted };
        let rival = row.policy == RIVAL.policy || *row == soft;
        rival || matches!(row.policy, Policy::GiveBack | Policy::Feedback)
    };
    let rows: Vec<Row> = Row::all().filter(|row| !(shortly || has("ours")) || ours(row)).collect();
    let report = Report::of(&cells, &rows, extent);
    println!("{}\nSettings per job, and those of threads that were awake", report.text());
    for outcome in report.rows.iter().filter(|outcome| outcome.settings > 0.0) {
        let (cell, load) = (outcome.cell.label(), 100.0 * outcome.cell.load);
        let (settings, awake) = (outcome.settings, outcome.settings_awake);
        println!("{cell:<60}{load:>5.0} % {:<40}{settings:>6.2}{awake:>6.2}", outcome.row);
    }
}
