//! `guard` in front of a real listener, in the real kernel.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use qfabric_linux::testing::{live_lock, may_reserve};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{answer, qfabric};

/// A dropped SYN is sent again after a second, so a client without a connection after this time was dropped.
const PROMPT: Duration = Duration::from_millis(500);

/// A guard with fixed thresholds, in front of a listener that accepts only when the test calls `accept`.
struct Guard {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Guard {
    fn start(folder: &Path, listen: SocketAddr, options: &str) -> Guard {
        let mut command = qfabric(folder);
        command.args(["guard", "--json", "--every", "100ms", "--listen", &listen.to_string()]);
        let mut child = command.args(options.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut guard = Guard { child, lines };
        guard.next_line();
        guard
    }

    fn next_line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Waits for a line that satisfies `what`.
    fn wait_for_line(&mut self, what: impl Fn(&Value) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let line = self.next_line();
            if what(&line) {
                return;
            }
            assert!(Instant::now() < until, "{line}");
        }
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(listen: SocketAddr) -> Option<TcpStream> {
    TcpStream::connect_timeout(&listen, PROMPT).ok()
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn requests_are_dropped_while_both_criteria_hold_and_only_then() {
    if !may_reserve() {
        return;
    }
    let (_alone, folder) = (live_lock(), tempfile::tempdir().unwrap());
    let (listener, listen) = listener();
    let before = connect(listen).unwrap(); // counted, although it is older than the guard
    let mut guard = Guard::start(folder.path(), listen, "--connections 4 --queue 2");
    let mut clients: Vec<_> = (0..4).map(|_| connect(listen).expect("below a threshold")).collect();
    assert!(connect(listen).is_none(), "five are open and five wait: above both thresholds");
    guard.wait_for_line(|line| line["connections"] == 5 && line["dropped"].as_i64() >= Some(1));

    // The queue is below its threshold: many open connections alone cause no drops.
    let accepted: Vec<_> = (0..4).map(|_| listener.accept().unwrap()).collect();
    clients.push(connect(listen).expect("the queue is short"));
    clients.push(connect(listen).expect("the queue is short"));
    assert!(connect(listen).is_none(), "three wait again");

    // The connections are below their threshold: a full queue alone causes no drops.
    drop((before, accepted, clients));
    guard.wait_for_line(|line| line["connections"].as_i64() <= Some(4));
    assert!(connect(listen).is_some(), "most connections have ended");
    assert_eq!(guard.end(Signal::TERM), Some(0));
}

#[test]
fn no_request_is_dropped_after_the_guard_has_ended_or_was_killed() {
    if !may_reserve() {
        return;
    }
    let (_alone, folder) = (live_lock(), tempfile::tempdir().unwrap());
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let (_listener, listen) = listener();
        let guard = Guard::start(folder.path(), listen, "--connections 1 --queue 1");
        let clients = [connect(listen), connect(listen)];
        assert!(clients.iter().all(Option::is_some) && connect(listen).is_none());
        let code = guard.end(signal);
        assert_eq!(code, (signal != Signal::KILL).then_some(0));
        let deadline = Instant::now() + Duration::from_secs(120);
        while connect(listen).is_none() {
            assert!(Instant::now() < deadline, "requests are still dropped after {signal:?}");
        }
    }
}

#[test]
fn invalid_options_are_refused_before_the_guard_starts() {
    answer("guard --listen nonsense").expect(2, &["[ADDRESS]:PORT", ":8080"]);
    answer("guard --listen :80 --queue 0").expect(2, &["--queue"]);
    answer("guard --listen :80 --interface no-such0").expect(2, &["no-such0", "lo"]);
    answer("guard --listen :80 --socket /no/such.sock").expect(4, &["/no/such.sock", "qfabric daemon"]);
}
