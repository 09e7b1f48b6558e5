//! One run of one engine: two processes for each flow behind the link, the whole plans, and what arrived.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::engine::{Engine, Programs};
use crate::place::{End, Place};
use crate::plan::Plan;
use crate::process::Process;

/// Port of the first receiver; a RIST receiver also takes the next one. TCP beside has its own.
pub(crate) const PORT: u16 = 7700;
const TCP_PORT: u16 = 7790;
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
    /// Bits per second that TCP beside the engine carried.
    pub beside_bps: Option<f64>,
}

/// Frames from one end to the other.
pub(crate) struct Flow {
    /// What it is called beside other flows of the same engine.
    pub name: Option<String>,
    pub plan: Plan,
    pub from: End,
    /// Which address of the receiving end.
    pub path: usize,
    /// Time of its start.
    pub begin: Duration,
}

/// TCP on the same link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beside {
    Nothing,
    /// One flow, which begins earlier by this time.
    Long {
        head_start: Duration,
    },
    /// Files with pauses; the factor divides both.
    Short {
        shorten: u32,
    },
}

impl Beside {
    /// The flow has left its slow start behind.
    pub(crate) const STEADY: Beside = Beside::Long { head_start: HEAD_START };
}

/// What the processes of a run need.
pub(crate) struct Stage<'a> {
    pub programs: &'a Programs,
    pub flows: &'a [Flow],
    pub beside: Beside,
    /// SCHED_FIFO 1 instead of the default policy.
    pub is_real_time: bool,
}

impl<'a> Stage<'a> {
    /// Writes the plans into the folder of the programs.
    pub(crate) fn new(
        programs: &'a Programs,
        flows: &'a [Flow],
        beside: Beside,
        is_real_time: bool,
    ) -> Result<Stage<'a>> {
        let stage = Stage { programs, flows, beside, is_real_time };
        flows.iter().enumerate().try_for_each(|(at, flow)| flow.plan.write(&stage.plan_file(at)))?;
        Ok(stage)
    }

    fn plan_file(&self, at: usize) -> PathBuf {
        self.programs.folder.join(format!("plan{at}"))
    }

    /// Runs the engine; returns what arrived of each flow.
    pub(crate) fn run(&self, place: &Place, engine: Engine, seed: u64) -> Result<Vec<Arrived>> {
        let start = |at| self.start(place, engine, at);
        let mut pairs = (0..self.flows.len()).map(start).collect::<Result<Vec<_>>>()?;
        let mut tcp = self.start_tcp(place, seed)?;
        pairs.iter_mut().try_for_each(|pair| pair.receiver.tell("go"))?;
        place.begin()?;
        let since = Instant::now();
        for pair in &mut pairs {
            // The flows are in the order of their starts.
            std::thread::sleep(pair.flow.begin.saturating_sub(since.elapsed()));
            pair.sender.tell("go")?;
        }
        for pair in &mut pairs {
            let within = (pair.flow.begin + length(&pair.flow.plan) + BLOCKED).saturating_sub(since.elapsed());
            pair.has_sent = pair.sender.waits_for("sent", within)?;
        }
        let beside_bps = tcp.as_mut().map(Tcp::finish).transpose()?;
        pairs.into_iter().map(|pair| pair.finish(beside_bps)).collect()
    }

    /// Starts both processes of a flow.
    fn start(&self, place: &Place, engine: Engine, at: usize) -> Result<Pair<'a>> {
        let flow = &self.flows[at];
        let to = flow.from.other();
        let address = SocketAddr::new(place.address(to, flow.path)?, PORT + 2 * at as u16);
        let start = |part, end| {
            let words = self.programs.words(engine, part, address, &self.plan_file(at));
            self.start_process(place, words, end)
        };
        let receiver = start("receive", to)?;
        Ok(Pair { flow, receiver, sender: start("send", flow.from)?, has_sent: false })
    }

    fn start_process(&self, place: &Place, words: Vec<String>, end: End) -> Result<Process> {
        let policy = if self.is_real_time { &["chrt", "-f", "1"][..] } else { &[] };
        let words: Vec<String> = policy.iter().map(|word| (*word).to_owned()).chain(words).collect();
        let mut process = Process::start(place.command(end, &words)?)?;
        process.expect("ready", PATIENCE)?;
        Ok(process)
    }

    fn start_tcp(&self, place: &Place, seed: u64) -> Result<Option<Tcp>> {
        let address = SocketAddr::new(place.address(End::Receiver, 0)?, TCP_PORT).to_string();
        let seed = seed.to_string();
        let (words, head_start) = match self.beside {
            Beside::Nothing => return Ok(None),
            Beside::Long { head_start } => (vec!["bulk-send".to_owned(), address.clone()], head_start),
            Beside::Short { shorten } => {
                (vec!["short-send".to_owned(), address.clone(), seed, shorten.to_string()], Duration::ZERO)
            }
        };
        let start = |words: &[&str], end| self.start_process(place, self.programs.play(words), end);
        let mut receiver = start(&["bulk-receive", &address], End::Receiver)?;
        let mut sender = start(&words.iter().map(String::as_str).collect::<Vec<_>>(), End::Sender)?;
        sender.tell("go")?;
        std::thread::sleep(head_start);
        receiver.tell("go")?;
        Ok(Some(Tcp { receiver, sender, since: Instant::now() }))
    }
}

/// The time for handing over a plan; without a pace, a time for slow machines.
fn length(plan: &Plan) -> Duration {
    let paced = plan.period * plan.frames.len() as u32;
    if paced.is_zero() { THROUGHPUT } else { paced }
}

/// The processes of a flow.
struct Pair<'a> {
    flow: &'a Flow,
    receiver: Process,
    sender: Process,
    has_sent: bool,
}

impl Pair<'_> {
    fn finish(mut self, beside_bps: Option<f64>) -> Result<Arrived> {
        self.receiver.waits_for("all", GRACE.max(2 * self.flow.plan.deadline))?;
        let mut arrived = arrived(&self.receiver.results(PATIENCE)?)?;
        // A blocked sender does not answer: its CPU time is not known.
        if self.has_sent {
            arrived.cpu_ns += self::arrived(&self.sender.results(PATIENCE)?)?.cpu_ns;
        }
        Ok(Arrived { beside_bps, ..arrived })
    }
}

/// The processes of TCP beside an engine.
struct Tcp {
    receiver: Process,
    sender: Process,
    since: Instant,
}

impl Tcp {
    /// Bits per second that have come.
    fn finish(&mut self) -> Result<f64> {
        let lines = self.receiver.results(PATIENCE)?;
        let seconds = self.since.elapsed().as_secs_f64();
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
