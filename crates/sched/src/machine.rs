//! Simulates tasks on some CPUs: reservations run first, earliest deadline first, then tasks with a fixed priority;
//! other tasks share the rest by weight. Times in nanoseconds; work, budgets and rates are real numbers.
//!
//! Between two events every rate is constant, so the machine jumps from event to event: a job ends, a budget is
//! spent (noticed at the next tick, if one is configured, or when the task is preempted), a throttled server is
//! replenished, a lag ends, a CPU freezes or thaws. **Reclaiming** is GRUB as in Linux since 6.5: a running server
//! spends its budget at the rate `max{ U_i, U_max − U_inactive − U_extra } / U_max` of real time. U_max is
//! [`MachineConfig::reclaim_bound`], U_inactive is the bandwidth of the sleeping servers of its own run queue, and
//! `U_extra = U_max − U_fair − ΣU/m` ([`MachineConfig::fair_server`]). **IRIS**: when a CPU would idle, all servers that wait with a spent budget are brought
//! forward by the waiting time of the first of them, so that the first has its next budget at once (Marzario et al.
//! 2004).
//!
//! A task stays on the run queue on which it last ran. The m earliest deadlines run, each on its own CPU if that is
//! free. A CPU that the hypervisor has taken away ([`Steal`]) keeps its task: the task makes no progress, but the
//! time is charged to it. Not modelled: the cost of moving tasks between CPUs, and the kernel's servers for best
//! effort, which take at most 5 % of the time from tasks with a fixed priority.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};

use crate::steal::{Frozen, Steal};
use crate::{OverCommitted, Server, State, admit};

/// Default weight of a task without a reservation, and the weight of each hog: nice 0.
pub const WEIGHT: f64 = 1_024.0;

/// The configuration of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// m, the number of CPUs.
    pub cpus: usize,
    /// Number of best-effort tasks that always want to run.
    pub hogs: usize,
    /// Share of each CPU that may be reserved.
    pub bound: Share,
    /// U_max of reclaiming. Linux uses 95 %, even if a smaller share may be reserved.
    pub reclaim_bound: Share,
    /// Bandwidth of the kernel's server for fair tasks on each CPU, which reclaiming counts as reserved. Only its
    /// bandwidth is modelled: while fair tasks run beside reservations, it has nothing to do.
    pub fair_server: Share,
    /// Spent budgets are noticed at multiples of this; at once if it is zero.
    pub tick: Nanos,
    /// CPU time that the hypervisor takes away.
    pub steal: Steal,
}

impl Default for MachineConfig {
    /// One CPU, of which 95 % may be reserved as on Linux; budgets enforced exactly, no load.
    fn default() -> Self {
        let bound = Share::from_ppm(950_000);
        MachineConfig {
            cpus: 1,
            hogs: 0,
            bound,
            reclaim_bound: bound,
            fair_server: Share::ZERO,
            tick: Nanos::ZERO,
            steal: Steal::NONE,
        }
    }
}

/// A task of this machine; numbers ascend in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    pub task: TaskId,
    pub release: Instant,
    pub finish: Instant,
    /// s_k: the server's deadline at the end of the job; `None` without a reservation.
    pub virtual_finish: Option<Instant>,
    /// The cost as a thread's clock shows it: includes the time that was stolen while the job ran.
    pub cost: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    release: Instant,
    cost: Nanos,
    left_ns: f64,
    stolen_ns: f64,
}

#[derive(Clone, Debug)]
struct Task {
    jobs: VecDeque<Job>,
    server: Option<Server>,
    /// The CPU of its run queue, on which it last ran.
    cpu: usize,
    /// Has the CPU because of its reservation.
    runs: bool,
    /// Weight in the division of the time in which no reservation runs.
    weight: f64,
    /// Has a fixed priority: without a reservation it runs before all tasks that share by weight.
    fixed_priority: bool,
    /// The time at which the task last woke.
    woke: Instant,
    /// The time at which its last job ended.
    ended: Option<Instant>,
    /// Bandwidth of a reservation that the task gave up, and the time until which it counts.
    leaving: Option<(Share, Instant)>,
    /// Rate of progress until the next event, 0 to 1.
    speed: f64,
    /// Rate at which the server spends its budget.
    spending: f64,
}

