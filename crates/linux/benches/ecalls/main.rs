//! The cost of ECalls, compared with other means for the same work, in one run: `cargo bench -p qfabric-linux --bench
//! ecalls` prints medians; `-- bystander` only the cost for processes without subscriptions. Absolute figures hold for this machine only; ratios are more general. It needs what `qfabric
//! doctor` calls `bpf`.

mod cost;
mod notify;
mod text;

use std::time::Duration;

use qfabric_linux::ecalls::Kernel;

fn main() {
    // `cargo test --benches` and the build of all benches pass flags that this program must only accept.
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    let _alone = qfabric_linux::testing::live_lock();
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return println!("not measured: {why}"),
    };
    if std::env::args().any(|argument| argument == "bystander") {
        return cost::bystander(&kernel);
    }
    text::run(&kernel);
    cost::run(&kernel);
    cost::bystander(&kernel);
    notify::run(&kernel);
}

fn heading(title: &str, columns: &str) {
    println!("\n{title}\n{:<44} {columns}", "");
}

/// Sorts the samples and returns the value below which the given part of them lies.
fn quantile(samples: &mut [u64], part: f64) -> u64 {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * part) as usize]
}

fn median(samples: &mut [u64]) -> u64 {
    quantile(samples, 0.5)
}

fn micros(ns: u64) -> String {
    format!("{:>10.2} µs", Duration::from_nanos(ns).as_secs_f64() * 1e6)
}

fn nanos(ns: f64) -> String {
    format!("{ns:>10.0} ns")
}

/// The time of CLOCK_MONOTONIC in ns, the clock of the events' time stamps.
fn now() -> u64 {
    qfabric_linux::clock::now().get()
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        println!("not pinned to CPU {cpu}: {error}");
    }
}
