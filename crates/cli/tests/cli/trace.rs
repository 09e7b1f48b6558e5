//! `trace` with a real daemon: the trace is read by a decoder of its own, and its counts are compared with the daemon's.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
use qfabric_types::{JobSource, Quality};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Answer, answer, qfabric};
use crate::live::{Daemon, live, wait_until};
use crate::walker::{Event, events};

/// Jobs of the application under test, and how often one of them is late.
const JOBS: u64 = 40;
const LATE_EVERY: u64 = 8;

fn client(folder: &Path) -> Client {
    Client::connect_to(folder.join("qfabric/qfabric.sock")).unwrap()
}

/// Runs [`JOBS`] jobs and returns what the daemon counted.
fn work(client: &Client) -> Quality {
    let contract = Contract { jobs: JobSource::Marked, ..Contract::new("worker", Nanos::from_millis(10)) };
    let mut session = Session::start(client, contract).unwrap();
    session.start_periodic(|job| {
        let sleeps = if job.k % LATE_EVERY == LATE_EVERY - 1 { 15 } else { 0 };
        std::thread::sleep(Duration::from_millis(sleeps));
        if job.k + 1 < JOBS { ControlFlow::Continue(Foresight::Nothing) } else { ControlFlow::Break(()) }
    });
    let id = session.id().unwrap();
    let quality = || client.application(id).unwrap().quality;
    wait_until(|| quality().jobs == JOBS);
    let quality = quality();
    session.end().unwrap();
    quality
}

fn on<'e>(events: &'e [Event], track: &str, kind: u64) -> Vec<&'e Event> {
    events.iter().filter(|event| event.track.ends_with(track) && event.kind == kind).collect()
}

#[test]
fn the_trace_of_the_last_minute_has_the_jobs_and_misses_that_the_daemon_counted() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let quality = work(&client(folder.path()));
    assert!(quality.misses >= JOBS / LATE_EVERY, "{quality:?}");
    let file = folder.path().join("t.pftrace");
    let mut trace = qfabric(folder.path());
    trace.args(["trace", "--last", "600s", "--json", "-o"]).arg(&file);
    let summary = Answer::of(&mut trace).json();
    let events = events(&std::fs::read(&file).unwrap());
    let counted = [on(&events, "/jobs", 1).len() as u64, on(&events, "/misses", 3).len() as u64];
    assert_eq!(counted, [JOBS, quality.misses]);
    let host = &summary["hosts"][0];
    assert_eq!([host["jobs"].as_u64(), host["misses"].as_u64()], counted.map(Some), "{summary}");
    assert!(on(&events, "/budget", 4).iter().any(|event| event.counter > Some(0.0)));
    let decisions: Vec<_> = on(&events, "/decisions", 3).iter().map(|event| event.name.as_str()).collect();
    assert!(decisions.contains(&"contract in force") && decisions.contains(&"contract ended"), "{decisions:?}");
}

#[test]
fn a_recorded_trace_has_the_jobs_of_its_time_only() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let client = client(folder.path());
    work(&client);
    let mut trace = qfabric(folder.path());
    trace.args(["trace", "-o", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tracing = trace.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(tracing.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("recording"), "{said}");
    let quality = work(&client);
    kill_process(Pid::from_child(&tracing), Signal::INT).unwrap();
    let output = tracing.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let events = events(&output.stdout);
    assert_eq!(on(&events, "/jobs", 1).len() as u64, JOBS);
    assert_eq!(on(&events, "/misses", 3).len() as u64, quality.misses);
}

#[test]
fn a_wrong_length_or_place_of_a_trace_is_refused() {
    answer("trace").expect(2, &["--output <FILE>"]);
    answer("trace --seconds 0 -o t").expect(2, &["0 is not in 1..=86400"]);
    answer("trace --seconds 5 --last 60s -o t").expect(2, &["cannot be used with"]);
    answer("trace --last 90000s -o t").expect(2, &["--last", "such as 60s"]);
    answer("trace --last 1s -o t").expect(4, &["qfabric daemon"]);
}
