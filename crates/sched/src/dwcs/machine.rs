//! One processor under DWCS: makes a decision at a given time, then accounts for the time that was given.
//!
//! ```text
//!              release (d − T)                served: rule a, d += T
//!   waiting ────────────────────▶ released ───────────────────────────▶ waiting
//!      ▲                           │    ▲ d passes: rule b, d += T           │
//!      └── extra service, if ──────┘    └────┘                               │ block
//!          work-conserving                                     blocked ◀─────┘ wake: 0010
//! ```
//! 1. *Turnover*: a task whose deadline came without its service loses its period.
//! 2. *Pick*: the first released task; if there is none, the first served task that is work-conserving; else best
//!    effort. The rules of [`super::events`] may revise the choice.
//! 3. *Account* for the time that was given.
//!
//! Source: 000 §2.4.1; the reason for the order in step 2: 0010.
//!
//! A decision costs O(log n), by trees of winners, and allocates nothing.

use qfabric_types::Share;

use super::events::{Events, Rule};
use super::order::{MAX_TASKS, Network, Order, Policy, rank_of, timed};
use super::task::{Slot, Statistics, Task, TaskIndex, Wake};
use super::tournament::{ABSENT, Tournament};
use super::utilization::{Rest, Utilization};
use super::window::{Progress, Span};

/// The task that gets the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A task, in a period in which it was not served yet.
    Regular(TaskIndex),
    /// A task beside its periods: neither its window nor its deadline moves.
    Extra(TaskIndex),
    /// The task server of rule 5. DWCS may choose it, but it never runs.
    TaskServer,
    /// No task with a deadline.
    BestEffort,
}

/// A decision and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at: u64,
    /// The choice of DWCS.
    pub dwcs: Choice,
    /// The choice after the rules of events, which runs.
    pub run: Choice,
    /// The rule that applied, and the event that it delivered (the number from [`Machine::raise`]).
    pub event: Option<(Rule, u64)>,
}

/// Tasks and the processor they share. Times in the caller's unit.
#[derive(Debug)]
pub struct Machine {
    /// By rank; the task server, if there is one, is the last.
    pub(super) slots: Vec<Slot>,
    /// Rank by index, index by rank.
    ranks: Vec<u32>,
    indices: Vec<u32>,
    pub(super) order: Order,
    now: u64,
    /// Released and not served, in the order of the policy.
    released: Tournament,
    /// Served, or not arrived, by their release.
    waiting: Tournament,
    /// Served and work-conserving, in the order of the policy; only if there are such tasks.
    surplus: Option<Tournament>,
    /// Released, by deadline; only if the policy does not order by deadline first.
    due: Option<Tournament>,
    pub(super) events: Events,
    /// The share for the task server of rule 5; its slot is the last.
    server: Option<Rest>,
    /// Periods lost and windows violated of all tasks, including the task server.
    lost: u64,
    violations: u64,
}

impl Machine {
    /// A machine at time 0 for `tasks`, given in the order of their ids, all ready.
    ///
    /// # Panics
    /// If there are 4,194,303 tasks or more.
    pub fn new(tasks: &[Task], policy: Policy) -> Self {
        assert!(tasks.len() < MAX_TASKS, "{} tasks; the limit is {MAX_TASKS} (exclusive)", tasks.len());
        let mut by_rank: Vec<u32> = (0..tasks.len() as u32).collect();
        by_rank.sort_by_key(|&index| tasks[index as usize].arrival);
        let mut ranks = vec![0; tasks.len()];
        by_rank.iter().enumerate().for_each(|(rank, &index)| ranks[index as usize] = rank as u32);
        let slots = by_rank.iter().enumerate().map(|(rank, &index)| Slot::new(tasks[index as usize], rank as u32));
        let mut machine = Machine {
            slots: slots.collect(),
            ranks,
            indices: by_rank,
            order: Order { policy, network: Network::default() },
            now: 0,
            released: Tournament::new(0),
            waiting: Tournament::new(0),
            surplus: None,
            due: None,
            events: Events::default(),
            server: None,
            lost: 0,
            violations: 0,
        };
        machine.build();
        machine
    }

    /// Adds the task server of rule 5 for the share of `capacity` that the windows leave; adds none if they leave
    /// no share.
    pub fn with_task_server(mut self, capacity: Share) -> Self {
        let tasks: Vec<Task> = self.slots.iter().map(|slot| slot.task).collect();
        if let Some(rest) = Utilization::of_windows(&tasks).rest(capacity) {
            let rank = self.slots.len() as u32;
            self.slots.push(Slot::new(server_task(&tasks, rest, 1), rank));
            self.server = Some(rest);
            self.build();
        }
        self
    }

