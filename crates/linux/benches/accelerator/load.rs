//! The generator of requests, and the busy time of the CPU that answers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_linux::namespace::Namespace;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::Worker;
use qfabric_types::ThreadId;

use crate::{HERE, Outcome, PORT};

/// Connections that `wrk` keeps busy.
const CONNECTIONS: &str = "32";
/// Only ends a connection that hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the idle CPU is observed before each run.
const CALIBRATION: Duration = Duration::from_millis(300);

/// What one run showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Replies per second.
    pub rate: f64,
    /// Part of the answering CPU's time that was used, 0 to 1.
    pub busy: f64,
}

impl Run {
    /// Replies per second of CPU time.
    pub(crate) fn efficiency(&self) -> f64 {
        self.rate / self.busy.max(0.01)
    }
}

/// Sends requests from its own network namespace.
#[derive(Debug)]
pub(crate) struct Generator {
    there: Namespace,
    /// CPU of the servers.
    pub server: u32,
    client: u32,
}

impl Generator {
    pub(crate) fn new(there: Namespace, server: u32, client: u32) -> Generator {
        Generator { there, server, client }
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        self.there.inside(|| TcpStream::connect((HERE, PORT)))?
    }

    /// The whole reply to one request for the page of `bytes`.
    pub(crate) fn ask(&self, bytes: usize) -> Outcome<String> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET /hi HTTP/1.1\r\nHost: {HERE}:{PORT}\r\n\r\n").as_bytes())?;
        let (mut reply, mut part) = (Vec::new(), [0; 4_096]);
        while !is_whole(&reply, bytes) {
            match stream.read(&mut part)? {
                0 => return Err("the server closed the connection before the end of its reply".into()),
                read => reply.extend_from_slice(&part[..read]),
            }
        }
        Ok(String::from_utf8(reply)?)
    }

    /// Sends requests for some seconds, as many as are answered.
    pub(crate) fn run(&self, seconds: u32) -> Outcome<Run> {
        let idle = idler(self.server);
        let (whole, ()) = turns_per_second(&idle, || std::thread::sleep(CALIBRATION));
        let (left, report) = turns_per_second(&idle, || self.wrk(seconds));
        Ok(Run { rate: rate(&report?)?, busy: 1.0 - (left / whole.max(1.0)).min(1.0) })
    }

    fn wrk(&self, seconds: u32) -> Outcome<String> {
        let mut command = on_cpu("wrk", self.client);
        command.args(["-t", "1", "-c", CONNECTIONS, "-d", &format!("{seconds}s"), &format!("http://{HERE}:{PORT}/hi")]);
        self.there.enter_at_exec(&mut command)?;
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("wrk failed: {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A command that runs `program` on one CPU, and that ends when the calling thread ends.
pub(crate) fn on_cpu(program: &str, cpu: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "taskset", "-c", &cpu.to_string(), program]).stdin(Stdio::null());
    command
}

/// Makes the packets that arrive at an interface of this thread's network namespace be handled on `cpu`.
pub(crate) fn receive_on(interface: &str, cpu: u32) -> Outcome<()> {
    let mask = format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu as usize / 32));
    let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    let script = format!("mount -t sysfs sysfs /sys && echo {mask} > {file}");
    // A new mount of /sys shows the interfaces of the network namespace that it is made in.
    let status = Command::new("unshare").args(["--mount", "sh", "-c", &script]).stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("receive packet steering is not available ({script})").into());
    }
    Ok(())
}

/// Uses what `cpu` has left.
fn idler(cpu: u32) -> Worker {
    let mut is_placed = false;
    Worker::start(move || {
        if !is_placed {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu as usize);
            rustix::thread::sched_setaffinity(None, &set).expect("the CPU is online");
            let last = SchedAttr { policy: Policy::IDLE, ..SchedAttr::fair(0) };
            last.give(ThreadId(0)).expect("every thread may be of the least importance");
            is_placed = true;
        }
        std::hint::black_box((0..10_000_u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    })
}

/// Turns of `idle` per second while `body` runs, and what that returned.
fn turns_per_second<T>(idle: &Worker, body: impl FnOnce() -> T) -> (f64, T) {
    let (begun, before) = (Instant::now(), idle.turns());
    let returned = body();
    ((idle.turns() - before) as f64 / begun.elapsed().as_secs_f64(), returned)
}

/// True if a header and `bytes` of the page have arrived.
fn is_whole(reply: &[u8], bytes: usize) -> bool {
    let header = reply.windows(4).position(|end| end == b"\r\n\r\n");
    header.is_some_and(|at| reply.len() >= at + 4 + bytes)
}

/// Replies per second from the report of `wrk`. Fails if a reply was wrong or missing.
fn rate(report: &str) -> Outcome<f64> {
    if report.contains("Non-2xx") || report.contains("Socket errors") {
        return Err(format!("wrk had errors:\n{report}").into());
    }
    let line = report.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let rate: f64 = line.ok_or("wrk reports no rate")?.trim().parse()?;
    if rate > 0.0 { Ok(rate) } else { Err("no request was answered".into()) }
}
