//! `guard` before a real listener, in the real kernel.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use qfabric_linux::testing::{live_lock, may_reserve};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{answer, qfabric};

/// A dropped SYN is sent again after a second: who is not connected by then was dropped.
const PROMPT: Duration = Duration::from_millis(500);

/// A guard with fixed thresholds, in front of a listener that accepts only when told to.
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
        guard.says();
        guard
    }

    /// Its next line.
    fn says(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Waits for a line of which it holds.
    fn says_soon(&mut self, what: impl Fn(&Value) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let line = self.says();
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
    let before = connect(listen).unwrap(); // counted, though it was there before the guard
    let mut guard = Guard::start(folder.path(), listen, "--connections 4 --queue 2");
    let mut clients: Vec<_> = (0..4).map(|_| connect(listen).expect("below a threshold")).collect();
    assert!(connect(listen).is_none(), "five are open and five wait: above both thresholds");
    guard.says_soon(|line| line["connections"] == 5 && line["dropped"].as_i64() >= Some(1));

    // The queue below its threshold: many open connections alone drop nothing.
    let accepted: Vec<_> = (0..4).map(|_| listener.accept().unwrap()).collect();
    clients.push(connect(listen).expect("the queue is short"));
    clients.push(connect(listen).expect("the queue is short"));
    assert!(connect(listen).is_none(), "three wait again");

    // Connections below their threshold: a full queue alone drops nothing.
    drop((before, accepted, clients));
    guard.says_soon(|line| line["connections"].as_i64() <= Some(4));
    assert!(connect(listen).is_some(), "most connections have ended");
    assert_eq!(guard.end(Signal::TERM), Some(0));
}

#[test]
fn nothing_is_dropped_after_the_guard_has_ended_however_it_ended() {
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
fn nonsense_is_refused_before_anything_is_changed() {
    answer("guard --listen nonsense").expect(2, &["[ADDRESS]:PORT", ":8080"]);
    answer("guard --listen :80 --queue 0").expect(2, &["--queue"]);
    answer("guard --listen :80 --interface no-such0").expect(2, &["no-such0", "lo"]);
    answer("guard --listen :80 --socket /no/such.sock").expect(4, &["/no/such.sock", "qfabric daemon"]);
}
