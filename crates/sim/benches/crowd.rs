//! How long 200 hosts and 10 virtual minutes take: `cargo bench -p qfabric-sim --bench crowd -- [hosts] [seconds]`.

use std::time::Instant;

use qfabric_sim::fabric::experiments::crowd::{Options, run};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let defaults = Options::default();
    let hosts = numbers.next().map_or(defaults.hosts, |hosts| hosts as usize);
    let options = Options { hosts, seconds: numbers.next().unwrap_or(defaults.seconds), ..defaults };
    let begun = Instant::now();
    let outcome = run(&options);
    let took = begun.elapsed().as_secs_f64();
    println!("{outcome:?}");
    println!(
        "{hosts} hosts, {} virtual seconds: {took:.1} s real, {:.0} times as fast",
        options.seconds,
        options.seconds as f64 / took
    );
}
