//! `qfabric sim grid`: simulates players on a modelled kernel under every policy and condition, and checks the goal.

use std::fs;
use std::path::PathBuf;

use clap::ValueEnum;
use qfabric_sim::grid::{self, Extent, Report, Row};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Examples: qfabric sim grid --svg grid.svg
          qfabric sim grid --cells full --json grid.json

The model has two CPUs, of which 1.8 CPUs can be reserved. Each player has 25 jobs per second, with the costs of recorded \
videos. A miss is a job that ended late, was skipped, or never ended. The result depends only on the seed: two runs print the \
same. The exit code is 0 if the grid was simulated, whatever the verdicts are.";

/// Counts the missed jobs of players near capacity, under Q-Fabric and its rivals, on a modelled kernel.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Conditions to simulate: quick (a dozen) or full (all: hours of video, some minutes on two CPUs)
    #[arg(long, value_enum, default_value = "quick")]
    cells: Cells,
    /// Number of runs of each policy in each cell, with different costs, phases and stolen time, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Number of jobs of each player in a run, 10 to 100000
    #[arg(long, value_name = "N", default_value_t = 360, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    jobs: u32,
    /// Seed of the first run; the next runs use the numbers after it
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write the rows and the verdicts as JSON to this file; - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a heat map into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cells {
    Quick,
    Full,
}

pub(super) fn run(args: &Args) -> Outcome {
    args.json.iter().chain(&args.svg).try_for_each(|path| output::check_writable(path))?;
    let cells = match args.cells {
        Cells::Quick => grid::few(),
        Cells::Full => grid::all(),
    };
    let extent = Extent { seeds: args.runs, first_seed: args.seed, jobs: args.jobs as usize, ..Extent::default() };
    let report = Report::of(&cells, &Row::all().collect::<Vec<_>>(), extent);
    if let Some(path) = &args.svg {
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, grid::svg("Simulated grid", &report.rows)).map_err(failed)?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if args.json.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        output::print(&report.text())?;
    }
    Ok(Done(0))
}
