//! `qfabric demo`: the main job, measured side by side.

use std::path::PathBuf;

use qfabric_demo::{Options, Terminal};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples: qfabric demo --out report
          qfabric demo --seconds 300 --json demo.json --only hogs

The clips are made once by ffmpeg (some minutes) and kept in $XDG_CACHE_HOME/qfabric. Ctrl-C puts everything back
and reports what was measured so far.";

/// Decodes real video at 25 fps under load, without and with Q-Fabric, side by side.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How long it should take, the making of clips excepted
    #[arg(long, value_name = "N", default_value_t = Options::default().seconds)]
    seconds: f64,
    /// Write report, plots and tables into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write rows, verdicts and steal as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Processes that burn CPU time [default: six per CPU]
    #[arg(long, value_name = "N")]
    hogs: Option<usize>,
    /// Only policies whose `setting: policy` contains this word; may be repeated
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// All policies, the paper's predictors and skipping players too
    #[arg(long)]
    all: bool,
    /// L: server periods P of the players' reservations in one frame period
    #[arg(long, value_name = "L", default_value_t = Options::default().server_periods,
          value_parser = clap::value_parser!(u64).range(2..=20))]
    server_periods: u64,
    /// Seed of the random order of the rounds [default: from the clock; the report names it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder the clips are kept in
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// A further option for each player under Q-Fabric, such as --contract=--rho=1.5; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    contract: Vec<String>,
}

fn seed_from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_micros())
}

/// Runs the demo and prints its report. The exit code is 0 whenever a report was made, whatever its verdicts.
pub fn run(args: Args) -> Outcome {
    if !(1.0..=86_400.0).contains(&args.seconds) {
        return Err(Failure::usage(format!("--seconds is {}; use 1 to 86400", args.seconds)));
    }
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let options = Options {
        seconds: args.seconds,
        hogs: args.hogs,
        only: args.only,
        out: args.out.clone(),
        json: args.json,
        cache: args.cache,
        server_periods: args.server_periods,
        all: args.all,
        seed: args.seed.unwrap_or_else(seed_from_clock),
        contract: args.contract,
        ..Options::default()
    };
    let stop = options.stop.clone();
    let report =
        qfabric_demo::run(options, &mut Terminal::default()).map_err(|error| Failure::fault(format!("{error:#}")))?;
    output::print(&report.text())?;
    if let Some(out) = &args.out {
        eprintln!("report: {}", out.join("report.html").display());
    }
    Ok(Done(if stop.check().is_err() { INTERRUPTED } else { 0 }))
}
