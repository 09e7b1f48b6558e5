//! The cost of Q-channels and of their rivals, measured in one run:
//! `cargo run --release -p qfabric-link --example rivals -- [--short] [--only PARTS] [--rounds N] [--rivals NAMES] [--hosts N]`
//!
//! Parts: `submission` (CPU time of the submitting process), `trips` (round trips, idle and with every processor busy),
//! `sinks` (one that stopped or is slow, beside a healthy one), `flood` (control beside bulk to the same host),
//! `valve` (from a reading to a changed parameter of a Q-filter), `reports` (a hundred hosts report), `combined` (the same through
//! combiners, and with certificates). Engines take
//! turns; medians of rounds. The disturber is `stress-ng`; SCHED_FIFO is set by `chrt` and needs root. Rivals that are
//! not installed are left out: `nats-server`, ZeroMQ and Cyclone DDS ([`field::foreign`]).

mod combined;
#[path = "../field/mod.rs"]
mod field;
mod tables;

use std::env;

use field::{foreign, play, stage};

/// The amount of measuring.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    rounds: usize,
    trips: usize,
    events: usize,
    /// Duration of continuous measurements in seconds.
    seconds: u64,
    /// Reporting hosts of the part `combined`.
    hosts: usize,
}

/// A part's name, and the function that measures and prints it.
type Part = (&'static str, fn(Effort));

fn main() {
    if let Ok(role) = env::var(stage::ROLE) {
        return play::play(&role);
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let short = arguments.iter().any(|argument| argument == "--short");
    let mut effort = Effort { rounds: 3, trips: 2000, events: 1000, seconds: 4, hosts: 100 };
    if short {
        effort = Effort { rounds: 1, trips: 500, events: 300, seconds: 2, hosts: 100 };
    }
    if let Some(rounds) = after("--rounds").and_then(|rounds| rounds.parse().ok()) {
        effort.rounds = rounds;
    }
    if let Some(hosts) = after("--hosts").and_then(|hosts| hosts.parse().ok()) {
        effort.hosts = hosts;
    }
    if let Some(rivals) = after("--rivals") {
        let _ = stage::TAKE_PART.set(rivals.clone());
    }
    let wanted = |part: &str| after("--only").is_none_or(|only| only.split(',').any(|only| only == part));
    let parts: [Part; 7] = [
        ("submission", tables::submission),
        ("trips", tables::trips),
        ("sinks", tables::sinks),
        ("flood", tables::flood),
        ("valve", tables::valve),
        ("reports", tables::reports),
        ("combined", combined::combined),
    ];
    parts.iter().filter(|(name, _)| wanted(name)).for_each(|(_, part)| part(effort));
    foreign::clean();
}
