//! `qfabric-contest`: the contest at a terminal, in a VM or on any host.
#![forbid(unsafe_code)]

use std::io::Write;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use qfabric_contest::experiment::{Experiment, Plan};
use qfabric_contest::regime::Competitor;
use qfabric_contest::row::Row;
use qfabric_contest::work::Work;
use qfabric_contest::{actor, report};
use qfabric_types::Nanos;

/// Schedulers side by side, on the same workload.
#[derive(Parser)]
#[command(name = "qfabric-contest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run experiments; rows to standard output.
    Run(RunOptions),
    /// A program that takes part (started by `run`).
    #[command(hide = true)]
    Child,
}

#[derive(clap::Args)]
struct RunOptions {
    /// Which experiments.
    #[arg(required = true)]
    experiments: Vec<Experiment>,
    /// Numbers of tasks or players [default: the experiment's own].
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Seconds of every run.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Repetitions of the whole grid.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Who takes part [default: all that this host has].
    #[arg(long, value_delimiter = ',')]
    competitors: Vec<Competitor>,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Run(options) => run(options),
        Command::Child => actor::child(),
    }
}

fn run(options: RunOptions) -> Result<()> {
    let work = Work::calibrate();
    let competitors = if options.competitors.is_empty() { present() } else { options.competitors };
    let span = Nanos::from_millis(1_000 * options.seconds);
    let plan = Plan { sizes: options.sizes, span, rounds: options.rounds, competitors };
    for experiment in options.experiments {
        let mut rows = Vec::new();
        experiment.run(&plan, work, |row| tell(&mut rows, row, options.json))?;
        if !options.json {
            println!("{}\n{}", experiment.title(), report::table(&rows));
        }
    }
    Ok(())
}

fn tell(rows: &mut Vec<Row>, row: &Row, json: bool) -> Result<()> {
    eprintln!("{}: {}, {}", row.experiment, row.setting, row.competitor.name());
    if json {
        println!("{}", serde_json::to_string(row)?);
        std::io::stdout().flush()?;
    }
    rows.push(row.clone());
    Ok(())
}

/// All that this host can run; what it cannot is told with the reason.
fn present() -> Vec<Competitor> {
    let able = |competitor: &Competitor| match competitor.lacks() {
        Some(why) => {
            eprintln!("without {}: {why}", competitor.name());
            false
        }
        None => true,
    };
    Competitor::value_variants().iter().copied().filter(able).collect()
}
