//! The cost of short server periods when budgets are enforced by a timer (`HRTICK_DL`), counted in instructions. In the
//! test machine with `icount` each instruction takes 4 ns of guest time and a run repeats exactly. Outside of it the
//! test must not change the feature, and a clock would also measure other activity.
//!
//! Approach: one CPU, a player that does the same work per job, and a hog that uses the rest. What the hog loses beyond
//! the player's work is overhead: timers, switches, replenishments, cold paths.

use std::path::Path;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::hrtick::{self, DEBUGFS, Feature, State};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{Worker, live_lock, may_reserve, skip};
use qfabric_types::{Nanos, Reservation, ThreadId};

/// Period of the player's jobs.
const T: Nanos = Nanos::from_millis(40);
/// CPU time of a job: a quarter of a CPU.
const WORK: Nanos = Nanos::from_millis(10);
const JOBS: u64 = 25;
/// Guest time of an instruction, ns (`-icount shift=2`).
const INSTRUCTION: f64 = 4.0;

/// Does a fixed amount of work. A round takes about 10 µs of guest time.
fn spin(rounds: u64) {
    for _ in 0..rounds {
        std::hint::black_box((0..60u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    }
}

/// The number of rounds that take `time` of CPU when nothing else runs.
fn rounds_in(time: Nanos) -> u64 {
    spin(100);
    let start = clock::thread_cpu();
    spin(4_000);
    (4_000.0 * time.as_f64() / (clock::thread_cpu() - start).as_f64()) as u64
}

/// Runs `JOBS` jobs under a reservation with period `T/l`. Returns the response time of each.
fn play(l: u64, rounds: u64) -> Vec<Nanos> {
    let budget = Nanos::new((WORK.get() + WORK.get() / 10) / l);
    let reservation = Reservation::new(budget, Nanos::new(T.get() / l)).unwrap();
    SchedAttr::deadline(reservation, false).give(ThreadId(0)).unwrap();
    let mut release = clock::now();
    let job = |_| {
        release = release + T;
        std::thread::sleep(Duration::from_nanos(release.since(clock::now()).get()));
        spin(rounds);
        clock::now().since(release)
    };
    (0..JOBS).map(job).collect()
}

/// CPU time that everything but the hog used while the player ran, ns, and the median response time of the jobs.
fn used_beside_hog(l: u64, rounds: u64, hog_turn: f64) -> (f64, Nanos) {
    let hog = Worker::start(|| spin(20));
    std::thread::sleep(Duration::from_millis(50));
    let (start, turns) = (clock::now(), hog.turns());
    let player = std::thread::spawn(move || play(l, rounds));
    let mut responses = player.join().unwrap();
    let hog_time = (hog.turns() - turns) as f64 * hog_turn;
    responses.sort();
    (clock::now().since(start).as_f64() - hog_time, responses[responses.len() / 2])
}

fn hog_turn() -> f64 {
    let hog = Worker::start(|| spin(20));
    std::thread::sleep(Duration::from_millis(50));
    let (start, turns) = (clock::now(), hog.turns());
    std::thread::sleep(Duration::from_millis(400));
    clock::now().since(start).as_f64() / (hog.turns() - turns) as f64
}

fn switch(on: bool) -> Result<(), State> {
    hrtick::set(Path::new(DEBUGFS), Feature::HrtickDl, on)
}

#[test]
fn at_a_sixteenth_of_the_period_timer_enforcement_costs_less_than_3_percent() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("it counts instructions in the test machine: make vm-test");
    }
    let (turn, rounds) = (hog_turn(), rounds_in(WORK));
    switch(false).unwrap();
    let (at_t, plain) = used_beside_hog(1, rounds, turn);
    switch(true).unwrap();
    let (at_sixteenth, enforced) = used_beside_hog(16, rounds, turn);
    let per_period = (at_sixteenth - at_t) / (JOBS * 16) as f64 / INSTRUCTION;
    let share = per_period / (WORK.as_f64() / 16.0);
    println!("HRTICK_DL, P = T/16 compared with P = T: {per_period:.0} instructions per server period");
    println!("at one instruction per ns: {:.2} % of the player's time; response {plain} → {enforced}", 100.0 * share);
    println!("total: {at_t:.0} → {at_sixteenth:.0} ns, hog's turn {turn:.0} ns, {rounds} rounds");
    assert!(enforced > Nanos::from_millis(30), "budgets were not enforced within server periods: {enforced}");
    assert!((0.0..0.03).contains(&share), "{share}");
}
