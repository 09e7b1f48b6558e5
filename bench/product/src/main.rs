//! Benchmark of channels between applications on two hosts: through both daemons, with Zenoh and mutual TLS; in the
//! same run a chain of relays (the floor), bare TCP, and other middleware.
//!
//! `cargo run --release --package qfabric-product-bench -- --rounds 5`, as root, because two network namespaces are
//! the hosts.
#![forbid(unsafe_code)]

mod contestant;
mod field;
mod flow;
mod mqtt;
mod play;
mod process;
mod relay;
mod report;
mod run;
mod service;
mod site;
mod threads;
mod wire;

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::contestant::Contestant;
use crate::report::Report;
use crate::run::{Only, Run};
use crate::site::Site;

/// Measures channels between two hosts, from application to application, together with their rivals
#[derive(Parser)]
#[command(name = "qfabric-product-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    /// Number of rounds; in each round all contestants take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of round trips per contestant, in each round and under each condition
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    trips: u32,
    /// Contestants of the round trips, separated by commas [default: all that this machine has]
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<Contestant>,
    /// Writes all results to a file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Path of the program `qfabric` [default: cargo builds it]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measures only a part of each round [default: all of it]
    #[arg(long, value_name = "PART")]
    only: Option<Only>,
    /// Also reports CPU time and sleeps of each thread, for each event of the flows
    #[arg(long)]
    threads: bool,
    /// Additional line for the section [channels] of both daemons' configurations, such as 'priority = 0'
    #[arg(long, value_name = "LINE")]
    channels: Vec<String>,
}

#[derive(Subcommand)]
enum Part {
    /// A process of a contestant (started by the bench)
    #[command(hide = true)]
    Play { words: Vec<String> },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match &cli.part {
        Some(Part::Play { words }) => play::play(words),
        None => {
            let result = measure(&cli);
            field::foreign::clean();
            result
        }
    }
}

fn measure(cli: &Cli) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let program = cli.program.clone().map_or_else(build, Ok)?;
    let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
    let (contestants, missing) = present(&cli.contestants);
    let trips = cli.trips as usize;
    let (site, records, failures) = (Site::start(&program, &cli.channels.join("\n"))?, Vec::new(), Vec::new());
    let (only, has_threads, costs, stolen) = (cli.only, cli.threads, Vec::new(), Vec::new());
    let mut run =
        Run { site, trips, contestants, only, stop, records, has_threads, costs, failures, stolen, measured: 0 };
    let measured = (0..cli.rounds as usize).try_for_each(|round| run.round(round));
    // Ctrl-C ends the other processes too; their errors are not reported.
    ensure!(!run.stop.load(Ordering::Relaxed), "stopped");
    measured?;
    let report = Report::new(&run, &missing);
    print!("{}", report.text());
    if let Some(file) = &cli.json {
        let text = serde_json::to_string_pretty(&report.json()?)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The contestants that can run, and for the others the reason why not.
fn present(wanted: &[Contestant]) -> (Vec<Contestant>, Vec<(Contestant, String)>) {
    let wanted = if wanted.is_empty() { Contestant::value_variants() } else { wanted };
    let missing: Vec<_> = wanted.iter().filter_map(|who| Some((*who, who.lacks()?))).collect();
    let present = wanted.iter().filter(|who| missing.iter().all(|(lacking, _)| lacking != *who)).copied().collect();
    (present, missing)
}

/// Builds the program of this workspace with the optimisation of this one.
fn build() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO")
        .context("cargo is not available: run this bench with `cargo run`, or pass --program FILE")?;
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--package", "qfabric-cli", "--bin", "qfabric"]);
    // Variables that `cargo run` sets for this package: with them, crates that read them (ring) would be built again.
    let of_package = |key: &String| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_");
    let keys = env::vars_os().filter_map(|(key, _)| key.into_string().ok());
    keys.filter(of_package).for_each(|key| _ = command.env_remove(key));
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).status()?;
    ensure!(built.success(), "cargo did not build qfabric; its messages are above");
    let folder = env::current_exe()?;
    Ok(folder.parent().and_then(|folder| folder.parent()).context("in target")?.join("release/qfabric"))
}
