//! `qfabric-contest`: runs the contest on a terminal, in a VM or on any host.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use qfabric_contest::experiment::{Alignment, Experiment, Plan};
use qfabric_contest::regime::Competitor;
use qfabric_contest::row::{self, Played, Row};
use qfabric_contest::work::Work;
use qfabric_contest::{actor, claims, report, timeline};
use qfabric_types::Nanos;

/// Compare schedulers on the same workload.
#[derive(Parser)]
#[command(name = "qfabric-contest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run experiments and print one row per result.
    Run(RunOptions),
    /// Show results of earlier runs as tables and figures, and check the claims.
    Report(ReportOptions),
    /// Run one process of a contest (started by `run`).
    #[command(hide = true)]
    Child,
}

#[derive(Clone, clap::Args)]
struct RunOptions {
    /// Experiments to run.
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
    /// Competitors [default: all that this host supports].
    #[arg(long, value_delimiter = ',')]
    competitors: Vec<Competitor>,
    /// Start of the periods of the players' servers [default: the experiment's own].
    #[arg(long)]
    alignment: Option<Alignment>,
    /// Fail if a claim does not hold.
    #[arg(long)]
    check: bool,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Folder for a trace of each run, for Perfetto; created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ReportOptions {
    /// Files with the rows that `run --json` printed; the log of a VM's console is accepted, too.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folder for the figures (SVG).
    #[arg(long)]
    figures: Option<PathBuf>,
    /// Fail if a claim does not hold.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Report(options) => show(&options),
        Command::Run(options) => run(options),
        Command::Child => actor::child(),
    }
}

fn run(options: RunOptions) -> Result<()> {
    let work = Work::calibrate();
    let competitors = if options.competitors.is_empty() { supported() } else { options.competitors.clone() };
    let span = Nanos::from_millis(1_000 * options.seconds);
    let RunOptions { experiments, sizes, rounds, alignment, json, traces, .. } = options.clone();
    if let Some(folder) = &traces {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let plan = Plan { sizes, span, rounds, competitors, alignment };
    let mut all = Vec::new();
    for experiment in experiments {
        let mut rows = Vec::new();
        experiment.run(&plan, work, |row| {
            traces.as_ref().map_or(Ok(()), |folder| timeline::write(row, folder))?;
            report_row(&mut rows, row, json)
        })?;
        if !json {
            println!("{}\n{}", experiment.title(), report::table(&rows));
        }
        all.append(&mut rows);
    }
    check(&all, options.check)
}

fn show(options: &ReportOptions) -> Result<()> {
    let mut rows = Vec::new();
    for file in &options.files {
        let text = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        rows.extend(row::read(BufReader::new(text))?);
    }
    if let Some(host) = rows.first().map(|row| &row.host) {
        println!("Linux {}, {} × {}\n", host.kernel, host.cpus, host.cpu);
    }
    for experiment in Experiment::value_variants() {
        let of: Vec<_> = rows.iter().filter(|row| row.experiment == experiment.name()).cloned().collect();
        if !of.is_empty() {
            println!("{}\n{}\n", experiment.title(), report::table(&of));
        }
    }
    for file in options.figures.iter().flat_map(|folder| report::plots::write(&rows, folder)).flatten() {
        println!("{}", file.display());
    }
    check(&rows, options.check)
}

fn check(rows: &[Row], must: bool) -> Result<()> {
    let failed = claims::failed(rows);
    failed.iter().for_each(|claim| eprintln!("claim failed: {claim}"));
    if must && !failed.is_empty() {
        bail!("{} claims failed; the lines above name them", failed.len());
    }
    Ok(())
}

fn report_row(rows: &mut Vec<Row>, row: &Row, json: bool) -> Result<()> {
    eprintln!("{}: {}, {}", row.experiment, row.setting, row.competitor.name());
    if json {
        println!("{}", serde_json::to_string(row)?);
        std::io::stdout().flush()?;
    }
    // The jobs of all runs would fill the memory.
    rows.push(Row { played: Played::default(), ..row.clone() });
    Ok(())
}

/// All competitors that this host supports. Prints the reason for each unsupported one.
fn supported() -> Vec<Competitor> {
    let able = |competitor: &Competitor| match competitor.missing_support() {
        Some(why) => {
            eprintln!("skipping {}: {why}", competitor.name());
            false
        }
        None => true,
    };
    Competitor::value_variants().iter().copied().filter(able).collect()
}