impl Task {
    fn is_ready(&self) -> bool {
        !self.jobs.is_empty() && self.server.is_none_or(|server| server.state() == State::Ready)
    }
}

#[derive(Clone, Debug)]
pub struct Machine {
    config: MachineConfig,
    now: Instant,
    tasks: Vec<Task>,
    order: Vec<usize>,
    frozen: Vec<Frozen>,
}

/// Work or budget below this counts as zero: it comes from rounding.
const NOTHING_NS: f64 = 1e-3;

impl Machine {
    /// An idle machine at time zero.
    pub fn new(config: MachineConfig) -> Self {
        let frozen = (0..config.cpus).map(|cpu| Frozen::new(config.steal, cpu)).collect();
        Machine { config, now: Instant::ZERO, tasks: Vec::new(), order: Vec::new(), frozen }
    }

    /// Adds a task without work or reservation.
    pub fn spawn(&mut self) -> TaskId {
        let cpu = self.tasks.len() % self.config.cpus.max(1);
        self.tasks.push(Task {
            jobs: VecDeque::new(),
            server: None,
            cpu,
            runs: false,
            weight: WEIGHT,
            fixed_priority: false,
            woke: Instant::ZERO,
            ended: None,
            leaving: None,
            speed: 0.0,
            spending: 0.0,
        });
        TaskId(self.tasks.len() - 1)
    }

    /// Sets the weight that applies while the task has no reservation.
    pub fn set_weight(&mut self, task: TaskId, weight: f64) {
        self.tasks[task.0].weight = weight;
    }

