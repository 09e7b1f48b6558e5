//! The cost of a decision of the kernel's machine by the number of servers: turnover, pick and account under the CPU's
//! lock, inside the kernel. It is compared with a scan of every server instead of the trees.
//!
//! `cargo bench -p qfabric-linux --bench core` prints medians of interleaved rounds. It needs the right to load BPF
//! programs (root). In an emulator that counts instructions (`xtask vm run --icount`) the nanoseconds count
//! instructions.

use qfabric_linux::abi::*;
use qfabric_linux::bpf::object::Entry;
use qfabric_linux::bpf::{Object, OpenObject, Table, objects};

const DECISIONS: u32 = 20_000;
const ROUNDS: usize = 9;

struct Kernel {
    _object: Object,
    call: Entry,
    run: Entry,
    scan: Entry,
    cpus: Table,
    servers: Table,
}

impl Kernel {
    fn load() -> Kernel {
        let object = OpenObject::open("test/machine", objects::TEST_MACHINE).and_then(OpenObject::load);
        let object = object.unwrap_or_else(|error| panic!("{error}"));
        let entry = |name| object.entry(name).unwrap();
        let table = |name| object.table(name).unwrap();
        let (call, run, scan) = (entry("call"), entry("run"), entry("scan"));
        let (cpus, servers) = (table("cpus"), table(".bss.servers"));
        Kernel { call, run, scan, cpus, servers, _object: object }
    }

    /// Adds `tasks` servers with windows that together demand half of the time.
    fn fill(&self, tasks: u32) {
        self.servers.clear(&0u32).unwrap();
        self.cpus.clear(&0u32).unwrap();
        for slot in 1..=tasks {
            let config = qf_config {
                period_ns: u64::from(2 * tasks + slot % 7),
                service_ns: 1,
                x: 1,
                y: 2 + (slot % 5) as u16,
                ask: QF_ASK_READY,
                ..Default::default()
            };
            let mut call = qf_test_call { op: QF_TEST_ADD, slot, config, ..Default::default() };
            self.call.call(&mut call).unwrap();
        }
    }

    /// Nanoseconds per decision.
    fn measure(&self, entry: &Entry, tasks: u32, decisions: u32, record: u32) -> f64 {
        self.fill(tasks);
        let mut run = qf_test_run { step_ns: 1, ticks: decisions, best_effort: 1, record, ..Default::default() };
        entry.call(&mut run).unwrap();
        assert_eq!(run.done, decisions);
        run.took_ns as f64 / f64::from(decisions)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    // `cargo test --benches` and the build of all benches pass flags that this program must only accept.
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    let _alone = qfabric_linux::testing::live_lock();
    if let Err(why) = qfabric_linux::ecalls::Kernel::open() {
        return println!("not measured: {why}");
    }
    let kernel = Kernel::load();
    println!("{:>8} {:>12} {:>12} {:>8}", "servers", "trees", "scan", "ratio");
    for tasks in [1, 10, 100, 1_000] {
        let (mut trees, mut scans) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            trees.push(kernel.measure(&kernel.run, tasks, DECISIONS, 0));
            scans.push(kernel.measure(&kernel.scan, tasks, DECISIONS / 20, tasks));
        }
        let (tree, scan) = (median(trees), median(scans));
        println!("{tasks:>8} {tree:>9.0} ns {scan:>9.0} ns {:>8.2}", scan / tree);
    }
}
