//! Helpers of the tests with the real scheduler: a plain HTTP client, jobs, and child processes in roles.
#![allow(dead_code)] // each test program uses a part

mod patience;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_types::api::{ApplicationRequest, ApplicationScope, Problem};
use qfabric_types::{JobSource, ThreadId};

pub(crate) use self::patience::*;

/// A user without processes or files on this host.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn with_capacity(capacity: &str) -> Config {
    let mut config = quiet();
    config.limits.capacity = Some(capacity.parse().unwrap());
    config
}

/// A service in this process, with a folder that other users may enter, and a client of it.
pub(crate) fn service(config: Config) -> (Embedded, Client) {
    let service = Embedded::start(config).unwrap();
    let folder = service.socket().parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let client = connected(service.socket());
    (service, client)
}

/// Sends one request. Returns status and body of the answer.
pub(crate) fn call(socket: &Path, method: &str, path: &str, body: &str) -> (u16, String) {
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: q\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer = send_raw(socket, &[head.as_bytes(), body.as_bytes()].concat());
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned());
    (status, body)
}

/// Sends bytes and reads until the service closes the connection, or until the timeout.
pub(crate) fn send_raw(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The service may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut answer);
    answer
}

pub(crate) fn problem(body: &str) -> Problem {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Spins for `ms` of wall-clock time.
pub(crate) fn spin(ms: u64) {
    let until = Instant::now() + Duration::from_millis(ms);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Does `jobs` jobs of `ms` each.
pub(crate) fn work(session: &mut Session, jobs: usize, ms: u64) {
    for _ in 0..jobs {
        spin(ms);
        session.end_cycle(Foresight::Nothing);
        session.wait_for_next_job();
    }
}

pub(crate) fn contract(name: &str, period_ms: u64) -> Contract {
    Contract { jobs: qfabric_types::JobSource::Marked, ..Contract::new(name, Nanos::from_millis(period_ms)) }
}

pub(crate) fn own_thread() -> ThreadId {
    ThreadId(rustix::thread::gettid().as_raw_nonzero().get())
}

pub(crate) fn policy(thread: ThreadId) -> Option<Policy> {
    SchedAttr::of(thread).ok().map(|attr| attr.policy)
}

pub(crate) fn threads_of(pid: u32) -> Vec<ThreadId> {
    qfabric_linux::threads::list(pid as i32).unwrap_or_default()
}

/// A child process that is killed when dropped.
pub(crate) struct Process(pub Child);

impl Process {
    pub(crate) fn shell(script: &str) -> Process {
        Process(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub(crate) fn wait(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the ignored test `role` of this test program in a child process, as user `uid` if given.
pub(crate) fn role(role: &str, uid: Option<u32>, variables: &[(&str, &str)]) -> Process {
    let mut command = role_command(role, variables);
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    Process(command.spawn().unwrap())
}

/// Starts the role `a_daemon` of the test program, a service on `folder`, and a client of it.
pub(crate) fn daemon(folder: &Path) -> (Process, Client) {
    let process = role("a_daemon", None, &[("FOLDER", folder.to_str().unwrap())]);
    (process, served(folder))
}

/// A client of the service on `folder`; waits until the service answers.
pub(crate) fn served(folder: &Path) -> Client {
    connected(folder.join("qfabric.sock"))
}

/// A busy program with its own nice value under a reservation.
pub(crate) fn covered_worker(client: &Client) -> (Process, ThreadId) {
    let worker = Process::shell("while :; do :; done");
    let thread = ThreadId(worker.pid());
    SchedAttr::fair(5).give(thread).unwrap();
    let contract = Contract { jobs: JobSource::Consumption, ..contract("worker", 40) };
    client.admit(&ApplicationRequest { pid: worker.pid(), covers: ApplicationScope::Program, contract }).unwrap();
    eventually("it is under reservation", || policy(thread) == Some(Policy::DEADLINE));
    (worker, thread)
}

/// The command of [`role`], for other standard files.
pub(crate) fn role_command(role: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(readable_copy());
    command.args(["--exact", role, "--ignored", "--nocapture", "--test-threads=1"]).stdout(Stdio::piped());
    command.envs(variables.iter().copied()).current_dir("/");
    command
}

/// A copy of the test program that other users may execute, because the build folder may be closed to them.
fn readable_copy() -> PathBuf {
    static COPY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    COPY.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("qfabric-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        copy
    })
    .clone()
}

/// A variable that [`role`] passed to this process.
pub(crate) fn given(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: another test runs this one"))
}