    /// Gives the task a fixed priority (SCHED_FIFO) while it has no reservation. All such tasks have the same
    /// priority: a task that has a CPU keeps it until its work ends, and the task that woke first is next.
    pub fn set_fixed_priority(&mut self, task: TaskId) {
        self.tasks[task.0].fixed_priority = true;
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// The server of a task, if the task has a reservation.
    pub fn server(&self, task: TaskId) -> Option<&Server> {
        self.tasks[task.0].server.as_ref()
    }

    /// Number of jobs of a task that have not ended.
    pub fn backlog(&self, task: TaskId) -> usize {
        self.tasks[task.0].jobs.len()
    }

    /// Σ of the reserved bandwidth; does not include reservations that were given up.
    pub fn reserved(&self) -> Share {
        self.tasks.iter().filter_map(|task| task.server.map(|server| server.share())).sum()
    }

    /// Releases a job now. It waits behind earlier jobs of its task.
    pub fn release(&mut self, task: TaskId, cost: Nanos) {
        self.begin(task, self.now, cost);
    }

    /// Like [`Machine::release`], for a job that was released at `release` and that its task begins only now.
    pub fn begin(&mut self, task: TaskId, release: Instant, cost: Nanos) {
        let now = self.now;
        let task = &mut self.tasks[task.0];
        // A task that begins its next job at once has not slept, and keeps its place.
        if task.jobs.is_empty() && task.ended != Some(now) {
            task.woke = now;
        }
        task.jobs.push_back(Job { release, cost, left_ns: cost.as_f64(), stolen_ns: 0.0 });
        if let Some(server) = &mut task.server {
            server.wake(now);
        }
    }

    /// Gives a task a reservation, changes it, or removes it.
    ///
    /// # Errors
    /// [`OverCommitted`] if the sum would exceed the bound; the old reservation stays in force (Linux: EBUSY).
    pub fn reserve(&mut self, task: TaskId, wanted: Option<(Reservation, Reclaiming)>) -> Result<(), OverCommitted> {
        let now = self.now;
        if let Some((reservation, mode)) = wanted {
            self.check(task, reservation.share())?;
            let task = &mut self.tasks[task.0];
            match &mut task.server {
                Some(server) => server.change(reservation, mode, now),
                None => {
                    let mut server = Server::new(reservation, mode);
                    if !task.jobs.is_empty() {
                        server.wake(now);
                    }
                    task.server = Some(server);
                }
            }
        } else if let Some(server) = self.tasks[task.0].server.take() {
            self.tasks[task.0].leaving = Some((server.share(), server.deadline()));
        }
        Ok(())
    }

    fn check(&self, asking: TaskId, asked: Share) -> Result<(), OverCommitted> {
        let bound = Share::from_ppm(self.config.bound.ppm() * self.config.cpus as u32);
        let held = |(i, task): (usize, &Task)| {
            let server = task.server.filter(|_| i != asking.0).map_or(Share::ZERO, |server| server.share());
            let leaving = task.leaving.filter(|&(_, until)| until > self.now).map_or(Share::ZERO, |(share, _)| share);
            server + leaving
        };
        admit(bound, self.tasks.iter().enumerate().map(held), asked)
    }

    /// Runs until `to`, or until the next job ends. Call it again until it returns `None`; the time is then `to`.
    pub fn run_until(&mut self, to: Instant) -> Option<Finished> {
        while self.now < to || self.has_finished().is_some() {
            if let Some(finished) = self.take_finished() {
                return Some(finished);
            }
            self.dispatch();
            let next = self.next_event().min(to);
            self.pass(next);
        }
        None
    }

    fn has_finished(&self) -> Option<usize> {
        self.tasks.iter().position(|task| task.jobs.front().is_some_and(|job| job.left_ns <= NOTHING_NS))
    }

    fn take_finished(&mut self) -> Option<Finished> {
        let index = self.has_finished()?;
        let now = self.now;
        let task = &mut self.tasks[index];
        let job = task.jobs.pop_front()?;
        task.ended = Some(now);
        let virtual_finish = task.server.map(|server| server.deadline());
        if let (true, Some(server)) = (task.jobs.is_empty(), &mut task.server) {
            server.sleep(now);
        }
        let cost = job.cost + Nanos::from_f64(job.stolen_ns);
        Some(Finished { task: TaskId(index), release: job.release, finish: now, virtual_finish, cost })
    }

    /// Decides which tasks run, at which rates, and how fast they spend their budgets.
    fn dispatch(&mut self) {
        let now = self.now;
        for task in &mut self.tasks {
            (task.speed, task.spending) = (0.0, 0.0);
            if let Some(server) = &mut task.server {
                server.on_time(now);
            }
        }
        self.frozen.iter_mut().for_each(|frozen| frozen.on_time(now));
        let chosen = self.choose();
        self.preempt_others(&chosen);
        self.settle(&chosen);
        for &i in &chosen {
            self.tasks[i].spending = self.spending_of(i);
            self.tasks[i].speed = if self.frozen[self.tasks[i].cpu].is_now() { 0.0 } else { 1.0 };
        }
        let free = (0..self.config.cpus).filter(|&cpu| !self.frozen[cpu].is_now() && !self.is_taken(cpu)).count();
        self.share_the_rest(free);
        self.order = chosen;
    }

    fn is_taken(&self, cpu: usize) -> bool {
        self.tasks.iter().any(|task| task.runs && task.cpu == cpu)
    }

    /// The ready servers that get a CPU: first those that a frozen CPU holds, then the earliest deadlines.
    fn choose(&mut self) -> Vec<usize> {
        let mut order = std::mem::take(&mut self.order);
        let (mut kept, mut thawed) = self.find_ready(&mut order);
        while order.len() - kept < thawed && self.use_idle_time() {
            (kept, thawed) = self.find_ready(&mut order);
        }
        let deadline = |&i: &usize| (self.tasks[i].server.map(|server| server.deadline()), !self.tasks[i].runs);
        order[kept..].sort_by_key(deadline);
        order.truncate(kept + thawed);
        order
    }

    /// A task that loses the CPU is examined: a spent budget is noticed then.
    fn preempt_others(&mut self, chosen: &[usize]) {
        let now = self.now;
        for (i, task) in self.tasks.iter_mut().enumerate() {
            if !task.runs || chosen.contains(&i) {
                continue;
            }
            task.runs = false;
            if let Some(server) = &mut task.server
                && server.state() == State::Ready
                && server.budget_ns() <= 0.0
            {
                server.exhaust(now);
            }
        }
    }

    /// Keeps each task on its CPU if that is free, and moves it to another CPU otherwise.
    fn settle(&mut self, chosen: &[usize]) {
        for &i in chosen {
            if !self.tasks[i].runs {
                let home = self.tasks[i].cpu;
                let can_have = |&cpu: &usize| !self.is_taken(cpu) && !self.frozen[cpu].is_now();
                let cpu = std::iter::once(home).chain(0..self.config.cpus).find(can_have);
                self.tasks[i].cpu = cpu.unwrap_or(home);
                self.tasks[i].runs = true;
            }
        }
    }

    /// Collects the tasks that a frozen CPU holds, then the other ready tasks. Returns the number of the former,
    /// and the number of CPUs for the latter.
    fn find_ready(&self, order: &mut Vec<usize>) -> (usize, usize) {
        let held = |task: &Task| task.runs && self.frozen[task.cpu].is_now();
        let ready = |&i: &usize| self.tasks[i].server.is_some() && self.tasks[i].is_ready();
        order.clear();
        order.extend((0..self.tasks.len()).filter(ready).filter(|&i| held(&self.tasks[i])));
        let kept = order.len();
        order.extend((0..self.tasks.len()).filter(ready).filter(|&i| !held(&self.tasks[i])));
        (kept, self.frozen.iter().filter(|frozen| !frozen.is_now()).count())
    }

    /// Called when a CPU would idle: replenishes the first server that waits for idle time. Returns whether there
    /// was one.
    fn use_idle_time(&mut self) -> bool {
        let now = self.now;
        let waiting = |task: &Task| task.server.filter(|server| !task.jobs.is_empty() && server.wants_idle_time());
        let Some(first) = self.tasks.iter().filter_map(|task| Some(waiting(task)?.deadline())).min() else {
            return false;
        };
        let (mut replenished, time) = (false, first.since(now));
        for task in &mut self.tasks {
            if waiting(task).is_none() {
                continue;
            }
            let Some(server) = &mut task.server else { continue };
            server.bring_forward(time);
            if server.deadline() <= now {
                server.replenish(now);
                replenished = true;
            }
        }
        replenished
    }

    /// Budget that a running server spends per unit of real time.
    fn spending_of(&self, task: usize) -> f64 {
        let Some(server) = self.tasks[task].server.filter(|server| server.mode() == Reclaiming::Grub) else {
            return 1.0;
        };
        let (m, most) = (self.config.cpus as f64, self.config.reclaim_bound.as_f64());
        let share = |task: &Task| task.server.map_or(0.0, |server| server.share().as_f64());
        let total: f64 = self.tasks.iter().map(share).sum();
        let sleeps =
            |other: &&Task| other.cpu == self.tasks[task].cpu && other.server.is_some_and(|server| !server.is_active());
        let inactive: f64 = self.tasks.iter().filter(sleeps).map(share).sum();
        let extra = most - self.config.fair_server.as_f64() - total / m;
        server.share().as_f64().max(most - inactive - extra) / most
    }

    /// Gives the CPUs on which no reservation runs to the tasks with a fixed priority, and divides the others among
    /// the tasks without one.
    fn share_the_rest(&mut self, cpus: usize) {
        let waits = |i: &usize| {
            let task = &self.tasks[*i];
            task.fixed_priority && task.server.is_none() && task.is_ready()
        };
        let mut fixed: Vec<usize> = (0..self.tasks.len()).filter(waits).collect();
        fixed.sort_by_key(|&i| self.tasks[i].woke);
        fixed.truncate(cpus);
        fixed.iter().for_each(|&i| self.tasks[i].speed = 1.0);
        self.share_by_weight(cpus - fixed.len());
    }

    /// Divides these CPUs by weight among the tasks without reservation and priority, hogs included; a task gets at
    /// most one CPU.
    fn share_by_weight(&mut self, cpus: usize) {
        let (mut free, mut weights) = (cpus as f64, self.config.hogs as f64 * WEIGHT);
        let fair = |task: &Task| task.server.is_none() && !task.fixed_priority && task.is_ready();
        weights += self.tasks.iter().filter(|task| fair(task)).map(|task| task.weight).sum::<f64>();
        loop {
            let full = |task: &&mut Task| fair(task) && task.speed == 0.0 && task.weight * free >= weights;
            let Some(task) = self.tasks.iter_mut().find(full).filter(|_| free >= 1.0) else { break };
            task.speed = 1.0;
            (free, weights) = (free - 1.0, weights - task.weight);
        }
        let rest = |task: &&mut Task| fair(task) && task.speed == 0.0;
        self.tasks.iter_mut().filter(rest).for_each(|task| task.speed = (free * task.weight / weights).min(1.0));
    }

    fn next_event(&self) -> Instant {
        let tasks = self.tasks.iter().map(|task| self.event_of(task)).min().unwrap_or(Instant::NEVER);
        self.frozen.iter().map(Frozen::next).fold(tasks, Instant::min)
    }

    fn event_of(&self, task: &Task) -> Instant {
        let after = |ns: f64| self.now + Nanos::new((ns.ceil() as u64).max(1));
        let ends = match task.jobs.front() {
            Some(job) if task.speed > 0.0 => after(job.left_ns / task.speed),
            _ => Instant::NEVER,
        };
        let Some(server) = task.server else { return ends };
        let server_event = match server.state() {
            State::Lagging(until) => until,
            State::Throttled => server.recharge_at().max(self.now + Nanos::new(1)),
            // A frozen CPU does not notice a spent budget.
            State::Ready if task.spending > 0.0 && task.speed > 0.0 => {
                self.noticed(after(server.budget_ns().max(0.0) / task.spending))
            }
            _ => Instant::NEVER,
        };
        ends.min(server_event)
    }

    /// The first tick at or after `time`.
    fn noticed(&self, time: Instant) -> Instant {
        match self.config.tick.get() {
            0 => time,
            tick => Instant::new(time.get().div_ceil(tick) * tick),
        }
    }

    /// Advances to the next event and handles it.
    fn pass(&mut self, to: Instant) {
        let passed_ns = to.since(self.now).as_f64();
        self.now = to;
        for at in 0..self.tasks.len() {
            let ticked = self.noticed(to) == to;
            let task = &mut self.tasks[at];
            let stolen = task.runs && task.speed == 0.0;
            if let Some(job) = task.jobs.front_mut() {
                job.left_ns -= passed_ns * task.speed;
                job.stolen_ns += if stolen { passed_ns } else { 0.0 };
            }
            let ended = task.jobs.front().is_some_and(|job| job.left_ns <= NOTHING_NS);
            let Some(server) = &mut task.server else { continue };
            server.spend(passed_ns * task.spending);
            match server.state() {
                State::Throttled if server.recharge_at() <= to => Self::replenish(server, to, task.jobs.is_empty()),
                // A job that ends exactly when the budget is spent still ends in this period.
                State::Ready
                    if server.budget_ns() <= NOTHING_NS && ticked && !stolen && !(ended && task.jobs.len() == 1) =>
                {
                    server.spend(server.budget_ns().max(0.0));
                    server.exhaust(to);
                }
                _ => (),
            }
        }
    }

    fn replenish(server: &mut Server, now: Instant, idle: bool) {
        server.replenish(now);
        if idle {
            server.sleep(now);
        }
    }
}
