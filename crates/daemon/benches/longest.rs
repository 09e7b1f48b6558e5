//! Measures how long one call of the longest handlers takes that the default limits admit, beside the limit:
//! `cargo bench -p qfabric-daemon --bench longest`. Prints figures and asserts nothing, because machines differ.
//!
//! A limit counts instructions, and instructions differ, so each text spends the limit in another way. Calls in the
//! kernel are measured at wake-ups of this process, by the same two readings of the clock with which the daemon charges
//! users. The other engines are measured by the clock around a call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use qfabric_daemon::Config;
use qfabric_ecode::{Bound, CallContext, Engine, Environment, Interpreter, Program, compile};
use qfabric_jit::Jit;
use qfabric_linux::ecalls::{Install, Kernel, Step};

/// What one turn of the loop does.
const TURNS: [(&str, &str); 5] = [
    ("additions", "s += i;"),
    ("elements of a table", "t[i & 63] += i;"),
    ("divisions", "s += 1000000007 / (i + 1);"),
    ("additions to an attribute", "attr.sum += i;"),
    ("readings of the clock", "s += now();"),
];
const SERVICE: &str = "sched.wakeup";
/// Calls of each text in each engine.
const CALLS: u32 = 101;

fn main() {
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    let _alone = qfabric_linux::testing::live_lock();
    let kernel = Kernel::open().map_err(|why| println!("not measured in the kernel: {why}")).ok();
    let Config { ecalls, channels, .. } = Config::default();
    for (key, limit) in [
        ("ecalls.max_instructions_scheduler", ecalls.max_instructions_scheduler),
        ("ecalls.max_instructions", ecalls.max_instructions),
        ("channels.max_filter_instructions", channels.max_filter_instructions),
    ] {
        println!("\n{key} = {limit}");
        println!("{:<28}{:>14}{:>14}{:>14}{:>14}", "", "instructions", "kernel", "machine code", "interpreter");
        TURNS.iter().for_each(|(name, turn)| report(kernel.as_ref(), name, turn, limit));
    }
}

fn report(kernel: Option<&Kernel>, name: &str, turn: &str, limit: u32) {
    let (program, bound) = longest(kernel, turn, limit);
    let limits = bound.limits(0);
    let in_kernel = kernel.map(|kernel| at_hook(kernel, &program, bound));
    let machine = Jit::new(&program, limits).ok().map(|mut jit| called(&mut jit, &program));
    let walked = called(&mut Interpreter::new(&program, limits), &program);
    let columns = [in_kernel.flatten(), machine, Some(walked)].map(|ns| ns.map_or_else(|| "–".to_owned(), micros));
    println!("{name:<28}{:>14}{:>14}{:>14}{:>14}", bound.instructions, columns[0], columns[1], columns[2]);
}

/// The program with the most turns of this kind below the limit.
fn longest(kernel: Option<&Kernel>, turn: &str, limit: u32) -> (Program, Bound) {
    let input = kernel.and_then(|kernel| kernel.service(SERVICE)).map(|service| service.format.clone());
    let environment = Environment { input, ..Environment::default() };
    let with = |turns: u32| {
        let head = format!("long t[64]; long i; long s; for (i = 0; i < {turns}; i++)");
        let text = format!("{head} {{ {turn} }} attr.sum += s + t[0]; return 0;");
        let program = compile(&text, &environment).expect("the text compiles");
        let bound = Bound::of([&program], None, limit);
        (program, bound)
    };
    let (mut most, mut beyond) = (1, limit);
    while beyond - most > 1 {
        let middle = most.midpoint(beyond);
        if with(middle).1.fits(limit) { most = middle } else { beyond = middle }
    }
    with(most)
}

/// Mean time of a call at wake-ups of this process, ns.
fn at_hook(kernel: &Kernel, program: &Program, bound: Bound) -> Option<u64> {
    let request = Install {
        service: SERVICE,
        options: &BTreeMap::new(),
        only_pid: Some(std::process::id() as i32),
        steps: &[Step::Handler(program)],
        limits: bound.limits(0),
        down: None,
        deadline: None,
        fault_passes: true,
        measured: true,
    };
    let installed = kernel.install(&request).map_err(|error| println!("not installed: {error}")).ok()?;
    (0..CALLS).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
    let counters = installed.counters();
    assert_eq!(counters.faults, 0, "the fuel covers the loop");
    counters.run_ns.checked_div(counters.events)
}

/// Median time of a call, ns.
fn called(engine: &mut dyn Engine, program: &Program) -> u64 {
    let input = vec![0; program.input.size as usize];
    let mut once = || {
        let begun = Instant::now();
        engine.call(&input, &CallContext::default(), &mut |_| ()).expect("the fuel covers the loop");
        begun.elapsed().as_nanos() as u64
    };
    let mut samples: Vec<u64> = (0..CALLS).map(|_| once()).collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn micros(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}
