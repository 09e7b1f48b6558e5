//! Runs the whole grid: `cargo bench -p qfabric-sim --bench grid` prints the verdicts and the tables. Arguments:
//! `few` (a dozen cells), a number (runs of each row in each cell), a second number (the first seed), `ours` (only
//! the rows that the claims are about). `--max-time`, which makes all benches short, runs a dozen cells once each.

use qfabric_sim::grid::{Extent, Policy, RIVAL, Report, Row, all, few};
use qfabric_sim::world::Skip;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let has = |word: &str| words.iter().any(|said| said == word);
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let Extent { seeds, first_seed, jobs } = Extent::default();
    let extent =
        Extent { seeds: numbers.next().unwrap_or(seeds), first_seed: numbers.next().unwrap_or(first_seed), jobs };
    let shortly = std::env::args().any(|word| word == "--max-time");
    let extent = if shortly { Extent { seeds: 1, ..extent } } else { extent };
    let cells = if shortly || has("few") { few() } else { all() };
    let ours = |row: &Row| {
        let soft = Row { policy: Policy::Soft, skip: Skip::Predicted };
        let rival = row.policy == RIVAL.policy || *row == soft;
        rival || matches!(row.policy, Policy::GiveBack | Policy::Feedback)
    };
    let rows: Vec<Row> = Row::all().filter(|row| !(shortly || has("ours")) || ours(row)).collect();
    print!("{}", Report::of(&cells, &rows, extent).text());
}
