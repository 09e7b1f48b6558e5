//! Compares the machine in the kernel with the theory: the same task sets, events, wake-ups and blockings, tick by
//! tick. `QFABRIC_SETS` sets the number of random sets of each kind (default 200), `QFABRIC_SEED` the first seed
//! (default 1).

mod behaviour;
mod draw;
mod figure_15;
mod hostile;
mod kernel;
mod reclaim;

use draw::{Drawn, Kind};
use kernel::{Kernel, config};
use qfabric_linux::abi::*;
use qfabric_sched::dwcs::{Choice, Decision, Machine, Network, Policy, TaskIndex, Wake};
use qfabric_types::{Instant, Share};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Number of decisions for each set.
const DECISIONS: u64 = 240;

/// Both machines, and the random events that both receive.
struct Pair<'a> {
    kernel: &'a mut Kernel,
    theory: Machine,
    drawn: Vec<Drawn>,
    kind: Kind,
    rng: ChaCha8Rng,
    seed: u64,
}

impl<'a> Pair<'a> {
    fn new(kernel: &'a mut Kernel, kind: Kind, seed: u64) -> Pair<'a> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let drawn = draw::tasks(&mut rng, kind);
        let tasks: Vec<_> = drawn.iter().map(Drawn::theory).collect();
        let mut theory = Machine::new(&tasks, Policy::Dwcs);
        kernel.reset();
        for (index, task) in drawn.iter().enumerate() {
            kernel.add(0, index as u32 + 1, task.kernel()).unwrap();
        }
        if let Some((num, den)) = kind.task_server.then(|| draw::rest(&drawn)).flatten() {
            theory = theory.with_task_server(Share::ONE);
            let y = 1 + drawn.iter().map(|task| task.y).max().unwrap();
            let ask = QF_ASK_READY | QF_ASK_TASK_SERVER;
            let server = qf_config { ask, rest_num: num, rest_den: den, ..config(1, 1, 0, y) };
            kernel.add(0, drawn.len() as u32 + 1, server).unwrap();
        }
        Pair { kernel, theory, drawn, kind, rng, seed }
    }

    /// Random events at `now`.
    fn disturb(&mut self, now: u64) {
        let index = self.rng.random_range(0..self.drawn.len());
        let (slot, task) = (index as u32 + 1, TaskIndex(index));
        if self.kind.events && self.theory.pending() < 200 && self.rng.random_bool(0.3) {
            let deadline = if self.rng.random_bool(0.4) { u64::MAX } else { now + self.rng.random_range(0..30) };
            self.theory.raise(task, Instant::new(deadline)).unwrap();
            self.kernel.command(QF_TEST_RAISE, 0, slot, now, deadline).unwrap();
        }
        if self.kind.blocking && self.rng.random_bool(0.3) {
            self.toggle(index, now);
        }
        if self.kind.network && self.rng.random_bool(0.05) {
            let state = self.rng.random_range(0..3);
            let network = [Network::Unknown, Network::Idle, Network::Busy][state];
            self.theory.set_network(network);
            self.kernel.command(QF_TEST_NETWORK, 0, 0, now, state as u64).unwrap();
        }
    }

    fn toggle(&mut self, index: usize, now: u64) {
        let (slot, task) = (index as u32 + 1, TaskIndex(index));
        if self.theory.is_ready(task) {
            self.theory.block(task, now);
            self.kernel.command(QF_TEST_BLOCK, 0, slot, now, 0).unwrap();
        } else {
            let wake = if self.drawn[index].aligned { Wake::Aligned } else { Wake::Now };
            self.theory.wake(task, now, wake);
            self.kernel.command(QF_TEST_WAKE, 0, slot, now, 0).unwrap();
        }
    }

    /// Runs both machines; every decision must be the same. The running time is charged before any event of the same
    /// moment; without an event it is charged with the next decision.
    fn run(&mut self) {
        let (mut now, mut used, mut decisions) = (0, 0, 0);
        while decisions < DECISIONS {
            decisions += 1;
            let theory = self.theory.decide(now);
            let kernel = self.kernel.decide(0, now, used).decision;
            self.same(&theory, &kernel, now);
            let horizon = self.theory.horizon(&theory).min(kernel.until_ns.saturating_sub(now));
            used = if self.rng.random_bool(0.5) { 1 } else { self.rng.random_range(1..=horizon.min(20)) };
            self.theory.account(&theory, used);
            now += used;
            if self.kind.stalls && self.rng.random_bool(0.05) {
                self.kernel.account(0, now, used);
                used = 0;
                now += self.rng.random_range(1..2_000);
            }
            if self.kind.events || self.kind.blocking || self.kind.network {
                self.kernel.account(0, now, used);
                used = 0;
                self.disturb(now);
            }
        }
        self.kernel.account(0, now, used);
        (0..self.drawn.len()).for_each(|index| self.same_state(index));
    }

