//! A run as a trace for Perfetto: the jobs of each task, with their deadlines and misses. Runs that follow each other
//! are separate groups of tracks on one line of time, so their files can be put into one with `cat`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use qfabric_linux::clock;
use qfabric_timeline::{ClockReading, TraceWriter};
use qfabric_types::api::timeline::{EndedJob, Timeline, TimelineApplication, TimelineEvent, TimelineRecord};
use qfabric_types::{AppId, Instant, Nanos, Owner};

use crate::row::{Played, Row};
use crate::trace::{Job, Trace};

/// Writes the trace of a run into `folder`. Writes nothing if the competitor refused the tasks.
///
/// # Errors
/// The file cannot be written.
pub fn write(row: &Row, folder: &Path) -> Result<()> {
    if row.played.traces.is_empty() {
        return Ok(());
    }
    let path = folder.join(file_name(row));
    fs::write(&path, bytes(row, ClockReading::from(clock::readings())))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The name of the file for a run: experiment, varied quantity, competitor and round.
pub fn file_name(row: &Row) -> String {
    let Row { experiment, x, round, competitor, .. } = row;
    format!("{experiment}-{x}-{}-{round}.pftrace", competitor.name().replace(' ', "-"))
}

/// The trace of a run, on the clocks of this host. The CPU time of each job is the mean of its task.
pub fn bytes(row: &Row, clocks: ClockReading) -> Vec<u8> {
    let Row { experiment, setting, competitor, round, .. } = row;
    let run = format!("{experiment}, {setting}, {}, round {round}", competitor.name());
    let mut writer = TraceWriter::new(&run, clocks);
    let Played { start, traces } = &row.played;
    for (number, trace) in (1..).zip(traces) {
        let id = AppId(number);
        let (name, owner) = (format!("task {number}"), Owner { uid: 0, gid: 0 });
        let applications = vec![TimelineApplication { id, name, pid: 0, owner }];
        let records = trace.jobs.iter().map(|job| record(id, *start, trace, job)).collect();
        writer.add(&Timeline { applications, records, ..Timeline::default() });
    }
    writer.take()
}

fn record(app: AppId, start: Instant, trace: &Trace, job: &Job) -> TimelineRecord {
    let at = |since_start: u64| start + Nanos::new(since_start);
    let (deadline_ns, finish_ns) = (at(trace.deadline(job.period)), at(job.end));
    let job = EndedJob {
        number: job.period,
        release_ns: at(job.release),
        deadline_ns,
        finish_ns,
        cost_ns: trace.cost(),
        error_ns: finish_ns.signed_since(deadline_ns),
        missed: !trace.in_time(job),
    };
    TimelineRecord { at_ns: finish_ns, event: TimelineEvent::Job { app, job } }
}
