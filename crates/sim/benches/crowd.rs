//! Measures the real time for 200 hosts and 10 virtual minutes: `cargo bench -p qfabric-sim --bench crowd --
//! [hosts] [seconds]`. Goal: at most 60 s of real time for 600 virtual seconds, which is 10 times as fast as real
//! time. `--max-time`, which makes all benches short, simulates 20 hosts for a minute.

use std::time::Instant;

use qfabric_sim::fabric::experiments::crowd::{Options, run};

/// The goal: virtual seconds per real second.
const PROMISED: f64 = 10.0;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let shortly = std::env::args().any(|word| word == "--max-time");
    let defaults = if shortly { Options { hosts: 20, seconds: 60, ..Options::default() } } else { Options::default() };
    let hosts = numbers.next().map_or(defaults.hosts, |hosts| hosts as usize);
    let options = Options { hosts, seconds: numbers.next().unwrap_or(defaults.seconds), ..defaults };
    let begun = Instant::now();
    let outcome = run(&options);
    let took = begun.elapsed().as_secs_f64();
    println!("{:?}, {} sinks known, {} hosts killed", outcome.network, outcome.known_sinks, outcome.killed);
    let ratio = options.seconds as f64 / took;
    let promise = ratio / PROMISED;
    println!("{hosts} hosts, {} virtual seconds: {took:.1} s real", options.seconds);
    println!("{ratio:.1} times as fast as real time, {promise:.2} times the goal for 200 hosts and 600 s");
}
