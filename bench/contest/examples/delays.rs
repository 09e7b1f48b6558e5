//! Promises of delay, live: `cargo run --release -p qfabric-contest --example delays [-- --seconds 30] [-- --mechanism dwcs]`
//!
//! Streams are admitted by their measured delay and their rate until the link is full. Prints how many of their messages
//! arrive within the asked delay beside a flood, with a 95 % interval. Needs root; DWCS needs Linux 6.16 (the same runs in
//! the test machine: `make vm-test ARGS='--only contest'`).

use std::env;

use anyhow::{Context, Result, bail, ensure};
use qfabric_contest::delays;
use qfabric_contest::regime::Competitor;
use qfabric_contest::work::Work;
use qfabric_types::Nanos;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == "child") {
        return qfabric_contest::actor::child();
    }
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let seconds: u64 = after("--seconds").map_or(Ok(30), |text| text.parse()).context("--seconds is not a number")?;
    ensure!((1..=3_600).contains(&seconds), "--seconds is {seconds}; use 1 to 3600");
    let competitor = match after("--mechanism").map_or("htb", String::as_str) {
        "htb" => Competitor::Htb,
        "dwcs" => Competitor::Dwcs,
        other => bail!("--mechanism is {other:?}; use htb or dwcs"),
    };
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
    let outcome = delays::run(competitor, Nanos::from_millis(seconds * 1_000), Work::calibrate())?;
    print!("{}", outcome.text());
    Ok(())
}
