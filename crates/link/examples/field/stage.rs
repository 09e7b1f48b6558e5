//! The conductor's side: processes, disturbers, medians.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{env, thread};

use super::foreign;

/// The environment variable with which this program is started again.
pub(crate) const ROLE: &str = "QFABRIC_RIVALS_ROLE";

/// The rivals that take part, separated by commas; unset: all.
pub(crate) static TAKE_PART: OnceLock<String> = OnceLock::new();

fn takes_part(rival: &str) -> bool {
    rival == "hog" || TAKE_PART.get().is_none_or(|some| some.split(',').any(|one| one == rival))
}

/// The scheduling policy of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    Normal,
    /// All threads at SCHED_FIFO 50 (`chrt`, needs root).
    Fifo,
    /// Like `Fifo`, with all threads on one processor.
    Pinned,
}

impl Policy {
    /// The command in front of the program.
    fn prefix(self) -> &'static [&'static str] {
        match self {
            Policy::Normal => &[],
            Policy::Fifo => &["chrt", "-f", "50"],
            Policy::Pinned => &["taskset", "-c", "0", "chrt", "-f", "50"],
        }
    }
}

/// A process that is ended when its handle is dropped.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a part: its name, the rival, and the part's arguments. `None`: the rival is not installed.
    pub(crate) fn start(policy: Policy, part: &[&str]) -> Option<Process> {
        if !takes_part(part[1]) {
            return None;
        }
        let (program, arguments, role) = match foreign::program(part[1]) {
            Some(program) => (program.ok()?, part, None),
            None => (env::current_exe().ok()?, &[][..], Some(part.join(" "))),
        };
        let mut command = Process::command(policy.prefix(), &program);
        command
            .args(arguments)
            .env(ROLE, role.unwrap_or_default())
            .env("CYCLONEDDS_URI", foreign::dds_settings("lo", &["localhost"]));
        if matches!(part[1], "zenoh" | "tcp" | "nats") {
            command.env_remove("ZENOH_RUNTIME");
        }
        Process::run(&mut command)
    }

    fn command(prefix: &[&str], program: &std::path::Path) -> Command {
        let Some((first, rest)) = prefix.split_first() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    fn run(command: &mut Command) -> Option<Process> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take()?));
        Some(Process { child, input, output })
    }

    /// The rest of the next line with this beginning; `None`: the process ended.
    pub(crate) fn line(&mut self, beginning: &str) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).ok()? > 0 {
            if let Some(rest) = line.strip_prefix(beginning) {
                return Some(rest.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    /// Requests the values since the last call.
    pub(crate) fn tell(&mut self) -> Option<Vec<f64>> {
        writeln!(self.input.as_mut()?, "tell").ok()?;
        self.numbers()
    }

    /// The numbers of the next result.
    pub(crate) fn numbers(&mut self) -> Option<Vec<f64>> {
        self.line("result")?.split_whitespace().map(|word| word.parse().ok()).collect()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let _ = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
    }
}

/// Part of a loopback address that no other run uses.
pub(crate) fn fresh_net() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    format!("127.{}.{}", 100 + std::process::id() % 150, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Keeps every processor busy for this percentage of the time; 0 starts nothing. Uses `stress-ng` if it is installed.
pub(crate) fn disturb(percent: u32) -> Vec<Process> {
    if percent == 0 {
        return Vec::new();
    }
    let mut stress = Command::new("stress-ng");
    stress.args(["--quiet", "--timeout", "600s", "--cpu", "0", "--cpu-load", &percent.to_string()]);
    let disturbers = match Process::run(&mut stress) {
        Some(stress) => vec![stress],
        None => {
            let processors = thread::available_parallelism().map_or(2, usize::from);
            (0..processors).filter_map(|_| Process::start(Policy::Normal, &["hog", "hog"])).collect()
        }
    };
    thread::sleep(std::time::Duration::from_millis(300));
    disturbers
}

/// A broker, for rivals that have one.
pub(crate) fn broker(rival: &str, net: &str, policy: Policy) -> Option<Process> {
    if rival != "nats" {
        return None;
    }
    let mut command = Process::command(policy.prefix(), std::path::Path::new("nats-server"));
    let broker = Process::run(command.args(["-a", &format!("{net}.1"), "-p", "7700"]).stderr(Stdio::null()));
    thread::sleep(std::time::Duration::from_millis(500));
    broker
}

/// `None` if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// p50 and p99 of round trips, microseconds.
pub(crate) fn round_trip(rival: &str, size: usize, trips: usize, policy: Policy) -> Option<(f64, f64)> {
    let (net, size) = (fresh_net(), size.to_string());
    let _broker = broker(rival, &net, policy);
    let mut echo = Process::start(policy, &["echo", rival, &net, &size])?;
    echo.line("ready")?;
    let mut ping = Process::start(policy, &["ping", rival, &net, &size, &trips.to_string()])?;
    let numbers = ping.numbers()?;
    Some((*numbers.first()?, *numbers.get(1)?))
}

/// The cost of submitting, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// CPU time of the submitting process for one event.
    pub cpu: f64,
    /// Duration of the call.
    pub call: f64,
    /// CPU use of the process without any event, in percent of a processor.
    pub rest: f64,
}

pub(crate) fn submission(rival: &str, size: usize, sinks: usize, events: usize, pause_us: usize) -> Option<Cost> {
    let (net, size, sinks) = (fresh_net(), size.to_string(), sinks.to_string());
    let _broker = broker(rival, &net, Policy::Normal);
    let part = ["source", rival, &net, &size, &sinks, &events.to_string(), &pause_us.to_string()];
    let mut source = Process::start(Policy::Normal, &part)?;
    source.line("ready")?;
    let _sinks = Process::start(Policy::Normal, &["sinks", rival, &net, &size, &sinks])?;
    let [cpu, call, rest] = source.numbers()?[..] else { return None };
    Some(Cost { cpu, call, rest })
}
