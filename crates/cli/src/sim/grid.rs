//! `qfabric sim grid`: the modelled kernel under every policy, cell by cell, and whether the goal holds.

use std::fs;
use std::path::PathBuf;

use clap::ValueEnum;
use qfabric_sim::grid::{self, Extent, Report, Row};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Example: qfabric sim grid --svg grid.svg
         qfabric sim grid --cells full --json grid.json

Two CPUs of which 1.8 may be reserved, 25 jobs a second per player, costs of recorded videos. A miss is a job that ended
late, was skipped, or never ended. Everything follows from the seed: two runs print the same. Exit code 0 when the grid
was run, whatever the verdicts.";

/// Misses of players near capacity: Q-Fabric against its rivals, on a modelled kernel.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// A dozen conditions, or all of them (hours of simulated video: minutes on two CPUs)
    #[arg(long, value_enum, default_value = "quick")]
    cells: Cells,
    /// Runs of each policy in each cell, with other costs, phases and stolen time
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Jobs of each player in a run
    #[arg(long, value_name = "N", default_value_t = 360, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    jobs: u32,
    /// The first run's seed; the next runs take the numbers after it
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write rows and verdicts as JSON; - for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a heat map
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cells {
    Quick,
    Full,
}

/// Carries it out.
pub fn run(args: &Args) -> Outcome {
    args.json.iter().chain(&args.svg).try_for_each(|path| output::check_writable(path))?;
    let cells = match args.cells {
        Cells::Quick => grid::few(),
        Cells::Full => grid::all(),
    };
    let extent = Extent { seeds: args.runs, first_seed: args.seed, jobs: args.jobs as usize };
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
