//! Threads of all kinds leave SCHED_DEADLINE: no bandwidth is lost, and nobody is trapped.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use qfabric_linux::testing::departures::{self, Plan};
use qfabric_linux::testing::{live_lock, may_reserve, settled_room, skip};
use qfabric_types::{Nanos, Reservation, ThreadId};

const PERIOD: Nanos = Nanos::from_millis(10);

fn reservation(budget_us: u64) -> Reservation {
    Reservation::new(Nanos::from_micros(budget_us), PERIOD).unwrap()
}

/// This program once more, as the service that is killed.
fn service(folder: &Path, threads: &[ThreadId], budget_us: u64, seed: u64) -> Command {
    let threads: Vec<_> = threads.iter().map(ThreadId::to_string).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_service_that_is_killed"]);
    command.env("FOLDER", folder).env("THREADS", threads.join(",")).env("SEED", seed.to_string());
    command.env("BUDGET", budget_us.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
#[ignore = "run by departures_of_all_kinds_lose_nothing_and_trap_nobody, which kills it"]
fn a_service_that_is_killed() {
    let given = |name: &str| std::env::var(name).expect("given by the test that runs this");
    let threads: Vec<_> = given("THREADS").split(',').map(|n| ThreadId(n.parse().unwrap())).collect();
    departures::serve(
        Path::new(&given("FOLDER")),
        &threads,
        reservation(given("BUDGET").parse().unwrap()),
        given("SEED").parse().unwrap(),
    );
}

#[test]
fn departures_of_all_kinds_lose_nothing_and_trap_nobody() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    // Twelve of them leave some room for others.
    let budget_us = 1_300.min(settled_room().ppm() as u64 * 9 / 10 / 12 / 100);
    if budget_us < 300 {
        return skip("less than 0.4 CPU is free for twelve reservations");
    }
    let plan = Plan {
        departures: 250,
        time: Duration::from_secs(20),
        reservation: reservation(budget_us),
        kill_every: 4,
        look_every: 8,
        seed: 11,
    };
    let outcome = departures::run(&plan, &|folder, threads, seed| service(folder, threads, budget_us, seed));
    println!("{outcome}");
    assert!(outcome.departures > 0 && outcome.from_journals > 0 && outcome.gave_back > 0, "{outcome}");
    assert_eq!((outcome.leaked, outcome.stuck, outcome.failed), (0, 0, 0), "{outcome}");
}
