//! Measures what a hostile user at each limit costs another user: latencies of an ordinary user alone, and while a
//! hostile user is at a limit. Prints figures and asserts nothing, because machines differ.
//!
//! ```text
//! cargo bench -p qfabric-daemon --bench adversary [-- --json] [--only PART] [--rounds N] [--samples N]
//! ```
//!
//! The service runs as root with its default limits; the two users are neither root nor the same. Rounds alone and
//! rounds beside the hostile user alternate, so that a change of the machine's speed affects both. The line `hog`
//! is for comparison: a program that only uses a CPU costs others something, too. Needs root; otherwise it prints
//! that and ends.

mod attacks;
mod ordinary;
mod table;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_daemon::{Config, EngineName};
use qfabric_linux::testing::{live_lock, may_reserve};
use serde_json::json;

use crate::ordinary::Batch;
use crate::table::Row;

/// A result with any error; a failure ends the benchmark.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The uids of the user whose latencies are measured, and of the one that attacks.
const ORDINARY: u32 = 65_533;
const HOSTILE: u32 = 65_534;
/// File in the folder of the sockets, with the address of the metrics on TCP.
const METRICS: &str = "metrics-address";
/// Pause after an attack, in which the service frees what the attack held.
const PAUSE: Duration = Duration::from_millis(700);

struct Options {
    only: String,
    rounds: usize,
    /// Samples of each operation in a round.
    samples: usize,
    json: bool,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", folder] => Ok(qfabric_daemon::run(config(folder)?)?),
        ["ordinary", socket, samples] => ordinary::be(Path::new(socket), samples.parse()?),
        ["attack", name, socket] => attacks::be(name, Path::new(socket)),
        ref given => measure(&options(given)?),
    }
}

fn options(given: &[&str]) -> Outcome<Options> {
    let value = |key: &str| given.iter().position(|word| *word == key).and_then(|at| given.get(at + 1)).copied();
    // `make bench ARGS=--short` gives this option to every bench: show only that it works.
    let short = given.contains(&"--max-time");
    let rounds = value("--rounds").map_or(Ok(if short { 1 } else { 5 }), str::parse)?;
    let samples = value("--samples").map_or(Ok(if short { 5 } else { 100 }), str::parse)?;
    let only = value("--only").unwrap_or_default().to_owned();
    Ok(Options { only, rounds, samples, json: given.contains(&"--json") })
}

fn config(folder: &str) -> Outcome<Config> {
    let mut config = Config::default().in_directory(folder);
    config.log.filter = "error".to_owned();
    (config.channels.enabled, config.channels.engine) = (true, EngineName::None);
    config.channels.host = Some("host".parse()?);
    // A free port; nothing else takes ports meanwhile.
    let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    std::fs::write(Path::new(folder).join(METRICS), metrics.to_string())?;
    config.metrics.listen = Some(metrics);
    // Each user may subscribe to its own service only, and the hostile one to timers.
    config.ecalls.users = [(ORDINARY, vec![ordinary::SERVICE]), (HOSTILE, vec![attacks::SERVICE, "timer"])]
        .into_iter()
        .map(|(user, services)| (user, services.into_iter().map(str::to_owned).collect()))
        .collect();
    Ok(config)
}

fn measure(options: &Options) -> Outcome<()> {
    if !may_reserve() || !rustix::process::geteuid().is_root() {
        println!("not measured: only root can be several users");
        return Ok(());
    }
    let (_alone, folder) = (live_lock(), tempfile::tempdir()?);
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
    let program = folder.path().join("adversary");
    // The build folder may be closed to other users.
    std::fs::copy(std::env::current_exe()?, &program)?;
    let run = folder.path().join("run");
    std::fs::create_dir(&run)?;
    std::fs::set_permissions(&run, PermissionsExt::from_mode(0o755))?;
    let host = Host { program, socket: run.join("qfabric.sock") };
    let service = host.itself(&["serve", &run.display().to_string()], None)?;
    while Client::connect_to(&host.socket).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let rows = host.rows(options)?;
    if options.json {
        println!("{}", json!({ "rounds": options.rounds, "samples": options.samples, "limits": rows }));
    } else {
        table::print(&rows, options.rounds, options.samples);
    }
    drop(service);
    Ok(())
}

struct Host {
    program: PathBuf,
    socket: PathBuf,
}

/// This program in another role; killed when dropped.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Host {
    fn itself(&self, words: &[&str], user: Option<u32>) -> Outcome<Process> {
        let mut command = Command::new(&self.program);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.args(words).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        let input = child.stdin.take().ok_or("no input")?;
        Ok(Process { child, lines, input })
    }

    fn rows(&self, options: &Options) -> Outcome<Vec<Row>> {
        let socket = self.socket.display().to_string();
        let mut ordinary = self.itself(&["ordinary", &socket, &options.samples.to_string()], Some(ORDINARY))?;
        ordinary.line()?;
        let meant = attacks::ALL.iter().filter(|attack| attack.name.contains(&options.only));
        meant.map(|attack| self.row(attack, &mut ordinary, options.rounds)).collect()
    }

    /// Measures rounds alone and beside the attack, in turn.
    fn row(&self, attack: &attacks::Attack, ordinary: &mut Process, rounds: usize) -> Outcome<Row> {
        let (mut row, socket) = (Row::new(attack), self.socket.display().to_string());
        for _ in 0..rounds {
            let alone = ordinary.batch()?;
            let mut hostile = self.itself(&["attack", attack.name, &socket], Some(HOSTILE))?;
            row.holds = hostile.line()?;
            let beside = ordinary.batch()?;
            drop(hostile);
            row.add(alone, beside);
            std::thread::sleep(PAUSE);
        }
        Ok(row)
    }
}

impl Process {
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err("a process of the benchmark ended".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    fn batch(&mut self) -> Outcome<Batch> {
        writeln!(self.input, "go")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