    /// Sets the time unit of event deadlines: `parts` of the machine's unit instead of whole ones.
    pub fn with_event_parts(mut self, parts: u64) -> Self {
        self.events.parts = parts.max(1);
        self
    }

    /// Fills the trees. Later calls change them leaf by leaf.
    fn build(&mut self) {
        let leaves = self.slots.len();
        let any_surplus = self.slots.iter().any(|slot| slot.task.work_conserving);
        self.released = Tournament::new(leaves);
        self.waiting = Tournament::new(leaves);
        self.surplus = any_surplus.then(|| Tournament::new(leaves));
        self.due = (self.order.policy == Policy::Rm).then(|| Tournament::new(leaves));
        (0..leaves).for_each(|rank| self.place(rank));
    }

    /// The decision at `now`. `now` must not be before the last decision or its account.
    pub fn decide(&mut self, now: u64) -> Decision {
        self.bring_to(now);
        let dwcs = self.pick();
        self.revise(dwcs)
    }

    /// Accounts for `used` time that was given according to `decision`, from the time of the decision on. `used` is
    /// at most [`Machine::horizon`]; service beyond C is lost.
    pub fn account(&mut self, decision: &Decision, used: u64) {
        self.now = self.now.max(decision.at + used);
        match decision.run {
            Choice::Regular(task) => self.serve(self.rank(task), used),
            Choice::Extra(task) => {
                let rank = self.rank(task);
                self.slots[rank].statistics.extra += used;
            }
            Choice::BestEffort | Choice::TaskServer => {}
        }
        if decision.dwcs == Choice::TaskServer {
            self.serve(self.slots.len() - 1, used);
        }
    }

    /// The time for which `decision` holds unless a task blocks or wakes or an event is raised.
    pub fn horizon(&self, decision: &Decision) -> u64 {
        let until_release = self.waiting.first().time.saturating_sub(decision.at);
        let mut left = until_release;
        if let Choice::Regular(task) = decision.run {
            let slot = &self.slots[self.rank(task)];
            left = left.min(slot.left).min(slot.deadline - decision.at);
        }
        if decision.dwcs == Choice::TaskServer {
            let server = &self.slots[self.slots.len() - 1];
            left = left.min(server.left).min(server.deadline - decision.at);
        }
        left.max(1)
    }

    /// Advances by one unit of time: a decision and its account.
    pub fn step(&mut self) -> Decision {
        let decision = self.decide(self.now);
        self.account(&decision, 1);
        decision
    }

    /// `task` blocks at `now`.
    pub fn block(&mut self, task: TaskIndex, now: u64) {
        self.bring_to(now);
        let rank = self.rank(task);
        let slot = &mut self.slots[rank];
        if slot.ready {
            slot.owed = slot.released(now);
            slot.ready = false;
            self.place(rank);
        }
    }

    /// `task` is ready again at `now`. It keeps its period if the rest of the period suffices for the rest of C
    /// (left·T <= (d − now)·C). Otherwise `wake` chooses the new period, and the old one counts as served.
    pub fn wake(&mut self, task: TaskIndex, now: u64, wake: Wake) {
        self.bring_to(now);
        let rank = self.rank(task);
        if !self.slots[rank].ready {
            self.slots[rank].wake(now, wake);
            self.place(rank);
        }
    }

    /// Sets the state of the network device for Table 5. O(n).
    pub fn set_network(&mut self, network: Network) {
        if self.order.network != network {
            self.order.network = network;
            (0..self.slots.len()).for_each(|rank| self.place(rank));
        }
    }

    /// The time up to which all time has been accounted for.
    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    pub fn statistics(&self, task: TaskIndex) -> Statistics {
        self.slots[self.rank(task)].statistics
    }

    /// x'/y' of `task`.
    pub fn progress(&self, task: TaskIndex) -> Progress {
        self.slots[self.rank(task)].progress
    }

    /// d of `task`.
    pub fn deadline(&self, task: TaskIndex) -> u64 {
        self.slots[self.rank(task)].deadline
    }

    /// What is left of C in the period of `task` that ends at d.
    pub fn left(&self, task: TaskIndex) -> u64 {
        self.slots[self.rank(task)].left
    }

    /// Whether `task` is not blocked.
    pub fn is_ready(&self, task: TaskIndex) -> bool {
        self.slots[self.rank(task)].ready
    }

    /// The task server as a task: its window, and the period and service of its current period.
    pub fn task_server(&self) -> Option<Task> {
        self.server.map(|_| self.slots[self.slots.len() - 1].task)
    }

