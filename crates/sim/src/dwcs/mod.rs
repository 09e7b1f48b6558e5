//! `qfabric sim dwcs`: tasks and events from files, tick by tick through [`qfabric_sched::dwcs::Machine`].
//!
//! One tick is the unit of time: preemption happens at ticks, and an event raised between two ticks is seen at the
//! later one. Source: 000 §2.4.1, §3.3.1; the file formats are those of `qfabric sim dwcs --help`.

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

/// Ticks that one run may have.
pub const MAX_TICKS: u64 = 10_000_000;

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// For how many ticks.
    pub ticks: u64,
    /// Who comes first.
    pub policy: Policy,
    /// Whether rule 5's task server takes part.
    pub task_server: bool,
    /// What the tasks and the task server may have of the processor.
    pub capacity: Share,
    /// What waits for the network, for Table 5.
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

/// Who had a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A task, within its period.
    Regular(u32),
    /// A task, beside its periods.
    Extra(u32),
    /// Nobody with a deadline.
    Free,
}

/// A period that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// When it ended.
    pub at: u64,
    /// Whose it was.
    pub task: u32,
    /// Whether the window did not allow it.
    pub violation: bool,
}

/// When an event's sink ran, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// In which tick.
    pub tick: u64,
    /// By which rule.
    pub rule: Rule,
}

/// What came of it. Tasks are numbered in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// One per tick.
    pub timeline: Vec<Tick>,
    /// One per task.
    pub tasks: Vec<Statistics>,
    /// One per event, in the order of the file; `None` where it never reached its sink.
    pub events: Vec<Option<Dispatch>>,
    /// The misses of the first [`MAX_DRAWN`] ticks.
    pub misses: Vec<Miss>,
    /// Events dropped because their deadline had passed.
    pub expired: u64,
}

/// Runs `set` with `events`.
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

/// Events in the order of their moments.
struct Feed<'a> {
    events: &'a [RaisedEvent],
    order: Vec<usize>,
    next: usize,
    /// Place in the file, by the machine's number.
    raised: Vec<usize>,
}

impl<'a> Feed<'a> {
    fn new(events: &'a [RaisedEvent]) -> Self {
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by_key(|&place| events[place].at);
        Feed { events, order, next: 0, raised: Vec::new() }
    }

    /// Raises what has happened by `tick`. One that finds the queue full is never dispatched.
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
