//! Admission test of DWCS: decides whether no window of a set of tasks can ever be violated.
//!
//! U = Σ(1 − x/y)·C/T at most the capacity is *necessary*: the windows alone need that much. It is not sufficient
//! (0010 has counterexamples). Each of these tests is sufficient; they are tried in this order:
//!
//! 1. ΣC/T at most the capacity: earliest deadline first then serves every period, and windows only break ties;
//! 2. every C is k, every T is n·k with the same n, and all tasks arrive together: West's theorem (000 §2.4.1 (b));
//! 3. an exact simulation that returns to an earlier state without a violation on the way.
//!
//! Test 1 holds for tasks that block and wake at any time. Tests 2 and 3 hold for tasks that always want their
//! service and arrive as stated. Test 3 models a capacity below one processor by services that are longer in
//! proportion, rounded up.

use std::fmt;

use qfabric_types::Share;
use qfabric_types::api::Problem;

use super::machine::{Machine, server_task};
use super::order::Policy;
use super::task::{MAX_TIME, Task, TaskIndex};
use super::utilization::Utilization;

/// Limit of a simulation: decisions, lost periods and inspected task states together. Takes some ten milliseconds.
const MAX_STEPS: u64 = 1 << 18;

/// The reason why no window can be violated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guarantee {
    /// Every period of every task is served: ΣC/T is at most the capacity.
    EveryPeriod {
        /// ΣC/T, in processors.
        services: f64,
    },
    /// Equal services in equal periods: U is at most the capacity.
    Uniform {
        /// U, in processors.
        utilization: f64,
    },
    /// The schedule repeats without a violation.
    Simulated {
        /// U, in processors.
        utilization: f64,
        /// Time after which the schedule repeats.
        cycle: u64,
    },
}

/// A task set without a guarantee, and the numbers that explain the reason. A refusal changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    pub reason: RefusalReason,
    /// U = Σ(1 − x/y)·C/T, in processors.
    pub utilization: f64,
    /// ΣC/T, in processors.
    pub services: f64,
    /// The share of the processor or link that can be promised.
    pub capacity: Share,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// U is above the capacity: no scheduler keeps these windows.
    OverCommitted,
    /// The simulation found a violation.
    Violated {
        task: TaskIndex,
        /// Time since the start of the machine.
        at: u64,
    },
    /// A service is longer than its period on that share of a processor.
    TooSlow { task: TaskIndex },
    /// The task server's attributes change with the events, and ΣC/T leaves no room for the longest of them.
    Changing,
    /// The schedule did not repeat within the bound of the simulation.
    Unproven {
        /// Steps of the simulation; 0 if the periods have no common multiple within reach.
        steps: u64,
    },
}

impl Refusal {
    fn new(reason: RefusalReason, tasks: &[Task], capacity: Share) -> Self {
        let (utilization, services) = (Utilization::of_windows(tasks), Utilization::of_services(tasks));
        Refusal { reason, utilization: utilization.as_f64(), services: services.as_f64(), capacity }
    }

    /// The next step, besides asking for less.
    fn remedy(&self) -> &'static str {
        match self.reason {
            RefusalReason::OverCommitted => "lengthen periods, shorten services, or allow more losses",
            RefusalReason::Violated { .. } => {
                "give all tasks the same service and period, or allow this task more losses"
            }
            RefusalReason::TooSlow { .. } => "shorten its service or lengthen its period",
            RefusalReason::Changing => "give all tasks a service of 1, or leave the task server out",
            RefusalReason::Unproven { .. } => "choose periods that divide each other",
        }
    }
}

/// The resource that the tasks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Time of a processor.
    Cpu,
    /// Time on a link.
    Link,
}

/// Formats the tasks and times of a refusal.
pub struct Wording<'a> {
    /// The name of a task.
    pub task: &'a dyn Fn(TaskIndex) -> String,
    /// Formats a time since the start of the machine.
    pub time: &'a dyn Fn(u64) -> String,
    pub shared: Shared,
}

impl Refusal {
    /// The reason alone, with tasks named by `name` and times as bare numbers.
    pub fn reason(&self, name: impl Fn(TaskIndex) -> String) -> String {
        self.describe(&name, &|time| time.to_string())
    }

    fn describe(&self, name: &dyn Fn(TaskIndex) -> String, time: &dyn Fn(u64) -> String) -> String {
        match self.reason {
            RefusalReason::OverCommitted => "no schedule keeps these windows".into(),
            RefusalReason::Violated { task, at } => {
                format!("task {} would violate its window at time {}", name(task), time(at))
            }
            RefusalReason::TooSlow { task } => format!("task {} cannot be served within its period", name(task)),
            RefusalReason::Changing => "the task server changes with the events, so no guarantee can be proven".into(),
            RefusalReason::Unproven { steps } => {
                format!("the schedule does not repeat within {steps} steps, so no guarantee can be proven")
            }
        }
    }

    /// The numbers and the reason, and the next step.
    pub fn problem(&self, wording: &Wording<'_>) -> Problem {
        let Refusal { utilization, services, capacity, .. } = self;
        let (utilization, services, capacity) = match wording.shared {
            Shared::Cpu => (format!("{utilization:.4} CPU"), format!("{services:.4} CPU"), capacity.to_string()),
            Shared::Link => {
                let percent = |part: f64| Share::from_f64(part).percent();
                (percent(*utilization), percent(*services), capacity.percent())
            }
        };
        let reason = self.describe(wording.task, wording.time);
        let message =
            format!("U = Σ(1 − x/y)·C/T = {utilization}, ΣC/T = {services}, {capacity} may be promised: {reason}");
        Problem::new("not_schedulable", message, format!("{}, or bring ΣC/T down to {capacity}", self.remedy()))
    }
}

