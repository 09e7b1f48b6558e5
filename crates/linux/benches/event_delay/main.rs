//! The time from the raise of an event in the kernel to the first instruction of its receiver, under `ext`, compared
//! with SCHED_DEADLINE, SCHED_FIFO and plain threads in the same run: `cargo bench -p qfabric-linux --bench
//! event_delay` prints histograms, and the ratios to `ext`. Beside it, two threads for each CPU compute all the time.
//!
//! It needs what `qfabric doctor` calls `bpf`; on a kernel without sched_ext it prints the rows of the others. In the
//! test machine, `make vm-test ARGS='--only ext_delay'` prints the same tables with 2, 4 and 8 CPUs.

mod measure;

use qfabric_linux::ecalls::Kernel;

use measure::Plan;

/// Events of a run that only shows that the measurement works.
const SHORT: usize = 20;

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
    let is_short = std::env::args().any(|flag| flag == "--max-time");
    let plan = if is_short { Plan { events: SHORT, ..Plan::new() } } else { Plan::new() };
    for table in measure::tables(&kernel, &plan) {
        print!("{}", table.text());
    }
}
