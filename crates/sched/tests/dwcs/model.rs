//! Compares the machine with the naive one, tick by tick, under random arrivals, blocks, wake-ups and events.

use proptest::prelude::*;
use qfabric_sched::dwcs::{Choice, Machine, Network, Policy, TaskIndex, Utilization, Wake};
use qfabric_types::{Instant, Share};

use crate::naive::{Naive, NaiveTask, Queue, Runs};
use crate::sets::{Numbers, numbers, tasks};

const TICKS: usize = 120;

/// A random input before a tick.
#[derive(Clone, Debug)]
enum Input {
    Nothing,
    Event { sink: usize, deadline: Option<u64> },
    Block(usize),
    Wake(usize, bool),
    Network(bool),
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        6 => Just(Input::Nothing),
        2 => (0usize..8, prop::option::of(0u64..12)).prop_map(|(sink, deadline)| Input::Event { sink, deadline }),
        1 => (0usize..8).prop_map(Input::Block),
        2 => (0usize..8, any::<bool>()).prop_map(|(task, aligned)| Input::Wake(task, aligned)),
        1 => any::<bool>().prop_map(Input::Network),
    ]
}

/// The two machines under comparison.
struct Machines {
    machine: Machine,
    naive: Naive,
    names: usize,
}

impl Machines {
    fn new(numbers: &[Numbers], server: bool) -> Self {
        let tasks = tasks(numbers);
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        let mut naive = Naive::new(numbers.iter().map(Numbers::naive).collect());
        if server && !Utilization::of_windows(&tasks).exceeds(Share::ONE) {
            machine = machine.with_task_server(Share::ONE);
            add_server(&mut naive);
        }
        Machines { machine, naive, names: numbers.len() }
    }

    fn apply(&mut self, t: u64, input: &Input) {
        match *input {
            Input::Nothing => {}
            Input::Event { sink, deadline } => {
                let (sink, until) = (sink % self.names, deadline.map_or(u64::MAX, |after| t + after));
                let number = self.machine.raise(TaskIndex(sink), Instant::new(until)).unwrap();
                self.naive.events.push((until, number, sink));
            }
            Input::Block(task) => {
                self.machine.block(TaskIndex(task % self.names), t);
                self.naive.block(task % self.names, t);
            }
            Input::Wake(task, aligned) => {
                let how = if aligned { Wake::Aligned } else { Wake::Now };
                self.machine.wake(TaskIndex(task % self.names), t, how);
                self.naive.wake(task % self.names, t, aligned);
            }
            Input::Network(busy) => {
                self.machine.set_network(if busy { Network::Busy } else { Network::Idle });
                self.naive.queue = if busy { Queue::Waiting } else { Queue::Empty };
            }
        }
    }

    fn agree(&mut self, t: u64) -> Result<(), TestCaseError> {
        let delivered = self.naive.delivered.len();
        let decision = self.machine.step();
        let runs = match decision.run {
            Choice::Regular(task) => Runs::Regular(task.0),
            Choice::Extra(task) => Runs::Extra(task.0),
            Choice::BestEffort | Choice::TaskServer => Runs::Nobody,
        };
        prop_assert_eq!(runs, self.naive.tick(t), "at {}: {:?}", t, decision);
        let rule = self.naive.delivered.get(delivered).copied();
        prop_assert_eq!(decision.event.map(|(rule, number)| (number, rule.number())), rule, "at {}", t);
        for (k, task) in self.naive.tasks.iter().take(self.names).enumerate() {
            let (k, progress) = (TaskIndex(k), self.machine.progress(TaskIndex(k)));
            let counts = self.machine.statistics(k);
            let here = (self.machine.deadline(k), self.machine.left(k), (progress.x, progress.y));
            prop_assert_eq!(here, (task.deadline, task.rem, task.current), "task {:?} at {}", k, t);
            let counted = (counts.served, counts.missed, counts.violations, self.machine.is_ready(k));
            prop_assert_eq!(counted, (task.served, task.missed, task.violations, !task.blocked));
        }
        prop_assert_eq!(self.machine.pending(), self.naive.events.len());
        Ok(())
    }
}

/// Computes U_r over a common denominator, the slow way.
fn add_server(naive: &mut Naive) {
    let den: u64 = naive.tasks.iter().map(|task| u64::from(task.window.1) * task.period).fold(1, lcm);
    let part = |task: &NaiveTask| {
        let (x, y) = task.window;
        u64::from(y - x) * task.service * (den / (u64::from(y) * task.period))
    };
    let num: u64 = naive.tasks.iter().map(part).sum();
    if num < den {
        let longest = naive.tasks.iter().map(|task| task.window.1).max().unwrap_or(0);
        let period = den.div_ceil(den - num);
        naive.tasks.push(NaiveTask::new(0, period, 1, (0, longest + 1), false));
        naive.server = Some((naive.tasks.len() - 1, den - num, den));
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn trees_and_lists_decide_alike(
        numbers in prop::collection::vec(numbers(9), 1..7),
        server: bool,
        inputs in prop::collection::vec(any_input(), TICKS),
    ) {
        let mut machines = Machines::new(&numbers, server);
        for (t, input) in (0..).zip(&inputs) {
            machines.apply(t, input);
            machines.agree(t)?;
        }
    }
}

/// A machine that decides at every tick and one that decides only when a decision ends have the same schedule.
#[test]
fn a_decision_holds_for_its_horizon() {
    proptest!(ProptestConfig::with_cases(150), |(numbers in prop::collection::vec(numbers(20), 1..7))| {
        let tasks = tasks(&numbers);
        let (mut ticks, mut jumps) = (Machine::new(&tasks, Policy::Dwcs), Machine::new(&tasks, Policy::Dwcs));
        while jumps.now() < 500 {
            let decision = jumps.decide(jumps.now());
            let holds = jumps.horizon(&decision).min(500 - jumps.now());
            jumps.account(&decision, holds);
            for _ in 0..holds {
                prop_assert_eq!(ticks.step().run, decision.run);
            }
        }
        for k in (0..tasks.len()).map(TaskIndex) {
            prop_assert_eq!(ticks.progress(k), jumps.progress(k));
        }
    });
}
