//! The conductor: in each round all contestants take turns, in a different order each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::contestant::{Contestant, start_hogs};
use crate::flow::STREAM;
use crate::site::{Policy, Site};
use crate::threads::{Cost, Look};

/// Contestants of the one-way flows: throughput, rate, cost of submission.
pub(crate) const FLOWS: [Contestant; 4] =
    [Contestant::Qfabric, Contestant::Floor, Contestant::Zenoh, Contestant::ZenohTls];

/// Conditions of the round trips: whether each CPU has a busy loop, and the policy of the applications.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    pub name: &'static str,
    pub is_busy: bool,
    pub policy: Policy,
}

impl Condition {
    const fn new(name: &'static str, is_busy: bool, policy: Policy) -> Condition {
        Condition { name, is_busy, policy }
    }

    /// Name of the condition with the same policy, but without busy loops.
    pub(crate) fn idle(&self) -> &'static str {
        CONDITIONS.iter().find(|other| !other.is_busy && other.policy == self.policy).map_or("idle", |other| other.name)
    }
}

pub(crate) const CONDITIONS: [Condition; 4] = [
    Condition::new("idle", false, Policy::Fair),
    Condition::new("busy", true, Policy::Fair),
    Condition::new("idle, SCHED_FIFO", false, Policy::Fifo),
    Condition::new("busy, SCHED_FIFO", true, Policy::Fifo),
];

/// A part of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// Round trips of the contestants.
    Trips,
    /// Throughput, a fixed rate and the cost of submission.
    Flows,
}

/// One number of one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    pub round: usize,
    pub experiment: &'static str,
    pub contestant: &'static str,
    pub metric: &'static str,
    pub value: f64,
}

/// State of a run.
pub(crate) struct Run {
    pub site: Site,
    pub trips: usize,
    pub contestants: Vec<Contestant>,
    /// The part that is measured; `None`: all.
    pub only: Option<Only>,
    pub stop: Arc<AtomicBool>,
    pub records: Vec<Record>,
    /// Whether the costs of threads are measured, and these costs.
    pub has_threads: bool,
    pub costs: Vec<Cost>,
    /// CPU time that the hypervisor took in each round, percent.
    pub stolen: Vec<f64>,
    /// Failed measurements: round, condition, name, reason.
    pub failures: Vec<String>,
    /// Measurements so far.
    pub measured: usize,
}

impl Run {
    /// Round trips of all contestants under all conditions, then flows.
    pub(crate) fn round(&mut self, round: usize) -> Result<()> {
        let before = Cpu::now()?;
        if self.only != Some(Only::Flows) {
            self.round_trips(round)?;
        }
        if self.only != Some(Only::Trips) {
            let mut all = FLOWS;
            all.rotate_left(round % FLOWS.len());
            all.iter().try_for_each(|who| self.flows(round, *who))?;
        }
        let stolen = before.stolen_percent(&Cpu::now()?);
        self.stolen.push(stolen);
        Ok(())
    }

    fn round_trips(&mut self, round: usize) -> Result<()> {
        let mut order = self.contestants.clone();
        order.rotate_left(round % self.contestants.len());
        for condition in CONDITIONS {
            eprintln!("round {}: {}", round + 1, condition.name);
            let _hogs = if condition.is_busy { start_hogs()? } else { Vec::new() };
            for contestant in &order {
                self.round_trip(round, condition, *contestant)?;
            }
        }
        Ok(())
    }

    fn round_trip(&mut self, round: usize, condition: Condition, who: Contestant) -> Result<()> {
        let (tag, Condition { name, policy, .. }) = (self.next()?, condition);
        eprintln!("  {}", who.name());
        match who.round_trip(&self.site, policy, self.trips, &tag) {
            // One way is half of a round trip.
            Ok([half, most]) => self.note(round, name, who, &[("p50", half / 2.0), ("p99", most / 2.0)]),
            Err(error) if who.is_rival() => {
                let failure = format!("round {}, {name}, {}: {error:#}", round + 1, who.name());
                eprintln!("  {failure}");
                self.failures.push(failure);
            }
            Err(error) => return Err(error).context(who.name()),
        }
        Ok(())
    }

    fn flows(&mut self, round: usize, who: Contestant) -> Result<()> {
        eprintln!("round {}: throughput, rate, submission: {}", round + 1, who.name());
        let Flow { sent, events, time, .. } = self.flow(round, who, "stream", "stream")?;
        let megabytes = (events - 1.0).max(0.0) * STREAM as f64 / time.max(1e-9) / 1e6;
        self.note(round, "stream", who, &[("MB/s", megabytes), ("sent", sent), ("lost", sent - events)]);
        let Flow { sent, events, submitting, .. } = self.flow(round, who, "rate", "bulk")?;
        let rate = [("events/s", sent / submitting), ("sent", sent), ("delivered", events), ("lost", sent - events)];
        self.note(round, "rate", who, &rate);
        let tag = self.next()?;
        let mut flow = who.start_flow(&self.site, "submit", "bulk", &tag)?;
        let [together, alone] = flow.source.numbers()?;
        self.note(round, "submission", who, &[("together", together), ("alone", alone)]);
        Ok(())
    }

    fn flow(&mut self, round: usize, who: Contestant, experiment: &'static str, topic: &str) -> Result<Flow> {
        let tag = self.next()?;
        let mut flow = who.start_flow(&self.site, experiment, topic, &tag)?;
        let before = self.has_threads.then(|| Look::at(&flow.processes(&self.site)));
        let [sent, submitting] = flow.source.numbers()?;
        if let Some(before) = before {
            let shares = Look::at(&flow.processes(&self.site)).since(&before, sent);
            let contestant = who.name();
            self.costs.extend(shares.into_iter().map(|share| Cost { round, experiment, contestant, share }));
        }
        // Waits for events on their way.
        thread::sleep(Duration::from_secs(1));
        flow.drain.ask()?;
        let [events, time] = flow.drain.numbers()?;
        Ok(Flow { sent, submitting, events, time })
    }

    fn note(&mut self, round: usize, experiment: &'static str, who: Contestant, all: &[(&'static str, f64)]) {
        let contestant = who.name();
        let record =
            |(metric, value): &(&'static str, f64)| Record { round, experiment, contestant, metric, value: *value };
        self.records.extend(all.iter().map(record));
    }

    /// Name of the next measurement; fails if the user wants to stop.
    fn next(&mut self) -> Result<String> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        self.measured += 1;
        Ok(self.measured.to_string())
    }
}

/// Result of one flow: events sent and received, and the seconds of each.
struct Flow {
    sent: f64,
    submitting: f64,
    events: f64,
    time: f64,
}

/// CPU time of the machine, in ticks.
struct Cpu {
    all: u64,
    stolen: u64,
}

impl Cpu {
    fn now() -> Result<Cpu> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        // The last two columns, of guests, are contained in the first two.
        Ok(Cpu { all: ticks.iter().take(8).sum(), stolen: ticks.get(7).copied().unwrap_or(0) })
    }

    fn stolen_percent(&self, later: &Cpu) -> f64 {
        100.0 * (later.stolen - self.stolen) as f64 / (later.all - self.all).max(1) as f64
    }
}
