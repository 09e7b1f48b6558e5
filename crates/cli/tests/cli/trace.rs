//! `trace` with a real daemon: the trace is read by a decoder of its own, and its counts are compared with the daemon's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
use qfabric_linux::observe::CpuObserver;
use qfabric_types::{JobSource, Quality};
use rustix::process::{Pid, Signal, kill_process};

use crate::channels;
use crate::harness::{Answer, answer, qfabric};
use crate::live::{Daemon, live, wait_until};
use crate::walker::{Event, events};

/// Jobs of the application under test, and how often one of them is late.
const JOBS: u64 = 40;
const LATE_EVERY: u64 = 8;

fn client(folder: &Path) -> Client {
    Client::connect_to(folder.join("qfabric/qfabric.sock")).unwrap().with_patience(channels::PATIENCE)
}

/// Runs [`JOBS`] jobs and returns what the daemon counted.
fn work(client: &Client) -> Quality {
    let contract = Contract { jobs: JobSource::Marked, ..Contract::new("worker", Nanos::from_millis(10)) };
    let mut session = Session::start(client, contract).unwrap();
    let mut begun = 0;
    session.start_periodic(|_| {
        if begun == JOBS {
            return ControlFlow::Break(());
        }
        begun += 1;
        let sleeps = if begun % LATE_EVERY == 0 { 15 } else { 0 };
        std::thread::sleep(Duration::from_millis(sleeps));
        ControlFlow::Continue(Foresight::Nothing)
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

/// The daemon began after the time that is asked for, so that nothing is known, and nothing drawn, of the time before.
#[test]
fn a_trace_does_not_reach_back_beyond_what_the_daemon_knows() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let began = qfabric_linux::clock::readings()[0];
    let _daemon = Daemon::start(folder.path(), "");
    let client = client(folder.path());
    let contract = Contract { jobs: JobSource::Marked, ..Contract::new("worker", Nanos::from_millis(10)) };
    let _session = Session::start(&client, contract).unwrap();
    let file = folder.path().join("t.pftrace");
    let mut trace = qfabric(folder.path());
    trace.args(["trace", "--last", "600s", "-o"]).arg(&file);
    Answer::of(&mut trace).expect(0, &["the daemon's record reaches back "]);
    let summary = Answer::of(trace.arg("--json")).json();
    let now = qfabric_linux::clock::readings()[0];
    assert!(summary["seconds"].as_f64().unwrap() * 1e9 <= (now - began) as f64, "{summary}");
    let events = events(&std::fs::read(&file).unwrap());
    assert!(!events.is_empty() && events.iter().all(|event| event.at >= began), "{events:?}");
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
fn an_arrow_ties_each_event_of_a_source_to_its_sink_on_the_other_host() {
    let Some((_alone, all)) = channels::live() else { return };
    let [alpha, beta] = channels::two_hosts(all.path());
    let mut reading = beta.subscribe(&["--count", "3"]);
    alpha.publish(&["--sinks", "1"], &"{\"number\": 1}\n".repeat(3)).expect(0, &[]);
    (0..3).for_each(|_| drop(reading.line()));
    let file = all.path().join("t.pftrace");
    let mut trace = qfabric(all.path());
    trace.args(["trace", "--last", "600s", "--json", "-o"]).arg(&file);
    for host in [&alpha, &beta] {
        trace.arg("--socket").arg(host.folder.join("qfabric.sock"));
    }
    let summary = Answer::of(&mut trace).json();
    let counts: Vec<_> = [0, 1].map(|host| summary["hosts"][host]["channel_events"].clone()).into();
    assert_eq!(counts, [3, 3], "{summary}");
    let events = events(&std::fs::read(&file).unwrap());
    let flows = |name: &str| {
        let named = on(&events, "/channel video", 3).into_iter().filter(|event| event.name == name);
        named.flat_map(|event| event.flows.clone()).collect::<BTreeSet<u64>>()
    };
    assert_eq!((flows("submitted").len(), flows("submitted")), (3, flows("received")));
}

#[test]
fn a_trace_with_cpus_shows_which_thread_ran_on_which_cpu() {
    let Some(_lock) = live() else { return };
    if let Err(error) = CpuObserver::new() {
        return qfabric_linux::testing::skip(format!("the kernel refuses perf events here: {error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let file = folder.path().join("t.pftrace");
    let mut trace = qfabric(folder.path());
    trace.args(["trace", "--seconds", "1", "--cpus", "--json", "-o"]).arg(&file);
    let summary = Answer::of(&mut trace).json();
    let events = events(&std::fs::read(&file).unwrap());
    let on_cpus: Vec<_> = events.iter().filter(|event| event.track.contains("/CPUs/CPU ")).collect();
    let mut begun = on_cpus.iter().filter(|event| event.kind == 1);
    assert_eq!(summary["hosts"][0]["cpu_slices"].as_u64(), Some(begun.clone().count() as u64), "{summary}");
    // The tracing program itself wakes up every 50 ms.
    assert!(begun.any(|event| event.name == "qfabric"), "{on_cpus:?}");
    let mut until = BTreeMap::new();
    for event in on_cpus {
        let before = until.insert(&event.track, (event.kind, event.at)).unwrap_or((2, 0));
        assert!(before.0 != event.kind && before.1 <= event.at, "{event:?} follows {before:?}");
    }
}

#[test]
fn a_wrong_length_or_place_of_a_trace_is_refused() {
    answer("trace").expect(2, &["--output <FILE>"]);
    answer("trace --seconds 0 -o t").expect(2, &["0 is not in 1..=86400"]);
    answer("trace --seconds 5 --last 60s -o t").expect(2, &["cannot be used with"]);
    answer("trace --last 90000s -o t").expect(2, &["--last", "such as 60s"]);
    answer("trace --last 1s --cpus -o t").expect(2, &["cannot be used with"]);
    answer("trace --last 1s -o t").expect(4, &["qfabric daemon"]);
}
