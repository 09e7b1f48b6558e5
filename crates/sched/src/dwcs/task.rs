//! A task's attributes and what has become of it.

use std::fmt;

use qfabric_types::Window;

use super::window::{Progress, Span};

/// Arrivals and periods end below this, so that no sum of two times overflows.
pub const MAX_TIME: u64 = 1 << 61;

/// A task of a machine: its place in the list the machine was made of, which is the order of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(pub usize);

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    pub(super) arrival: u64,
    pub(super) period: u64,
    pub(super) service: u64,
    pub(super) window: Span,
    pub(super) work_conserving: bool,
    pub(super) network: u8,
}

/// No task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTask {
    /// T = 0.
    NoPeriod,
    /// C = 0.
    NoService,
    /// C > T.
    ServiceAbovePeriod {
        /// C.
        service: u64,
        /// T.
        period: u64,
    },
    /// A time beyond [`MAX_TIME`].
    TooLate {
        /// Which time.
        time: u64,
    },
    /// A probability above 100 %.
    Probability {
        /// What was given.
        percent: u8,
    },
}

impl fmt::Display for BadTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BadTask::NoPeriod => write!(f, "period 0 never ends; the period is at least 1"),
            BadTask::NoService => write!(f, "service 0 asks for nothing; the service is at least 1"),
            BadTask::ServiceAbovePeriod { service, period } => write!(
                f,
                "service {service} does not fit into period {period}; ask for at most {period}, or lengthen the period"
            ),
            BadTask::TooLate { time } => write!(f, "time {time} is beyond {MAX_TIME}; use a coarser unit of time"),
            BadTask::Probability { percent } => {
                write!(f, "{percent} % is no probability of network activity; it is between 0 and 100")
            }
        }
    }
}

impl std::error::Error for BadTask {}

impl Task {
    /// `service` in every `period` from time 0 on, under `window`; served at most once per period.
    ///
    /// # Errors
    /// Where the service is 0 or above the period, or a time beyond [`MAX_TIME`].
    pub fn new(period: u64, service: u64, window: Window) -> Result<Self, BadTask> {
        match (period, service) {
            (0, _) => Err(BadTask::NoPeriod),
            (_, 0) => Err(BadTask::NoService),
            (period, service) if service > period => Err(BadTask::ServiceAbovePeriod { service, period }),
            (period, _) if period > MAX_TIME => Err(BadTask::TooLate { time: period }),
            _ => Ok(Task { arrival: 0, period, service, window: window.into(), work_conserving: false, network: 0 }),
        }
    }

    /// With its first period beginning at `arrival`.
    ///
    /// # Errors
    /// [`BadTask::TooLate`].
    pub fn arriving(self, arrival: u64) -> Result<Self, BadTask> {
        if arrival > MAX_TIME { Err(BadTask::TooLate { time: arrival }) } else { Ok(Task { arrival, ..self }) }
    }

    /// Served again within its period where time is left over.
    pub fn work_conserving(self, on: bool) -> Self {
        Task { work_conserving: on, ..self }
    }

    /// With the probability, in per cent, that it uses the network when it runs (000 §7.1.2).
    ///
    /// # Errors
    /// [`BadTask::Probability`].
    pub fn network(self, percent: u8) -> Result<Self, BadTask> {
        if percent > 100 { Err(BadTask::Probability { percent }) } else { Ok(Task { network: percent, ..self }) }
    }

    /// a: when its first period begins.
    pub fn arrival(&self) -> u64 {
        self.arrival
    }
    /// T.
    pub fn period(&self) -> u64 {
        self.period
    }
    /// C.
    pub fn service(&self) -> u64 {
        self.service
    }
    /// x/y. The task server's y is one above the largest of its machine.
    pub fn window(&self) -> (u16, u16) {
        (self.window.x, self.window.y)
    }
}

/// What has become of a task's periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Periods with C.
    pub served: u64,
    /// Periods without.
    pub missed: u64,
    /// Of these, beyond the window.
    pub violations: u64,
    /// Time given within periods.
    pub regular: u64,
    /// Time given beside.
    pub extra: u64,
    /// Events brought to it, by rule.
    pub events: [u64; 5],
}

