//! One run of one engine: two processes behind the link, the whole plan, and what arrived.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::engine::{Engine, Programs};
use crate::place::{End, Place};
use crate::plan::Plan;
use crate::process::Process;

/// Port of the receiver; a RIST receiver also takes the next one. The bulk flow has its own.
pub(crate) const PORT: u16 = 7700;
const BULK_PORT: u16 = 7710;
/// Timeout for processes to start, to connect and to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// A sender whose engine blocks it gets this time beyond the plan.
const BLOCKED: Duration = Duration::from_secs(10);
/// A plan without a pace takes at most this time.
const THROUGHPUT: Duration = Duration::from_secs(60);
/// Frames that come later than this after the last was sent are lost.
const GRACE: Duration = Duration::from_secs(2);
/// Time that the bulk flow has alone, to leave its slow start behind.
const HEAD_START: Duration = Duration::from_secs(2);

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub number: u32,
    pub due_ns: u64,
    pub arrived_ns: u64,
}

/// What the processes of a run report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrived {
    pub frames: Vec<Arrival>,
    /// CPU time of both processes, from the first frame on.
    pub cpu_ns: u64,
    /// Bits per second that a TCP flow beside the engine carried.
    pub beside_bps: Option<f64>,
}

/// What the processes of a run need.
pub(crate) struct Stage<'a> {
    pub programs: &'a Programs,
    pub plan: &'a Plan,
    pub plan_file: PathBuf,
    /// SCHED_FIFO 1 instead of the default policy.
    pub is_real_time: bool,
}

impl<'a> Stage<'a> {
    /// Writes the plan into the folder of the programs.
    pub(crate) fn new(programs: &'a Programs, plan: &'a Plan, is_real_time: bool) -> Result<Stage<'a>> {
        let plan_file = programs.folder.join("plan");
        plan.write(&plan_file)?;
        Ok(Stage { programs, plan, plan_file, is_real_time })
    }

    /// Runs the engine; `beside`: with a TCP flow on the same link.
    pub(crate) fn run(&self, place: &Place, engine: Engine, beside: bool) -> Result<Arrived> {
        let mut receiver = self.start(place, engine, "receive", End::Receiver)?;
        let mut sender = self.start(place, engine, "send", End::Sender)?;
        let mut bulk = beside.then(|| self.start_bulk(place)).transpose()?;
        receiver.tell("go")?;
        sender.tell("go")?;
        let since = std::time::Instant::now();
        let sent = sender.waits_for("sent", self.length() + BLOCKED)?;
        let measured = bulk.as_mut().map(|bulk| bulk.finish(since)).transpose()?;
        receiver.waits_for("all", GRACE.max(2 * self.plan.deadline))?;
        let mut arrived = arrived(&receiver.results(PATIENCE)?)?;
        // A blocked sender does not answer: its CPU time is not known.
        if sent {
            arrived.cpu_ns += self::arrived(&sender.results(PATIENCE)?)?.cpu_ns;
        }
        Ok(Arrived { beside_bps: measured, ..arrived })
    }

    /// The time for handing over the plan; without a pace, a time for slow machines.
    fn length(&self) -> Duration {
        let paced = self.plan.period * self.plan.frames.len() as u32;
        if paced.is_zero() { THROUGHPUT } else { paced }
    }

    fn start(&self, place: &Place, engine: Engine, part: &str, end: End) -> Result<Process> {
        let address = SocketAddr::new(place.receiver(), PORT);
        let words = self.programs.words(engine, part, address, &self.plan_file);
        self.start_process(place, words, end)
    }

    fn start_process(&self, place: &Place, words: Vec<String>, end: End) -> Result<Process> {
        let policy = if self.is_real_time { &["chrt", "-f", "1"][..] } else { &[] };
        let words: Vec<String> = policy.iter().map(|word| (*word).to_owned()).chain(words).collect();
        let mut process = Process::start(place.command(end, &words)?)?;
        process.expect("ready", PATIENCE)?;
        Ok(process)
    }

    fn start_bulk(&self, place: &Place) -> Result<Bulk> {
        let address = SocketAddr::new(place.receiver(), BULK_PORT).to_string();
        let start = |part, end| self.start_process(place, self.programs.play(&[part, &address]), end);
        let mut bulk =
            Bulk { receiver: start("bulk-receive", End::Receiver)?, sender: start("bulk-send", End::Sender)? };
        bulk.sender.tell("go")?;
        std::thread::sleep(HEAD_START);
        bulk.receiver.tell("go")?;
        Ok(bulk)
    }
}

/// The processes of a TCP flow beside an engine.
struct Bulk {
    receiver: Process,
    sender: Process,
}

impl Bulk {
    /// Bits per second that have come since then.
    fn finish(&mut self, since: std::time::Instant) -> Result<f64> {
        let lines = self.receiver.results(PATIENCE)?;
        let seconds = since.elapsed().as_secs_f64();
        self.sender.results(PATIENCE)?;
        Ok(8.0 * number(&lines, "bytes ")? as f64 / seconds)
    }
}

fn number(lines: &[String], name: &str) -> Result<u64> {
    let found = lines.iter().find_map(|line| line.strip_prefix(name));
    found.and_then(|number| number.parse().ok()).with_context(|| format!("a process did not print `{name}NUMBER`"))
}

fn arrived(lines: &[String]) -> Result<Arrived> {
    let frames = lines.iter().filter_map(|line| line.strip_prefix("frame "));
    let frame = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Arrival { number: next()? as u32, due_ns: next()?, arrived_ns: next()? })
    };
    let frames = frames.map(|line| frame(line).with_context(|| format!("not a frame: {line:?}")));
    Ok(Arrived { frames: frames.collect::<Result<_>>()?, cpu_ns: number(lines, "cpu_ns ")?, beside_bps: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn arrivals_are_read_with_their_times() {
        let found = arrived(&lines("frame 3 100 250\ncpu_ns 7")).unwrap();
        let frames = vec![Arrival { number: 3, due_ns: 100, arrived_ns: 250 }];
        assert_eq!(found, Arrived { frames, cpu_ns: 7, beside_bps: None });
    }

    #[test]
    fn a_process_that_reports_no_cpu_time_is_an_error() {
        assert!(arrived(&lines("frame 3 100 250")).is_err());
        assert!(arrived(&lines("frame 3 x 250\ncpu_ns 7")).is_err());
    }
}
