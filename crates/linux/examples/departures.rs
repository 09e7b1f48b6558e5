//! Measures thousands of departures from SCHED_DEADLINE under load: how much bandwidth is lost and how many threads are
//! stuck. Both must be 0.
//!
//! `cargo run --release -p qfabric-linux --example departures -- --departures 10000`
//!
//! A run holds the lock of the tests on the real scheduler. Several shorter runs with different seeds let the tests run
//! in between and measure the same, because no state carries over from one run to the next.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use qfabric_linux::books;
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::testing::departures::{self, Plan};
use qfabric_linux::testing::{Worker, live_lock, may_reserve};
use qfabric_types::{Nanos, Reservation, ThreadId};

const USAGE: &str = "departures [--departures N] [--seconds N] [--budget-us N] [--period-us N] [--hogs N] \
                     [--kill-every N] [--look-every N] [--seed N] [--marked 0|1] [--rebuild 1]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| value(&arguments, name).map_or(default, |v| v.parse().expect(USAGE));
    let (budget, period) = (number("--budget-us", 1_300), number("--period-us", 10_000));
    let reservation = Reservation::new(Nanos::from_micros(budget), Nanos::from_micros(period)).expect(USAGE);
    if let Some(folder) = value(&arguments, "--serve") {
        let threads: Vec<_> = value(&arguments, "--threads").expect(USAGE).split(',').collect();
        let threads: Vec<_> = threads.iter().map(|n| ThreadId(n.parse().expect(USAGE))).collect();
        departures::serve(Path::new(folder), &threads, reservation, number("--seed", 1));
    }
    let _alone = live_lock();
    if !may_reserve() {
        return ExitCode::FAILURE;
    }
    let books = books::read(Path::new(DEBUGFS)).expect("a process that may reserve can read the books");
    println!("booked with no owner at the start: {} units; {books:?}", books.without_owner());
    if number("--rebuild", 0) == 1 {
        let (_, after) = books::rebuild(Path::new(DEBUGFS)).expect("the root domain can be rebuilt");
        println!("after rebuilding the root domain: {} units with no owner", after.without_owner());
    }
    let _hogs: Vec<_> = (0..number("--hogs", 4)).map(|_| Worker::burning()).collect();
    let plan = Plan {
        departures: number("--departures", 1_000),
        time: Duration::from_secs(number("--seconds", 3_600)),
        reservation,
        kill_every: number("--kill-every", 6),
        look_every: number("--look-every", 40),
        marked: number("--marked", 1) == 1,
        seed: number("--seed", 1),
    };
    let service = |folder: &Path, threads: &[ThreadId], seed: u64| {
        let threads: Vec<_> = threads.iter().map(ThreadId::to_string).collect();
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.arg("--serve").arg(folder).args(["--threads", &threads.join(","), "--seed", &seed.to_string()]);
        command.args(["--budget-us", &budget.to_string(), "--period-us", &period.to_string()]);
        command.stdout(Stdio::null());
        command
    };
    let outcome = departures::run(&plan, &service);
    println!("{budget} in {period} µs, seed {}: {outcome}", plan.seed);
    if plan.marked {
        let (before, after) = books::rebuild(Path::new(DEBUGFS)).expect("the root domain can be rebuilt");
        println!(
            "the marker is removed: {} units with no owner before, {} after",
            before.without_owner(),
            after.without_owner()
        );
    }
    match books::lent_too_much(Path::new(DEBUGFS)) {
        Ok(lent) => println!("reserved bandwidth that GRUB lends, by CPU: {lent:?}"),
        Err(why) => println!("the bandwidth that GRUB lends is unknown: {why}"),
    }
    let clean = (outcome.leaked, outcome.twice, outcome.stuck, outcome.failed) == (0, 0, 0, 0);
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn value<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|a| a == name)?;
    Some(arguments.get(at + 1).expect(USAGE))
}