/// Where the period of a task begins that wakes too late for its old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Now, with all of C, as a constant bandwidth server does.
    #[default]
    Now,
    /// On the grid of its periods, with the part of C that the rest of the period pays for.
    Aligned,
}

/// A task and its state.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub task: Task,
    /// d.
    pub deadline: u64,
    /// What is left of C in the period that ends at d.
    pub left: u64,
    /// x'/y'.
    pub progress: Progress,
    pub ready: bool,
    /// Blocked within a period whose C it had not had yet.
    pub owed: bool,
    /// Place among equals: first come, then id.
    pub rank: u32,
    pub statistics: Statistics,
}

impl Slot {
    pub fn new(task: Task, rank: u32) -> Self {
        Slot {
            task,
            deadline: task.arrival + task.period,
            left: task.service,
            progress: Progress::start(task.window),
            ready: true,
            owed: false,
            rank,
            statistics: Statistics::default(),
        }
    }

    /// Where the period of d begins.
    pub fn release(&self) -> u64 {
        self.deadline - self.task.period
    }

    /// Whether its period has begun and wants service.
    pub fn released(&self, now: u64) -> bool {
        self.release() <= now
    }

    /// Rule a, and the next period.
    pub fn served(&mut self) {
        self.statistics.served += 1;
        self.progress.served(self.task.window);
        self.next_period();
    }

    /// Rule b, and the next period. Service of a part is lost. Returns whether that violates the window.
    pub fn lost(&mut self) -> bool {
        let violated = self.progress.lost(self.task.window);
        self.statistics.missed += 1;
        self.statistics.violations += u64::from(violated);
        self.next_period();
        violated
    }

    fn next_period(&mut self) {
        self.deadline += self.task.period;
        self.left = self.task.service;
    }

    /// What it may want before `until` (above `now`), also if it wakes or begins new periods on the way.
    pub fn demand(&self, now: u64, until: u64) -> u64 {
        match self.deadline {
            deadline if deadline <= now => self.demand_after(now, until),
            deadline if deadline > until => 0,
            deadline => self.left + self.demand_after(deadline, until),
        }
    }

    /// Of periods from `from` on: whole ones where it is ready, any part of C where it may begin one when it wakes.
    fn demand_after(&self, from: u64, until: u64) -> u64 {
        let Task { period, service, .. } = self.task;
        if self.ready {
            return (until - from) / period * service;
        }
        (u128::from(until - from) * u128::from(service) / u128::from(period)) as u64
    }

    /// The CBS test: what is left may be had until d without taking more than C/T of the time.
    fn keeps_its_period(&self, now: u64) -> bool {
        let asked = u128::from(self.left) * u128::from(self.task.period);
        self.deadline > now && asked <= u128::from(self.deadline - now) * u128::from(self.task.service)
    }

    /// A period that ended blocked, or is given up, counts as served: it asked for no more.
    fn close(&mut self) {
        if std::mem::take(&mut self.owed) {
            self.statistics.served += 1;
            self.progress.served(self.task.window);
        }
    }

    /// Ready again at `now`.
    pub fn wake(&mut self, now: u64, wake: Wake) {
        self.ready = true;
        if self.keeps_its_period(now) {
            self.owed = false;
            return;
        }
        match wake {
            Wake::Now => {
                self.close();
                self.deadline = now + self.task.period;
                self.left = self.task.service;
            }
            Wake::Aligned => self.wake_aligned(now),
        }
    }

    fn wake_aligned(&mut self, now: u64) {
        if self.deadline <= now {
            self.close();
            self.deadline += ((now - self.deadline) / self.task.period + 1) * self.task.period;
            self.left = self.task.service;
        }
        self.left = self.left.min(self.affordable(now));
        if self.left == 0 {
            self.close();
            self.next_period();
        }
        self.owed = false;
    }

    /// The part of C that the time until d pays for: C·(d − now)/T, rounded down.
    fn affordable(&self, now: u64) -> u64 {
        let part = u128::from(self.deadline - now) * u128::from(self.task.service) / u128::from(self.task.period);
        part.min(u128::from(self.task.service)) as u64
    }
}
