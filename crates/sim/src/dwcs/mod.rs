//! `qfabric sim dwcs`: runs tasks and events from files, tick by tick, through [`qfabric_sched::dwcs::Machine`].
//!
//! The tick is the unit of time. Preemption happens only at ticks, and an event raised between two ticks is seen
//! at the later tick. Source: 000 §2.4.1, §3.3.1. `qfabric sim dwcs --help` describes the file formats.

mod draw;
mod files;
mod perfetto;

use qfabric_sched::dwcs::{Choice, Machine};
use qfabric_types::{Instant, Share};

pub use qfabric_sched::dwcs::{
    Guarantee, Network, Policy, Refusal, Rule, Shared, Statistics, TaskIndex, Utilization, Wording, admit,
    admit_with_task_server,
};

pub use draw::{MAX_DRAWN, svg};
pub use files::{MAX_EVENTS, MAX_TASKS, PARTS, RaisedEvent, Refused, TaskSet, events, tasks};
pub use perfetto::perfetto;

/// Largest number of ticks in one run.
pub const MAX_TICKS: u64 = 10_000_000;

/// The options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of ticks to run.
    pub ticks: u64,
    /// The scheduling policy.
    pub policy: Policy,
    /// Whether the task server of rule 5 takes part.
    pub task_server: bool,
    /// The part of the processor that the tasks and the task server may use.
    pub capacity: Share,
    /// The network model, for Table 5.
    pub network: Network,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ticks: 1_000,
            policy: Policy::Dwcs,
            task_server: false,
            capacity: Share::ONE,
            network: Network::Unknown,
        }
    }
}

/// The use of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A task runs within its period.
    Regular(u32),
    /// A task runs beyond the service of its periods.
    Extra(u32),
    /// No task runs.
    Free,
}

/// A missed period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Tick at which the period ended.
    pub at: u64,
    pub task: u32,
    /// Whether the window did not allow the miss.
    pub violation: bool,
}

/// The dispatch of an event to its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    pub tick: u64,
    /// The rule that caused the dispatch.
    pub rule: Rule,
}

/// The result of a run. Tasks are numbered in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// One entry per tick.
    pub timeline: Vec<Tick>,
    /// One entry per task.
    pub tasks: Vec<Statistics>,
    /// One entry per event, in the order of the file; `None` if the event never reached its sink.
    pub events: Vec<Option<Dispatch>>,
    /// The misses of the first [`MAX_DRAWN`] ticks.
    pub misses: Vec<Miss>,
    /// Number of events dropped because their deadline had passed.
    pub expired: u64,
}

pub fn run(set: &TaskSet, events: &[RaisedEvent], options: &Options) -> Output {
    let mut machine = Machine::new(set.tasks(), options.policy).with_event_parts(PARTS);
    if options.task_server {
        machine = machine.with_task_server(options.capacity);
    }
    machine.set_network(options.network);
    let mut feed = Feed::new(events);
    let mut output = Output { events: vec![None; events.len()], ..Output::default() };
    let mut seen = vec![Statistics::default(); set.len()];
    for tick in 0..options.ticks {
        feed.raise(&mut machine, tick);
        let decision = machine.decide(tick);
        note_misses(&machine, &mut seen, &mut output.misses);
        if let Some((rule, number)) = decision.event {
            output.events[feed.raised[number as usize]] = Some(Dispatch { tick, rule });
        }
        output.timeline.push(tick_of(decision.run));
        machine.account(&decision, 1);
    }
    machine.bring_to(options.ticks);
    note_misses(&machine, &mut seen, &mut output.misses);
    output.tasks = (0..set.len()).map(|task| machine.statistics(TaskIndex(task))).collect();
    output.expired = machine.expired();
    output
}

fn tick_of(choice: Choice) -> Tick {
    match choice {
        Choice::Regular(task) => Tick::Regular(task.0 as u32),
        Choice::Extra(task) => Tick::Extra(task.0 as u32),
        Choice::TaskServer | Choice::BestEffort => Tick::Free,
    }
}

fn note_misses(machine: &Machine, seen: &mut [Statistics], misses: &mut Vec<Miss>) {
    if machine.now() > MAX_DRAWN {
        return;
    }
    for (task, seen) in seen.iter_mut().enumerate() {
        let statistics = machine.statistics(TaskIndex(task));
        if statistics.missed > seen.missed {
            let violation = statistics.violations > seen.violations;
            misses.push(Miss { at: machine.now(), task: task as u32, violation });
        }
        *seen = statistics;
    }
}

/// Feeds events to the machine in the order of their times.
struct Feed<'a> {
    events: &'a [RaisedEvent],
    order: Vec<usize>,
    next: usize,
    /// Position in the file, indexed by the machine's number of the event.
    raised: Vec<usize>,
}

impl<'a> Feed<'a> {
    fn new(events: &'a [RaisedEvent]) -> Self {
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by_key(|&place| events[place].at);
        Feed { events, order, next: 0, raised: Vec::new() }
    }

    /// Raises the events up to `tick`. An event that finds the queue full is never dispatched.
    fn raise(&mut self, machine: &mut Machine, tick: u64) {
        while let Some(&place) = self.order.get(self.next) {
            let event = &self.events[place];
            if event.at > tick.saturating_mul(PARTS) {
                return;
            }
            if machine.raise(event.sink, event.deadline.map_or(Instant::NEVER, Instant::new)).is_ok() {
                self.raised.push(place);
            }
            self.next += 1;
        }
    }
}
