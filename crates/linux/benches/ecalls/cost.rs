//! The cost of an event: threads that wake each other on one CPU, alternately with and without a handler at their
//! wake-ups. It is compared with a real-time signal to the same process.
#![allow(unsafe_code)] // a signal handler and a scheduling policy, to be measured

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use qfabric_ecode::{Environment, Limits, Program, compile};
use qfabric_linux::ecalls::{Install, Installed, Kernel, Step, UpMemory, signal_queue};
use qfabric_types::memory::{Geometry, Layout};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::{heading, nanos, pin};

const TURNS: u32 = 2000;
const ROUNDS: usize = 41;

pub(crate) fn run(kernel: &Kernel) {
    heading("Cost of an event", "    median");
    let signal = signal();
    println!("{:<44} {}   (sent, handled, returned)", "a real-time signal to the same process", nanos(signal));
    let count = program(kernel, "attr.seen += 1; return 0;");
    let filter = program(
        kernel,
        "return input.prio > 100 && input.prio < 140 && input.cpu >= 0 && input.tid != 7 && input.pid != 8;",
    );
    let memory = UpMemory::new(Geometry::new(Layout::Bits, 64, 48).expect("the geometry is valid"))
        .expect("memory for the events");
    let by_program = |program| move |kernel: &Kernel| install(kernel, &[Step::Handler(program)]);
    let to_memory = |kernel: &Kernel| install(kernel, &[Step::Memory { memory: &memory, position: Some("cpu") }]);
    let with_filter = |kernel: &Kernel| {
        install(kernel, &[Step::Handler(&filter), Step::Memory { memory: &memory, position: Some("cpu") }])
    };
    report(kernel, "handler: attr.seen += 1", signal, &by_program(&count));
    report(kernel, "handler: filter of five comparisons", signal, &by_program(&filter));
    report(kernel, "memory_up, one slot overwritten", signal, &to_memory);
    report(kernel, "filter and memory_up", signal, &with_filter);
}

fn program(kernel: &Kernel, text: &str) -> Program {
    let input = kernel.service("sched.wakeup").map(|service| service.format.clone());
    compile(text, &Environment { input, ..Environment::default() }).expect("the handler compiles")
}

fn install(kernel: &Kernel, steps: &[Step]) -> Installed {
    install_for(kernel, "sched.wakeup", std::process::id() as i32, steps)
}

fn install_for(kernel: &Kernel, service: &str, pid: i32, steps: &[Step]) -> Installed {
    let request = Install {
        service,
        options: &BTreeMap::new(),
        only_pid: Some(pid),
        steps,
        limits: Limits::default(),
        down: None,
        deadline: None,
        fault_passes: true,
        measured: false,
    };
    kernel.install(&request).expect("the handler is installed")
}

/// Ids that Linux gives to no process, so that the measured process is a third party.
const OTHERS: i32 = 5_000_000;
const SUBSCRIPTIONS: [usize; 4] = [0, 1, 64, 1024];
const CYCLES: usize = 5;
/// Measurements of each number of subscriptions per cycle.
const SAMPLES: usize = 20;

/// The cost of a context switch of a process that has no subscription.
pub(crate) fn bystander(kernel: &Kernel) {
    heading("A context switch of a third party", "    median");
    if let Err(error) = allow_descriptors() {
        return println!("not measured: {error}");
    }
    let input = kernel.service("sched.switch").map(|service| service.format.clone());
    let environment = Environment { input, ..Environment::default() };
    let program = compile("attr.seen += 1; return 0;", &environment).expect("the handler compiles");
    let mut samples = [const { Vec::new() }; SUBSCRIPTIONS.len()];
    for _ in 0..CYCLES {
        let mut installed = Vec::new();
        for (samples, &count) in samples.iter_mut().zip(&SUBSCRIPTIONS) {
            while installed.len() < count {
                let pid = OTHERS + installed.len() as i32;
                installed.push(install_for(kernel, "sched.switch", pid, &[Step::Handler(&program)]));
            }
            samples.extend((0..SAMPLES).map(|_| ping_pong()));
        }
    }
    let mut none = None;
    for (samples, count) in samples.iter_mut().zip(SUBSCRIPTIONS) {
        samples.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|part| samples[samples.len() * part / 4]);
        let none = *none.get_or_insert(median);
        println!(
            "{:<44} {}   (quartiles {low:.0}..{high:.0}; {:+.1} %; {} samples)",
            format!("{count} subscriptions of other processes"),
            nanos(median),
            (median / none - 1.0) * 100.0,
            samples.len(),
        );
    }
}

/// Each subscription takes some descriptors.
fn allow_descriptors() -> std::io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn report(kernel: &Kernel, name: &str, signal: f64, make: &dyn Fn(&Kernel) -> Installed) {
    let mut differences = Vec::new();
    for _ in 0..ROUNDS {
        let without = ping_pong();
        let installed = make(kernel);
        let with = ping_pong();
        drop(installed);
        let again = ping_pong();
        differences.push(with - (without + again) / 2.0);
    }
    differences.sort_by(f64::total_cmp);
    let cost = differences[differences.len() / 2];
    let (low, high) = (differences[ROUNDS / 4], differences[3 * ROUNDS / 4]);
    println!(
        "{name:<44} {}   (quartiles {low:.0}..{high:.0}; 1/{:.0} of the signal)",
        nanos(cost),
        signal / cost.max(1.0)
    );
}

/// Two threads on one CPU wake each other in turn: nanoseconds per wake-up.
fn ping_pong() -> f64 {
    let pair = || Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
    let (there, back) = (pair(), pair());
    let other = {
        let (there, back) = (there.clone(), back.clone());
        std::thread::spawn(move || {
            alone();
            for _ in 0..TURNS {
                read(there.as_fd(), &mut [0; 8]).expect("the eventfd is open");
                write(back.as_fd(), &1u64.to_ne_bytes()).expect("the eventfd is open");
            }
        })
    };
    let this = std::thread::spawn(move || {
        alone();
        let started = Instant::now();
        for _ in 0..TURNS {
            write(there.as_fd(), &1u64.to_ne_bytes()).expect("the eventfd is open");
            read(back.as_fd(), &mut [0; 8]).expect("the eventfd is open");
        }
        started.elapsed().as_nanos() as f64 / f64::from(2 * TURNS)
    });
    let took = this.join().expect("the thread does not panic");
    other.join().expect("the thread does not panic");
    took
}

/// Pins the calling thread to one CPU, with a real-time priority if that is allowed.
fn alone() {
    pin(0);
    policy(libc::SCHED_FIFO, 1);
}

fn policy(policy: i32, priority: i32) {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter is live; the call changes only this thread's policy.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Nanoseconds per signal that one thread queues for itself: the signal is handled before the call returns.
fn signal() -> f64 {
    let signo = libc::SIGRTMIN() + 1;
    // SAFETY: the handler does nothing but an atomic addition.
    unsafe { libc::signal(signo, handler as extern "C" fn(i32) as libc::sighandler_t) };
    let own = rustix::process::getpid();
    let pidfd =
        rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).expect("a pidfd of this process");
    let mut samples = Vec::new();
    alone();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..TURNS {
            signal_queue(pidfd.as_fd(), signo, 1).expect("the signal is queued");
        }
        samples.push(started.elapsed().as_nanos() as f64 / f64::from(TURNS));
    }
    policy(libc::SCHED_OTHER, 0);
    samples.sort_by(f64::total_cmp);
    samples[ROUNDS / 2]
}
