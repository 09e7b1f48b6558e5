//! `qfabric demo --only qualman`: the experiments of QualMan.

use std::sync::atomic::Ordering;

use qfabric_demo::Terminal;
use qfabric_demo::children::Stop;
use qfabric_qualman_bench::Options;

use super::{Args, INTERRUPTED, RUNS, seed_from_clock};
use crate::exit::{Done, Failure, Outcome};
use crate::{interrupt, output};

/// The word of `--only`.
pub(super) const WORD: &str = "qualman";

/// Runs the experiments and prints their report.
pub(super) fn run(args: Args) -> Outcome {
    if args.full && args.runs.is_some() {
        return Err(Failure::usage("--full means three runs with --only qualman\ntry: leave --runs or --full out"));
    }
    let stop = Stop(interrupt::interrupted_or_hung_up()?);
    let options = Options {
        only: args.only.into_iter().filter(|word| word != WORD).collect(),
        frames: args.frames,
        seconds: args.seconds,
        runs: args.runs.unwrap_or(RUNS),
        background: args.hogs,
        cache: args.cache,
        out: args.out,
        seed: args.seed.unwrap_or_else(seed_from_clock),
        player: (std::env::current_exe()?, ["demo", "--part"].map(str::to_owned).to_vec()),
        stop: stop.clone(),
    };
    let report = qfabric_qualman_bench::run(&options, &mut Terminal::default())
        .map_err(|error| Failure::fault(format!("{error:#}")))?;
    // JSON on stdout stands alone.
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        output::print(&report.text())?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if let Some(out) = &options.out {
        output::note(format_args!("plots: {}", out.join("qualman-*.png").display()));
    }
    Ok(Done(if stop.0.load(Ordering::Relaxed) { INTERRUPTED } else { 0 }))
}

/// A process of the experiments.
pub(super) fn play(words: &[String]) -> Outcome {
    qfabric_qualman_bench::play(words).map_err(|error| Failure::fault(format!("{error:#}")))?;
    Ok(Done(0))
}
