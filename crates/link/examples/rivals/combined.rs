//! A hundred hosts that report through a combiner for ten hosts, beside hosts that report directly.

use std::path::Path;

use crate::Effort;
use crate::field::combined::write_certificates;
use crate::field::stage::{Policy, Process, fresh_net, median};

const RATE: &str = "10";
/// Milliseconds for which a report may wait.
const SLACK: &str = "100";

/// Bare Zenoh, then the ways of [`crate::field::combined`]. Each round measures all of them, one after the other.
const WAYS: [&str; 6] = ["zenoh-1", "direct", "mesh", "tree", "direct-tls", "tree-tls"];

/// Prints the CPU use of the receiving process for each way, in percent of a processor.
pub(crate) fn combined(effort: Effort) {
    let folder = tempfile::tempdir().expect("a folder");
    write_certificates(folder.path(), effort.hosts);
    println!(
        "{} hosts report ten times a second each, evenly: directly, or through a combiner for ten hosts within {SLACK} ms",
        effort.hosts
    );
    println!("reports per second, and percentage of a processor where they are received: median (lowest to highest)");
    let mut runs: Vec<Vec<Vec<f64>>> = vec![Vec::new(); WAYS.len()];
    for _ in 0..effort.rounds {
        for (way, runs) in WAYS.iter().zip(&mut runs) {
            runs.extend(run(way, folder.path(), effort.hosts));
        }
    }
    for (way, runs) in WAYS.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
        let part = |at: usize| median(runs.iter().map(|run| run[at])).unwrap_or(f64::NAN);
        let shares = || runs.iter().map(|run| run[1]);
        let (least, most) = (shares().fold(f64::INFINITY, f64::min), shares().fold(0.0, f64::max));
        println!("{way:10} {:>5.0} /s {:>6.2} % ({least:.2} to {most:.2}), {} runs", part(0), part(1), runs.len());
    }
    println!();
}

fn run(way: &str, folder: &Path, hosts: usize) -> Option<Vec<f64>> {
    let (net, hosts) = (fresh_net(), hosts.to_string());
    if way == "zenoh-1" {
        let mut collector = Process::start(Policy::Normal, &["collector", way, &net, &hosts])?;
        collector.line("ready")?;
        let _reporters = Process::start(Policy::Normal, &["reporters", way, &net, &hosts, RATE])?;
        return collector.numbers();
    }
    let way = way.strip_suffix("-tls").map_or(way.to_owned(), |way| format!("{way}@{}", folder.display()));
    let mut root = Process::start(Policy::Normal, &["root", &way, &net, &hosts])?;
    root.line("ready")?;
    let mut combiners = None;
    if !way.starts_with("direct") {
        let mut started = Process::start(Policy::Normal, &["combiners", &way, &net, &hosts])?;
        started.line("ready")?;
        combiners = Some(started);
    }
    let _leaves = Process::start(Policy::Normal, &["leaves", &way, &net, &hosts, RATE, SLACK])?;
    let numbers = root.numbers();
    drop(combiners);
    numbers
}
