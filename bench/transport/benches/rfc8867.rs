//! Test cases of RFC 8867 by number: `cargo bench -p qfabric-transport-bench -- 5.1 [--engines metp,tcp] [--rounds 1]
//! [--shorten 10]`. `qfabric metp bench --scenario` has more options. Without a number: 5.1, ten times as fast.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use qfabric_netlab::{LinkSettings, Scenario, enter_user_namespace};
use qfabric_transport_bench::{Engine, Experiment, Options};
use qfabric_types::BitRate;

#[derive(Parser)]
struct Args {
    /// Test case, 5.1 to 5.8
    case: Option<Scenario>,
    /// Engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "metp,metp-streams,quic,tcp")]
    engines: Vec<Engine>,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Divides all times of the test case [default: 1, and 10 without a number]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    shorten: Option<u32>,
    /// Said to all benches to make them short: a hundred times as fast
    #[arg(long, hide = true)]
    max_time: Option<f64>,
    /// cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("play", words)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return qfabric_transport_bench::play(words);
    }
    let args = Args::parse();
    // Before any thread starts.
    enter_user_namespace().context("the link")?;
    let usual = match (args.max_time, args.case) {
        (Some(_), _) => 100,
        (None, None) => 10,
        (None, Some(_)) => 1,
    };
    let shorten = args.shorten.unwrap_or(usual);
    let case = args.case.unwrap_or(Scenario::VariableCapacity);
    let report = qfabric_transport_bench::run(&Options {
        experiment: Experiment::Rfc8867 { case, shorten },
        is_real_time: true,
        link: LinkSettings::default(),
        frames: 0,
        deadline: Options::RFC8867_DEADLINE,
        granted: BitRate::ZERO,
        rounds: args.rounds,
        seed: 1,
        engines: args.engines,
        clip: None,
        player: (std::env::current_exe()?, vec!["play".to_owned()]),
        stop: Arc::default(),
        progress: Box::new(|line| eprintln!("{line}")),
    })?;
    println!("{}", report.text());
    Ok(())
}
