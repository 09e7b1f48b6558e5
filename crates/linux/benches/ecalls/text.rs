//! The time from a handler's text to code that runs at its hook. The text is the paper's example (000 §3.2.4); a second
//! program makes its input from a wake-up.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_ecode::testing::THESIS_HANDLER;
use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::ecalls::{Install, Installed, Kernel, Step};

use super::{heading, median, micros};

const COLLECT: &str = "
struct resource { int num_attributes; int attribute[4]; int threshold[4]; };
struct output { struct resource resource[2]; };
output.resource[0].num_attributes = 2;
output.resource[0].attribute[0] = input.prio;
output.resource[0].threshold[0] = 100;
output.resource[0].attribute[1] = input.cpu;
return 1;";
const FORMATS: &str = "
struct flags { int exceeded[4]; };
struct output { struct flags resource[2]; };
enum { NUM_RESOURCES = 2 };
";
const ROUNDS: usize = 101;

/// Duration of each part, ns.
#[derive(Default)]
struct Parts {
    compile: Vec<u64>,
    install: Vec<u64>,
    whole: Vec<u64>,
}

pub(crate) fn run(kernel: &Kernel) {
    heading("From text to running in the kernel", "    median");
    let mut parts = Parts::default();
    for _ in 0..ROUNDS {
        drop(once(kernel, &mut parts));
        // The first handler at a tracepoint whose last handler was just removed waits until no CPU uses that one any
        // more. These milliseconds belong to the removal, not to the installation.
        std::thread::sleep(Duration::from_millis(30));
    }
    println!("{:<44} {}", "E-code: parse, check", micros(median(&mut parts.compile)));
    println!("{:<44} {}", "E-code: generate, load, verify, attach", micros(median(&mut parts.install)));
    let total = median(&mut parts.whole);
    println!("{:<44} {}   (promise: 1000)", "E-code: total", micros(total));
    compare("clang -O2 -target bpf, without loading", total, clang());
    compare("bpftrace, one comparison at a timer", total, bpftrace());
}

fn once(kernel: &Kernel, parts: &mut Parts) -> Installed {
    let options = BTreeMap::new();
    let started = Instant::now();
    let input = kernel.service("sched.wakeup").map(|service| service.format.clone());
    let collect = compile(COLLECT, &Environment { input, ..Environment::default() }).expect("the handler compiles");
    let input = collect.output.clone();
    let paper = format!("{FORMATS}{THESIS_HANDLER}");
    let paper = compile(&paper, &Environment { input, ..Environment::default() }).expect("the handler compiles");
    let compiled = started.elapsed();
    let request = Install {
        service: "sched.wakeup",
        options: &options,
        only_pid: Some(std::process::id() as i32),
        steps: &[Step::Handler(&collect), Step::Handler(&paper)],
        limits: Limits::default(),
        down: None,
        deadline: None,
        fault_passes: true,
        measured: false,
    };
    let installed = kernel.install(&request).expect("the handlers are installed");
    let whole = started.elapsed();
    parts.compile.push(compiled.as_nanos() as u64);
    parts.install.push((whole - compiled).as_nanos() as u64);
    parts.whole.push(whole.as_nanos() as u64);
    installed
}

fn compare(name: &str, total: u64, took: Option<u64>) {
    match took {
        Some(ns) => println!("{name:<44} {}   ({:.0} times as long)", micros(ns), ns as f64 / total as f64),
        None => println!("{name:<44}  not measured: not installed, or it failed"),
    }
}

/// Median duration of some runs of a command, ns; `None` if a run fails.
fn timed(mut command: Command, runs: usize) -> Option<u64> {
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let run = |_| {
        let started = Instant::now();
        let status = command.status().ok()?;
        (status.success() && started.elapsed() < Duration::from_secs(20)).then(|| started.elapsed().as_nanos() as u64)
    };
    let mut took: Vec<u64> = (0..runs).map(run).collect::<Option<_>>()?;
    Some(median(&mut took))
}

const IN_C: &str = r#"
struct task { int prio; int cpu; } __attribute__((preserve_access_index));
struct resource { int num_attributes; int attribute[4]; int threshold[4]; };
struct { int exceeded[4]; } output[2];
struct resource input[2];
__attribute__((section("raw_tp/sched_wakeup"), used)) int handler(void **ctx) {
    struct task *task = ctx[0];
    (void)task;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < input[i].num_attributes && j < 4; j++)
            output[i].exceeded[j] = input[i].attribute[j] > input[i].threshold[j];
    return 0;
}
char licence[] __attribute__((section("license"), used)) = "GPL";
"#;

fn clang() -> Option<u64> {
    let dir = tempfile::tempdir().ok()?;
    let source = dir.path().join("handler.bpf.c");
    std::fs::write(&source, IN_C).ok()?;
    ["clang", "clang-19"].into_iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(["-O2", "-g", "-target", "bpf", "-c"]).arg(&source).arg("-o").arg(dir.path().join("handler.o"));
        timed(command, 9)
    })
}

/// Counts at a timer: some versions of bpftrace need tracefs for a tracepoint, and the timer is less work.
fn bpftrace() -> Option<u64> {
    let mut command = Command::new("bpftrace");
    command.args(["-e", "interval:ms:10 { @n[pid > 100] = count(); } BEGIN { exit(); }"]);
    timed(command, 5)
}
