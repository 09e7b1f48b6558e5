//! Tests that the service ends and restores everything even if its threads hang, and that no client can block it.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::*;
use qfabric_client::ecalls::Ecalls;
use qfabric_daemon::{Config, Embedded, Log};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::frozen::Frozen;
use qfabric_linux::testing::live_lock;
use qfabric_shm::fds;
use qfabric_types::ThreadId;
use qfabric_types::ecalls_wire::{FromClient, VERSION};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};

/// More than the control thread's queue and the requests of one turn.
const REQUESTS: usize = 100;

#[test]
#[ignore = "run by other tests: a service until it is stopped"]
fn a_daemon() {
    let log = Log { filter: std::env::var("LOG").unwrap_or("error".into()), ..Log::default() };
    // The exit code is the result: a test harness that prints the result would block on a full pipe.
    let outcome = qfabric_daemon::run(Config { log, ..Config::default() }.in_directory(given("FOLDER")));
    std::process::exit(i32::from(outcome.is_err()));
}

/// A thread gives itself its name, a little after its start.
fn thread_of(process: &Process, name: &str) -> ThreadId {
    let is_named = |thread: &ThreadId| qfabric_linux::threads::name(*thread).as_deref() == Some(name);
    let mut found = None;
    eventually(name, || {
        found = threads_of(process.pid() as u32).into_iter().find(is_named);
        found.is_some()
    });
    found.unwrap()
}

fn terminate(process: &Process) {
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::TERM).unwrap();
}

/// Waits until the daemon has ended, and checks that its worker has its former policy.
fn has_ended(process: &mut Process, worker: ThreadId) {
    eventually("the daemon ends", || process.0.try_wait().unwrap().is_some());
    let now = SchedAttr::of(worker).unwrap();
    assert_eq!((now.policy, now.nice), (Policy::OTHER, 5));
}

/// Sends requests to the control thread until it refuses one. Returns the waiting connections.
fn fill_the_queue(socket: &Path) -> Vec<UnixStream> {
    let ask = || {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: q\r\n\r\n").unwrap();
        stream
    };
    let waiting = (0..REQUESTS).map(|_| ask()).collect();
    eventually("the queue is full", || call(socket, "GET", "/v1/status", "").0 == 503);
    waiting
}

#[test]
fn sigterm_is_not_lost_behind_a_full_queue() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let (mut process, client) = daemon(folder.path());
    let (_worker, thread) = covered_worker(&client);
    let frozen = Frozen::stop(thread_of(&process, "qf-control")).unwrap();
    let _waiting = fill_the_queue(client.socket());
    terminate(&process);
    drop(frozen);
    has_ended(&mut process, thread);
}

/// Checks that SIGTERM ends the daemon while the thread `name` hangs.
fn sigterm_ends_the_daemon_beside(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (mut process, client) = daemon(folder.path());
    let (_worker, thread) = covered_worker(&client);
    let frozen = Frozen::stop(thread_of(&process, name)).unwrap();
    terminate(&process);
    eventually("the hanging daemon is killed", || frozen.has_ended());
    has_ended(&mut process, thread);
}

#[test]
fn sigterm_ends_the_daemon_and_restores_threads_even_if_the_control_thread_hangs() {
    let _lock = live_lock();
    sigterm_ends_the_daemon_beside("qf-control");
}

#[test]
fn sigterm_ends_the_daemon_and_restores_threads_even_if_another_thread_hangs() {
    let _lock = live_lock();
    ["qf-ecalls", "qf-books"].into_iter().for_each(sigterm_ends_the_daemon_beside);
}

/// A pipe holds 64 KiB; at this log level each invalid request writes a line.
#[test]
fn an_unread_log_blocks_nothing() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let variables = [("FOLDER", folder.path().to_str().unwrap()), ("LOG", "debug")];
    let mut command = role_command("a_daemon", &variables);
    let mut process = Process(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let client = served(folder.path());
    let (_worker, thread) = covered_worker(&client);
    let dropped = || {
        let (_, text) = call(client.socket(), "GET", "/metrics", "");
        let line = text.lines().find(|line| line.starts_with("qfabric_notes_dropped_total")).unwrap_or_default();
        line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or_default()
    };
    eventually("the log is full, and requests are answered", || {
        (0..200).for_each(|_| drop(send_raw(client.socket(), b"nonsense\r\n\r\n")));
        dropped() > 0
    });
    terminate(&process);
    has_ended(&mut process, thread);
}

/// A connected socket with unread data, whose last close blocks, and its other end.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(3_600))).unwrap();
    (near, far)
}

#[test]
fn a_descriptor_that_takes_an_hour_to_close_delays_no_other_client() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let (process, client) = daemon(folder.path());
    let hostile = fds::connect(&client.ecalls_socket(), PATIENCE).unwrap();
    let mut hello = Vec::new();
    FromClient::Hello { version: VERSION }.encode(&mut hello);
    fds::send(&hostile, &hello, &[]).unwrap();
    assert!(fds::recv(&hostile, &mut [0; 64]).unwrap().length > 0);
    let frozen = Frozen::stop(thread_of(&process, "qf-ecalls")).unwrap();
    let (near, _far) = slow_to_close();
    fds::send(&hostile, &hello, &[near.as_fd()]).unwrap();
    // Now the message has the last descriptor.
    drop(near);
    drop(frozen);
    Ecalls::connect(&client).expect("other clients are served");
    drop(hostile);
    Ecalls::connect(&client).expect("other clients are also served after the connection is closed");
}

#[test]
fn sockets_that_need_no_descriptors_refuse_them() {
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    for name in ["qfabric.sock", "ring.sock"] {
        let path = service.socket().with_file_name(name);
        let sent = match name {
            "ring.sock" => fds::send(fds::connect(&path, PATIENCE).unwrap(), b"1", &[std::io::stdin().as_fd()]),
            _ => fds::send(UnixStream::connect(&path).unwrap(), b"GET", &[std::io::stdin().as_fd()]),
        };
        let is_known = qfabric_linux::rights::refuse_descriptors(UnixStream::pair().unwrap().0).unwrap();
        assert_eq!(sent.is_err(), is_known, "{name}");
    }
}

#[test]
fn a_service_that_cannot_start_leaves_no_thread_behind() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    // The last step of the start fails.
    std::fs::create_dir_all(folder.path().join("qfabric.sock/occupied")).unwrap();
    let refusal = Embedded::start(quiet().in_directory(folder.path())).unwrap_err().to_string();
    assert!(refusal.contains("qfabric.sock"), "{refusal}");
    // A thread that was joined is listed until the kernel has taken it down.
    eventually("no thread is left", || {
        let mut left = threads_of(std::process::id()).into_iter().filter_map(qfabric_linux::threads::name);
        left.all(|name| name != "qf-control")
    });
}