    /// All data besides `now` that determines the future, as numbers relative to `now`.
    pub(super) fn state(&self, now: u64) -> Vec<u64> {
        let of = |slot: &Slot| {
            let Progress { x, y } = slot.progress;
            [slot.deadline.wrapping_sub(now), slot.left, u64::from(x) << 16 | u64::from(y)]
        };
        self.slots.iter().flat_map(of).collect()
    }

    /// Number of lost periods so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Some task with a violated window.
    pub(super) fn first_violated(&self) -> Option<TaskIndex> {
        let violated = |slot: &&Slot| slot.statistics.violations > 0 && !self.is_server(slot.rank as usize);
        if self.violations == 0 {
            return None;
        }
        self.slots.iter().find(violated).map(|slot| self.index(slot.rank as usize))
    }

    pub(super) fn rank(&self, task: TaskIndex) -> usize {
        self.ranks[task.0] as usize
    }

    pub(super) fn is_server(&self, rank: usize) -> bool {
        self.server.is_some() && rank + 1 == self.slots.len()
    }

    /// Performs releases and turnovers up to `now`. Every decision begins with this; call it alone at the end of a
    /// run, so that periods that end at `now` count.
    pub fn bring_to(&mut self, now: u64) {
        debug_assert!(now >= self.now, "time runs backwards: {now} after {}", self.now);
        self.now = now;
        while self.waiting.first().time <= now {
            self.place(rank_of(self.waiting.first()));
        }
        while let Some(rank) = self.overdue(now) {
            self.retune(rank);
            self.lost += 1;
            self.violations += u64::from(self.slots[rank].lost());
            self.place(rank);
        }
    }

    /// A released task whose deadline is not after `now`.
    fn overdue(&self, now: u64) -> Option<usize> {
        let first = self.due.as_ref().unwrap_or(&self.released).first();
        (first.time <= now).then(|| rank_of(first))
    }

    fn pick(&self) -> Choice {
        let first = self.released.first();
        if first != ABSENT {
            let rank = rank_of(first);
            return if self.is_server(rank) { Choice::TaskServer } else { Choice::Regular(self.index(rank)) };
        }
        let extra = self.surplus.as_ref().map(Tournament::first).filter(|&key| key != ABSENT);
        extra.map_or(Choice::BestEffort, |key| Choice::Extra(self.index(rank_of(key))))
    }

    fn index(&self, rank: usize) -> TaskIndex {
        TaskIndex(self.indices[rank] as usize)
    }

    fn serve(&mut self, rank: usize, used: u64) {
        let slot = &mut self.slots[rank];
        slot.statistics.regular += used;
        slot.left = slot.left.saturating_sub(used);
        if slot.left == 0 {
            self.retune(rank);
            self.slots[rank].served();
            self.place(rank);
        }
    }

    /// Sets the period and service of the task server for the first waiting event.
    fn retune(&mut self, rank: usize) {
        if let Some(rest) = self.server.filter(|_| self.is_server(rank)) {
            let service = self.events.first_sink().map_or(1, |sink| self.slots[sink].task.service);
            let task = &mut self.slots[rank].task;
            (task.service, task.period) = (service, rest.period_for(service));
        }
    }

    /// Moves a task to its place in the trees. Computes only the keys that are needed: this saves half of the time.
    fn place(&mut self, rank: usize) {
        let slot = &self.slots[rank];
        let released = slot.ready && slot.released(self.now);
        let waits = slot.ready && !released;
        let key = |condition: bool| if condition { self.order.key(slot) } else { ABSENT };
        let moment = |condition: bool, moment: u64| if condition { timed(moment, slot) } else { ABSENT };
        self.released.set(rank, key(released));
        self.waiting.set(rank, moment(waits, slot.release()));
        if let Some(surplus) = self.surplus.as_mut().filter(|_| slot.task.work_conserving) {
            let arrived = slot.release() > slot.task.arrival;
            surplus.set(rank, key(waits && arrived));
        }
        if let Some(due) = &mut self.due {
            due.set(rank, moment(released, slot.deadline));
        }
    }
}

/// The task server as a task: a window tighter than all others, and the remaining share.
pub(super) fn server_task(tasks: &[Task], rest: Rest, service: u64) -> Task {
    let longest = tasks.iter().map(|task| task.window.y).max().unwrap_or(0);
    Task {
        arrival: 0,
        period: rest.period_for(service),
        service,
        window: Span { x: 0, y: longest + 1 },
        work_conserving: false,
        network: 0,
    }
}