/// Names tasks by their numbers.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wording = Wording { task: &|task| task.0.to_string(), time: &|time| time.to_string(), shared: Shared::Cpu };
        write!(f, "{}", self.problem(&wording))
    }
}

impl std::error::Error for Refusal {}

/// Decides whether no window of `tasks`, given in the order of their ids, can be violated on the share `capacity`
/// of a processor.
///
/// # Errors
/// [`Refusal`], with the numbers and the next step.
pub fn admit(tasks: &[Task], capacity: Share) -> Result<Guarantee, Refusal> {
    let (utilization, services) = (Utilization::of_windows(tasks), Utilization::of_services(tasks));
    if services.fits(capacity) {
        return Ok(Guarantee::EveryPeriod { services: services.as_f64() });
    }
    if !utilization.fits(capacity) {
        return Err(Refusal::new(RefusalReason::OverCommitted, tasks, capacity));
    }
    if capacity == Share::ONE && is_uniform(tasks) {
        return Ok(Guarantee::Uniform { utilization: utilization.as_f64() });
    }
    let slowed = slowed(tasks, capacity)?;
    prove(Machine::new(&slowed, Policy::Dwcs), tasks, capacity)
}

/// Like [`admit`], with the task server of rule 5 beside the tasks.
///
/// The attributes of the task server follow the events, which a simulation cannot predict. So a guarantee is given
/// only if ΣC/T including the task server's largest share fits, or if all services are 1 and the task server's
/// attributes never change.
///
/// # Errors
/// [`Refusal`], with the numbers and the next step.
pub fn admit_with_task_server(tasks: &[Task], capacity: Share) -> Result<Guarantee, Refusal> {
    let alone = admit(tasks, capacity)?;
    let Some(rest) = Utilization::of_windows(tasks).rest(capacity) else { return Ok(alone) };
    let with = |service: u64| [tasks, &[server_task(tasks, rest, service)]].concat();
    let fits = |service: u64| Utilization::of_services(&with(service)).fits(capacity);
    let mut services = tasks.iter().map(|task| task.service).chain([1]);
    if services.clone().all(fits) {
        return Ok(alone);
    }
    if capacity != Share::ONE || services.any(|service| service != 1) {
        return Err(Refusal::new(RefusalReason::Changing, tasks, capacity));
    }
    prove(Machine::new(tasks, Policy::Dwcs).with_task_server(capacity), &with(1), capacity)
}

/// All C = k, all T = nk, all arrivals equal.
fn is_uniform(tasks: &[Task]) -> bool {
    let like = |a: &Task, b: &Task| (a.period, a.service, a.arrival) == (b.period, b.service, b.arrival);
    tasks.iter().all(|task| like(task, &tasks[0]) && task.period % task.service == 0)
}

/// The tasks as they appear on a processor of which only the share `capacity` is available: longer services.
fn slowed(tasks: &[Task], capacity: Share) -> Result<Vec<Task>, Refusal> {
    let slowed = |(index, task): (usize, &Task)| {
        let service = (u128::from(task.service) * 1_000_000).div_ceil(capacity.ppm().max(1).into());
        let reason = RefusalReason::TooSlow { task: TaskIndex(index) };
        let refusal = || Refusal::new(reason, tasks, capacity);
        (service <= task.period.into()).then_some(Task { service: service as u64, ..*task }).ok_or_else(refusal)
    };
    tasks.iter().enumerate().map(slowed).collect()
}

/// Runs `machine` until its state at a multiple of all periods equals an earlier state.
fn prove(mut machine: Machine, tasks: &[Task], capacity: Share) -> Result<Guarantee, Refusal> {
    let refused = |reason| Refusal::new(reason, tasks, capacity);
    let common = common_multiple(tasks).ok_or_else(|| refused(RefusalReason::Unproven { steps: 0 }))?;
    let last_arrival = tasks.iter().map(Task::arrival).max().unwrap_or(0);
    let mut next = last_arrival.next_multiple_of(common).max(common);
    let mut seen = Seen::default();
    let mut steps = 0;
    while steps + machine.lost() < MAX_STEPS {
        steps += 1;
        if machine.now() == next {
            steps += tasks.len() as u64;
            if let Some(cycle) = seen.again(next, machine.state(next)) {
                return Ok(Guarantee::Simulated { utilization: Utilization::of_windows(tasks).as_f64(), cycle });
            }
            next += common;
        }
        let decision = machine.decide(machine.now());
        if let Some(task) = machine.first_violated() {
            return Err(refused(RefusalReason::Violated { task, at: machine.now() }));
        }
        machine.account(&decision, machine.horizon(&decision).min(next - machine.now()));
    }
    Err(refused(RefusalReason::Unproven { steps: MAX_STEPS }))
}

/// The hyper-period; `None` if two hyper-periods exceed the time range of a simulation.
fn common_multiple(tasks: &[Task]) -> Option<u64> {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let multiple = |all: u64, task: &Task| all.checked_mul(task.period / gcd(all, task.period));
    tasks.iter().try_fold(1, multiple).filter(|&all| all <= MAX_TIME / MAX_STEPS)
}

/// Brent's cycle detection: stores only the state at the last power of two.
#[derive(Default)]
struct Seen {
    kept: Option<(u64, Vec<u64>)>,
    left: u64,
    power: u64,
}

impl Seen {
    /// The time since `state` was the same. Call it once for each multiple of the periods, in order.
    fn again(&mut self, now: u64, state: Vec<u64>) -> Option<u64> {
        if let Some((then, kept)) = &self.kept
            && *kept == state
        {
            return Some(now - then);
        }
        if self.left == 0 {
            self.power = (2 * self.power).max(1);
            self.left = self.power;
            self.kept = Some((now, state));
        }
        self.left -= 1;
        None
    }
}
