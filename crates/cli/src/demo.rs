//! `qfabric demo`: measures video players under load, with Q-Fabric and with its rivals.

mod qualman;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use qfabric_demo::{Options, Terminal, conference, events};
use qfabric_types::MechanismName;

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: u8 = 130;
/// Runs of each experiment, unless the user says another number.
const RUNS: u32 = 3;

const EXAMPLES: &str = "\
Examples: qfabric demo --out report
          qfabric demo --seconds 300 --json demo.json --only hogs
          qfabric demo --only grid --only ': 6 players, 80 %' --only mixed
          qfabric demo --mechanism ext --out report
          qfabric demo --only conference --out report
          qfabric demo --only conference --only b --full --runs 3 --out report
          qfabric demo --only events --seconds 180 --out report
          qfabric demo --only qualman --out report
          qfabric demo --only qualman --only cpu-1 --frames 150 --runs 1

--only qualman plays the experiments of QualMan (§6.3, §7: Figures 10 and 12 to 15, Table 6) with the frames and runs of the \
paper; further --only words select some of them: rates, cpu-1, cpu-2, mpeg-1, mpeg-2, comm-1, comm-2, lip. --frames, --runs \
and --seconds shorten the runs, and the report names the factor.

ffmpeg makes the clips at the first run, which takes some minutes; they are kept in the folder of --cache. Ctrl-C restores \
all settings and prints a report of the measurements so far; the exit code is 130 then. Otherwise the exit code is 0 if a \
report was made, whatever its verdicts are.";

/// Decodes video under load, without and with Q-Fabric, and compares the results.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Duration of the measurement in seconds, 1 to 86400; making the clips takes additional time [default: 180; with
    /// --only qualman: as long as --frames and --runs need]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Play experiments as long as in the paper: with --only conference 420 s for each scenario, with --only qualman
    /// 650 frames and three runs (which is its default)
    #[arg(long, conflicts_with_all = ["seconds", "frames"])]
    full: bool,
    /// Write the report, plots and tables into this folder; it is created if it is missing
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write the rows, the verdicts and the steal time as JSON to this file; - is stdout, instead of the report. With
    /// --only qualman: all runs and goals
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Number of hogs: processes that use as much CPU time as they can get [default: six per CPU]
    #[arg(long, value_name = "N")]
    hogs: Option<usize>,
    /// Run only the policies whose `setting: policy` contains this word; may be repeated
    ///
    /// Four words replace the two settings: `grid` plays many small scenarios, all or those whose names contain all
    /// further words; `conference` plays the conference of two hosts, with all scenarios or those of further words `a`
    /// to `f`; `events` plays the experiments with servers whose load handlers report to another host, both or one of
    /// them (`polls`, `classes`); `qualman` plays the experiments of QualMan.
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Run all policies, also the paper's predictors and players that skip frames
    #[arg(long)]
    all: bool,
    /// L: number of server periods P in one frame period of 40 ms, 2 to 20
    #[arg(long, value_name = "L", default_value_t = Options::default().server_periods,
          value_parser = clap::value_parser!(u64).range(2..=20))]
    server_periods: u64,
    /// Mechanism of Q-Fabric's players: deadline (SCHED_DEADLINE), or ext (Q-Fabric's own scheduler, which needs
    /// sched_ext in the kernel). Under ext the demo also plays soft servers, and players that skip frames
    #[arg(long, value_name = "NAME", default_value_t = Options::default().mechanism, value_parser = mechanisms())]
    mechanism: MechanismName,
    /// Seed of the random order of the rounds [default: taken from the clock; the report names it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder of the clips [default: $QFABRIC_CACHE, else $XDG_CACHE_HOME/qfabric, else ~/.cache/qfabric]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Additional contract option for each player under Q-Fabric, such as --contract=--rho=1.5; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    contract: Vec<String>,
    /// With --only qualman: number of frames of the fastest stream in a run
    #[arg(long, value_name = "N", default_value_t = qfabric_qualman_bench::FRAMES, value_parser = clap::value_parser!(u32).range(30..=100_000))]
    frames: u32,
    /// Number of runs: with --only qualman of each reservation, with --only conference of each scenario [default: 3; of
    /// the conference with --full: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Be a process of the experiments (started by them)
    #[arg(long, hide = true, num_args = 1.., value_name = "WORD", allow_hyphen_values = true, exclusive = true)]
    part: Vec<String>,
}

/// The mechanisms under which the demo can play.
fn mechanisms() -> impl TypedValueParser<Value = MechanismName> {
    let names = [MechanismName::Deadline, MechanismName::Ext].map(MechanismName::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<MechanismName>())
}

/// Refuses `--mechanism ext` with experiments that always use SCHED_DEADLINE or the dispatcher.
fn check_mechanism(args: &Args) -> Result<(), Failure> {
    let is_other =
        |word: &&String| word.eq_ignore_ascii_case("conference") || *word == events::WORD || *word == qualman::WORD;
    let word = args.only.iter().find(is_other);
    match word.filter(|_| args.mechanism == MechanismName::Ext) {
        Some(word) => {
            Err(Failure::usage(format!("--only {word} cannot play under --mechanism ext\ntry: leave --mechanism out")))
        }
        None => Ok(()),
    }
}

fn seed_from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_micros())
}

/// Runs the demo and prints its report. The exit code is 0 if a report was made, whatever its verdicts are.
pub(crate) fn run(args: Args) -> Outcome {
    if !args.part.is_empty() {
        return qualman::play(&args.part);
    }
    if let Some(seconds) = args.seconds.filter(|seconds| !(1.0..=86_400.0).contains(seconds)) {
        return Err(Failure::usage(format!("--seconds is {seconds}; use 1 to 86400")));
    }
    check_mechanism(&args)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    if args.only.iter().any(|word| word == qualman::WORD) {
        return qualman::run(args);
    }
    // JSON on stdout stands alone.
    let is_json_only = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let options = Options {
        seconds: args.seconds.unwrap_or(Options::default().seconds),
        full: args.full,
        runs: args.runs.unwrap_or(if args.full { 1 } else { RUNS }),
        hogs: args.hogs,
        only: args.only,
        out: args.out.clone(),
        json: args.json.filter(|_| !is_json_only),
        cache: args.cache,
        server_periods: args.server_periods,
        mechanism: args.mechanism,
        all: args.all,
        seed: args.seed.unwrap_or_else(seed_from_clock),
        contract: args.contract,
        ..Options::default()
    };
    let stop = options.stop.clone();
    let failed = |error: anyhow::Error| Failure::fault(format!("{error:#}"));
    if conference::is_wanted(&options) {
        let report = conference::run(&options, &mut Terminal::default()).map_err(failed)?;
        output::print(&if is_json_only { report.summary_json().map_err(failed)? } else { report.text() })?;
        return Ok(Done(if stop.check().is_err() { INTERRUPTED } else { 0 }));
    }
    if events::is_wanted(&options) {
        let report = events::run(&options, &mut Terminal::default()).map_err(failed)?;
        output::print(&if is_json_only { report.summary_json().map_err(failed)? } else { report.text() })?;
        return Ok(Done(if stop.check().is_err() { INTERRUPTED } else { 0 }));
    }
    let report = qfabric_demo::run(options, &mut Terminal::default()).map_err(failed)?;
    output::print(&if is_json_only { report.summary_json().map_err(failed)? } else { report.text() })?;
    if let Some(out) = &args.out {
        output::note(format_args!("report: {}", out.join("report.html").display()));
    }
    Ok(Done(if stop.check().is_err() { INTERRUPTED } else { 0 }))
}