    fn same(&self, theory: &Decision, kernel: &qf_decision, now: u64) {
        let (kind, slot) = match theory.run {
            Choice::Regular(task) => (QF_KIND_REGULAR, task.0 as u32 + 1),
            Choice::Extra(task) => (QF_KIND_EXTRA, task.0 as u32 + 1),
            Choice::BestEffort | Choice::TaskServer => (QF_KIND_BEST_EFFORT, 0),
        };
        let (rule, number) = theory.event.map_or((0, 0), |(rule, number)| (rule.number().into(), number));
        let server = theory.dwcs == Choice::TaskServer;
        let same = (kernel.kind, kernel.slot, kernel.rule, kernel.event_number) == (kind, slot, rule, number);
        assert!(
            same && (kernel.task_server != 0) == server,
            "seed {} at {now}: theory {theory:?}, kernel {kernel:?}, tasks {:#?}",
            self.seed,
            self.drawn
        );
    }

    fn same_state(&self, index: usize) {
        let (task, server) = (TaskIndex(index), self.kernel.server(index as u32 + 1));
        let (statistics, progress) = (self.theory.statistics(task), self.theory.progress(task));
        let theory = (
            [statistics.served, statistics.missed, statistics.violations, statistics.regular, statistics.extra],
            statistics.events,
            (self.theory.deadline(task), self.theory.left(task), progress.x, progress.y),
        );
        let kernel = (
            [server.served, server.missed, server.violations, server.used_ns, server.extra_ns],
            server.events,
            (server.deadline_ns, server.left_ns, server.x_now, server.y_now),
        );
        assert_eq!(theory, kernel, "seed {}, task {index} of {:#?}", self.seed, self.drawn);
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

fn agree(kind: Kind) {
    let (sets, first) = (number("QFABRIC_SETS", 200), number("QFABRIC_SEED", 1));
    println!("seeds {first} to {}: {kind:?}", first + sets - 1);
    let mut kernel = kernel::fresh();
    (first..first + sets).for_each(|seed| Pair::new(&mut kernel, kind, seed).run());
}

const PLAIN: Kind = Kind {
    tasks: 12,
    arrivals: false,
    blocking: false,
    events: false,
    network: false,
    task_server: false,
    stalls: false,
};

#[test]
fn tasks_alone_are_scheduled_as_the_theory_says() {
    agree(PLAIN);
}

#[test]
fn tasks_that_arrive_later_are_scheduled_as_the_theory_says() {
    agree(Kind { arrivals: true, ..PLAIN });
}

#[test]
fn tasks_that_block_and_wake_are_scheduled_as_the_theory_says() {
    agree(Kind { arrivals: true, blocking: true, ..PLAIN });
}

#[test]
fn events_are_delivered_as_the_theory_says() {
    agree(Kind { events: true, arrivals: true, ..PLAIN });
}

#[test]
fn the_task_server_is_scheduled_as_the_theory_says() {
    agree(Kind { events: true, task_server: true, tasks: 4, ..PLAIN });
}

#[test]
fn the_network_device_orders_equal_deadlines_as_the_theory_says() {
    agree(Kind { network: true, ..PLAIN });
}

#[test]
fn periods_lost_in_a_standstill_are_counted_as_the_theory_counts_them() {
    agree(Kind { stalls: true, blocking: true, ..PLAIN });
}

#[test]
fn everything_together_is_scheduled_as_the_theory_says() {
    agree(Kind { arrivals: true, blocking: true, events: true, network: true, stalls: true, ..PLAIN });
}

#[test]
fn hundreds_of_tasks_are_scheduled_as_the_theory_says() {
    agree(Kind { tasks: 300, arrivals: true, blocking: true, events: true, network: true, ..PLAIN });
}
