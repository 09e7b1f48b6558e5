//! The trace of a run, read by an independent decoder.

#[path = "../../../crates/timeline/tests/walker/mod.rs"]
mod walker;

use qfabric_contest::regime::Competitor;
use qfabric_contest::row::{Host, Played, Row};
use qfabric_contest::timeline;
use qfabric_contest::trace::{Job, Trace};
use qfabric_timeline::ClockReading;
use qfabric_types::Instant;
use walker::{Event, events};

const MS: u64 = 1_000_000;

/// A run of two tasks that began at 100 ms: a job in time, a late one, a skipped period, and an abandoned job.
fn row() -> Row {
    let job = |period: u64, end: u64, complete: bool| {
        let release = 10 * period * MS;
        Job { period, release, woke: release, end: end * MS, complete }
    };
    let jobs = vec![job(0, 5, true), job(1, 21, true), job(3, 40, false)];
    let trace = Trace { period: 10 * MS, phase: 0, periods: 4, jobs, cpu: 6 * MS };
    Row {
        experiment: "delay".to_owned(),
        competitor: Competitor::ExtEvents,
        setting: "2 players".to_owned(),
        x: 2.0,
        round: 1,
        refused: None,
        tasks: Vec::new(),
        counted: Vec::new(),
        others: 0.0,
        host: Host::default(),
        played: Played { start: Instant::new(100 * MS), traces: vec![trace.clone(), trace] },
    }
}

fn on<'e>(events: &'e [Event], track: &str) -> Vec<(u64, u64, &'e str)> {
    let own = events.iter().filter(|event| event.track.ends_with(track));
    own.map(|event| (event.kind, event.at / MS, event.name.as_str())).collect()
}

#[test]
fn each_task_is_a_track_of_its_jobs_and_of_its_misses() {
    let events = events(&timeline::bytes(&row(), ClockReading::default()));
    for task in ["task 1 (application 1, pid 0)", "task 2 (application 2, pid 0)"] {
        let jobs =
            [(1, 100, "job"), (2, 105, ""), (1, 110, "late job"), (2, 121, ""), (1, 130, "late job"), (2, 140, "")];
        assert_eq!(on(&events, &format!("{task}/jobs")), jobs);
        assert_eq!(on(&events, &format!("{task}/misses")), [(3, 120, "miss"), (3, 140, "miss")]);
    }
    assert!(events.iter().all(|event| event.track.contains("delay, 2 players, ext with events, round 1/")));
}

#[test]
fn each_run_has_a_file_and_a_refused_one_has_none() {
    let folder = tempfile::tempdir().unwrap();
    timeline::write(&row(), folder.path()).unwrap();
    timeline::write(&Row { played: Played::default(), round: 2, ..row() }, folder.path()).unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["delay-2-ext-with-events-1.pftrace"]);
    let refusal = timeline::write(&row(), &folder.path().join("missing")).unwrap_err().to_string();
    assert!(refusal.contains("missing"), "{refusal}");
}
