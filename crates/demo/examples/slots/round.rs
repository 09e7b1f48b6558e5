//! One round: players, neighbours and hogs under one mechanism.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_demo::children::ChildGuard;
use qfabric_demo::disturbance::{Counters, Surroundings};
use qfabric_demo::stats::Count;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::testing::Worker;
use qfabric_linux::{ApplyError, Deadline, DispatcherMechanism, Mechanism, clock, threads};
use qfabric_types::{AppId, DispatchRules, Nanos, Reclaiming, Reservation, ServerTerms, Setting, ThreadId};

use crate::player;

/// A process: a job of `work` in each `period`, and its reserved `service`; times in ms. `cpu` counts from the last one.
pub(crate) struct Terms {
    pub period: u64,
    pub service: u64,
    work: u64,
    /// Counts from the last CPU.
    cpu: u32,
}

const fn terms(period: u64, service: u64, work: u64, cpu: u32) -> Terms {
    Terms { period, service, work, cpu }
}

/// The players need 70 % of what they reserve.
pub(crate) const PLAYERS: [Terms; 6] = [
    terms(40, 10, 7, 0),
    terms(80, 20, 14, 0),
    terms(80, 20, 14, 0),
    terms(40, 10, 7, 1),
    terms(80, 20, 14, 1),
    terms(80, 20, 14, 1),
];
/// They reserve 1/8 of a CPU each, and use all time that they get.
pub(crate) const NEIGHBOURS: [Terms; 2] = [terms(80, 10, 0, 0), terms(80, 10, 0, 1)];
const HOGS: u32 = 1;
/// Attempts, 100 ms apart, to get bandwidth that other programs have booked.
const PATIENCE: usize = 50;
/// Length of a round, and the time between the reservations and the first release: a frame that lends slots, and one more.
const LENGTH_MS: u64 = 3_200;
const SETTLING: Nanos = Nanos::from_millis(300);

impl Terms {
    pub(crate) fn label(&self) -> String {
        format!("{} ms in {} ms", self.service, self.period)
    }

    /// With fewer CPUs than two, all processes are on one.
    fn cpu(&self) -> u32 {
        let online: Vec<u32> = CpuList::online().iter().collect();
        online[online.len().saturating_sub(1 + self.cpu as usize)]
    }

    fn jobs(&self) -> u64 {
        if self.work == 0 { 0 } else { LENGTH_MS / self.period }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Deadline,
    Dispatcher,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Plain, Kind::Deadline, Kind::Dispatcher];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Deadline => "deadline",
            Kind::Dispatcher => "dispatcher",
        }
    }
}

/// The result of one round.
pub(crate) struct Round {
    pub players: Vec<Count>,
    pub around: Surroundings,
}

impl Round {
    pub(crate) fn missed(&self) -> u64 {
        Count::sum(&self.players).misses
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.around.disturbance().is_some()
    }
}

struct Process {
    child: ChildGuard,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process and waits until both of its threads exist.
    fn start(terms: &Terms, is_pinned: bool) -> Result<Process> {
        let program = std::env::current_exe()?;
        let cpus = if is_pinned { terms.cpu().to_string() } else { CpuList::online().to_string() };
        let mut command = Command::new("taskset");
        command.args(["-c", &cpus]).arg(program).arg(player::ROLE);
        command.args([terms.period, terms.work, terms.jobs()].map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("taskset")?;
        let output = BufReader::new(child.stdout.take().context("its output is piped")?);
        let mut process = Process { child: ChildGuard::new(child), output };
        process.line().map(|_| process)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    fn tell(&mut self, text: &str) -> Result<()> {
        let input = self.child.child().stdin.as_mut().context("its input is piped")?;
        writeln!(input, "{text}").context("a player ended early")
    }

    fn threads(&self) -> Result<Vec<ThreadId>> {
        Ok(threads::list(self.child.id() as i32)?)
    }
}

/// The answer of SCHED_DEADLINE to a pinned player.
pub(crate) fn refusal_of_pinned() -> Result<String> {
    let process = Process::start(&PLAYERS[0], true)?;
    let thread = process.threads()?[0];
    let refused = Deadline::new().apply(&setting(thread, &PLAYERS[0], 2, 0)?);
    Ok(refused.map_or_else(|error| error.to_string(), |()| "granted: this host has one CPU".into()))
}

pub(crate) fn play(kind: Kind) -> Result<Round> {
    let before = Counters::read(&[])?;
    let cpus = CpuList::online().len() as u32;
    let hogs: Vec<Worker> = (0..HOGS * cpus).map(|_| Worker::burning()).collect();
    let all = || PLAYERS.iter().chain(&NEIGHBOURS);
    let mut processes: Vec<Process> =
        all().map(|terms| Process::start(terms, kind != Kind::Deadline)).collect::<Result<_>>()?;
    let mut mechanism = mechanism(kind)?;
    if let Some(mechanism) = &mut mechanism {
        for (number, (terms, process)) in all().zip(&processes).enumerate() {
            reserve(mechanism.as_mut(), kind, number as u64 + 1, terms, process)?;
        }
    }
    let begin = clock::now() + SETTLING;
    processes.iter_mut().try_for_each(|process| process.tell(&begin.get().to_string()))?;
    let players = PLAYERS.iter().zip(&mut processes).map(|(terms, process)| {
        let misses = process.line()?.trim().parse().context("a player ended early")?;
        Ok(Count { misses, jobs: terms.jobs() })
    });
    let players = players.collect::<Result<_>>()?;
    drop(mechanism); // before the neighbours are killed: a killed thread may stay booked
    drop((processes, hogs));
    let around = before.until(&Counters::read(&[])?); // the CPU time of ended children is our own
    Ok(Round { players, around })
}

fn mechanism(kind: Kind) -> Result<Option<Box<dyn Mechanism>>> {
    Ok(match kind {
        Kind::Plain => None,
        Kind::Deadline => Some(Box::new(Deadline::new())),
        Kind::Dispatcher => Some(Box::new(DispatcherMechanism::new(DispatchRules::default())?)),
    })
}

/// Both threads share the slots of the dispatcher; under SCHED_DEADLINE each has half of the service.
fn reserve(mechanism: &mut dyn Mechanism, kind: Kind, app: u64, terms: &Terms, process: &Process) -> Result<()> {
    let threads = process.threads()?;
    let (parts, group) = if kind == Kind::Dispatcher { (1, app) } else { (threads.len() as u64, 0) };
    for thread in threads {
        apply(mechanism, &setting(thread, terms, parts, group)?)?;
    }
    Ok(())
}

/// Tries again while other programs have booked the bandwidth.
fn apply(mechanism: &mut dyn Mechanism, setting: &Setting) -> Result<()> {
    for _ in 0..PATIENCE {
        match mechanism.apply(setting) {
            Err(ApplyError::Busy { .. }) => thread::sleep(Duration::from_millis(100)),
            other => return other.with_context(|| mechanism.name()),
        }
    }
    mechanism.apply(setting).with_context(|| mechanism.name())
}

/// A part of the service of a process; `group` 0: for this thread alone.
fn setting(thread: ThreadId, terms: &Terms, parts: u64, group: u64) -> Result<Setting> {
    let budget = Nanos::new(Nanos::from_millis(terms.service).get() / parts);
    let reservation = Some(Reservation::new(budget, Nanos::from_millis(terms.period))?);
    let terms = ServerTerms { group: (group > 0).then_some(AppId(group)), ..ServerTerms::default() };
    Ok(Setting { thread, reservation, reclaiming: Reclaiming::Hard, terms })
}
