//! Dispatch latency and cost of the mechanism `dispatcher`: `cargo bench -p qfabric-linux --bench dispatcher`. Needs
//! CAP_SYS_NICE. Uses the last CPU for some 20 s, with the table of the paper (004, Table 2): 10 ms slots, one of four
//! is free.
//!
//! A latency is the time from a slot boundary until all threads have the priorities of the next slot (004 §3.3). The
//! cost is the CPU time of the thread that dispatches. The paper has 1 ms and 10 %; the aim is 50 µs (p99) and 1 %.

use std::time::Duration;

use qfabric_linux::cpus::CpuList;
use qfabric_linux::dispatcher::DispatchCost;
use qfabric_linux::testing::{Worker, live_lock};
use qfabric_linux::{DispatcherMechanism, Mechanism, clock};
use qfabric_types::{DispatchRules, Nanos, Reclaiming, Reservation, ServerTerms, Setting};

const ROUNDS: usize = 3;
const LENGTH: Duration = Duration::from_secs(3);

fn main() {
    let _alone = live_lock();
    if std::env::args().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only compiles it
    }
    let cpu = CpuList::online().iter().last().expect("one CPU is online");
    println!("table: 10 ms in 20 ms, 10 ms in 40 ms (two threads), one slot of four free; CPU {cpu}");
    println!("{:<34} {:>7} {:>9} {:>9} {:>9} {:>8}", "threads", "samples", "p50", "p99", "max", "cost");
    for round in 1..=ROUNDS {
        row(&format!("round {round}: asleep, no hog"), &measure(cpu, Worker::sleeping, 0));
        row(&format!("round {round}: busy, four hogs"), &measure(cpu, Worker::burning, 4));
    }
}

/// Costs, and the time in which they arose.
fn measure(cpu: u32, start: fn() -> Worker, hogs: usize) -> (DispatchCost, Nanos) {
    let rules = DispatchRules { free: "0.25".parse().expect("a share"), ..DispatchRules::default() };
    let mut mechanism = DispatcherMechanism::new(rules).expect("rules in range");
    // They are not pinned: with more busy threads than CPUs, the CPU of the table has some of them.
    let hogs: Vec<Worker> = (0..hogs).map(|_| Worker::burning()).collect();
    let workers: Vec<Worker> = (0..3).map(|_| start()).collect();
    let mut group = |app: u64, members: &[Worker], period_ms: u64| {
        let reservation = Reservation::new(Nanos::from_millis(10), Nanos::from_millis(period_ms)).ok();
        let terms = ServerTerms { group: Some(qfabric_types::AppId(app)), cpu: Some(cpu), ..ServerTerms::default() };
        for member in members {
            let setting = Setting { thread: member.thread, reservation, reclaiming: Reclaiming::Hard, terms };
            mechanism.apply(&setting).expect("the table has room");
        }
    };
    group(1, &workers[..1], 20);
    group(2, &workers[1..], 40);
    let (begin, before) = (clock::now(), mechanism.cost(cpu).expect("the CPU has groups").used);
    std::thread::sleep(LENGTH);
    let cost = mechanism.cost(cpu).expect("the CPU has groups");
    drop((mechanism, hogs));
    (DispatchCost { used: cost.used - before, ..cost }, clock::now().since(begin))
}

fn row(name: &str, (cost, length): &(DispatchCost, Nanos)) {
    let mut sorted = cost.latencies.clone();
    sorted.sort_unstable();
    let micros = |nanos: Nanos| format!("{:.1} µs", nanos.as_f64() / 1e3);
    let at = |percent: usize| micros(sorted[(sorted.len() - 1) * percent / 100]);
    let share = 100.0 * cost.used.as_f64() / length.as_f64();
    println!("{name:<34} {:>7} {:>9} {:>9} {:>9} {share:>6.3} %", sorted.len(), at(50), at(99), at(100));
}
