//! The attributes of a task, its state, and its statistics.

use std::fmt;

use qfabric_types::Window;
use qfabric_types::api::Problem;

use super::window::{Progress, Span};

/// Arrivals and periods are at most this, so that the sum of two times does not overflow.
pub const MAX_TIME: u64 = 1 << 61;

/// The index of a task in the list from which the machine was created; the list is in the order of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(pub usize);

/// The request of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    pub(super) arrival: u64,
    pub(super) period: u64,
    pub(super) service: u64,
    pub(super) window: Span,
    pub(super) work_conserving: bool,
    pub(super) network: u8,
}

/// The attributes of a task are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTask {
    NoPeriod,
    NoService,
    ServiceAbovePeriod {
        service: u64,
        period: u64,
    },
    /// A time is above [`MAX_TIME`].
    TooLate {
        time: u64,
    },
    /// A probability is above 100 %.
    Probability {
        percent: u8,
    },
}

impl BadTask {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match *self {
            BadTask::NoPeriod => ("the period is 0".to_owned(), "use at least 1".to_owned()),
            BadTask::NoService => ("the service is 0".to_owned(), "use at least 1".to_owned()),
            BadTask::ServiceAbovePeriod { service, period } => (
                format!("service {service} does not fit into period {period}"),
                format!("ask for at most {period}, or lengthen the period"),
            ),
            BadTask::TooLate { time } => {
                (format!("time {time} is beyond {MAX_TIME}"), "use a coarser unit of time".to_owned())
            }
            BadTask::Probability { percent } => {
                (format!("the probability of network activity is {percent} %"), "use 0 to 100".to_owned())
            }
        };
        Problem::new("invalid_task", message, next_step)
    }
}

impl fmt::Display for BadTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem())
    }
}

impl std::error::Error for BadTask {}

impl Task {
    /// A task with `service` in every `period` from time 0 on, under `window`; served at most once per period.
    ///
    /// # Errors
    /// [`BadTask`] if the service or the period is 0, the service exceeds the period, or the period exceeds
    /// [`MAX_TIME`].
    pub fn new(period: u64, service: u64, window: Window) -> Result<Self, BadTask> {
        match (period, service) {
            (0, _) => Err(BadTask::NoPeriod),
            (_, 0) => Err(BadTask::NoService),
            (period, service) if service > period => Err(BadTask::ServiceAbovePeriod { service, period }),
            (period, _) if period > MAX_TIME => Err(BadTask::TooLate { time: period }),
            _ => Ok(Task { arrival: 0, period, service, window: window.into(), work_conserving: false, network: 0 }),
        }
    }

    /// Sets the begin of the first period.
    ///
    /// # Errors
    /// [`BadTask::TooLate`].
    pub fn arriving(self, arrival: u64) -> Result<Self, BadTask> {
        if arrival > MAX_TIME { Err(BadTask::TooLate { time: arrival }) } else { Ok(Task { arrival, ..self }) }
    }

    /// Sets whether the task is served again within its period if time is left over.
    pub fn work_conserving(self, on: bool) -> Self {
        Task { work_conserving: on, ..self }
    }

    /// Sets the probability, in per cent, that the task uses the network when it runs (000 §7.1.2).
    ///
    /// # Errors
    /// [`BadTask::Probability`].
    pub fn network(self, percent: u8) -> Result<Self, BadTask> {
        if percent > 100 { Err(BadTask::Probability { percent }) } else { Ok(Task { network: percent, ..self }) }
    }

    /// a, the begin of the first period.
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
    /// x/y. The y of the task server is one above the largest y of its machine.
    pub fn window(&self) -> (u16, u16) {
        (self.window.x, self.window.y)
    }
}

/// Counts of a task's periods and its received time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Periods in which the task received C.
    pub served: u64,
    /// Periods in which it did not.
    pub missed: u64,
    /// Missed periods beyond the window.
    pub violations: u64,
    /// Time given within periods.
    pub regular: u64,
    /// Time given beside periods.
    pub extra: u64,
    /// Delivered events, by rule.
    pub events: [u64; 5],
}

/// The begin of the new period of a task that wakes too late for its old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// At once, with all of C, as in a constant bandwidth server.
    #[default]
    Now,
    /// On the grid of its periods, with the part of C that is in proportion to the rest of the period.
    Aligned,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub task: Task,
    /// d.
    pub deadline: u64,
    /// The rest of C in the period that ends at d.
    pub left: u64,
    /// x'/y'.
    pub progress: Progress,
    pub ready: bool,
    /// Blocked within a period before it received all of C.
    pub owed: bool,
    /// Place among equal tasks: first come, then id.
    pub rank: u32,
    pub statistics: Statistics,
}

impl Slot {
    pub(crate) fn new(task: Task, rank: u32) -> Self {
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

    /// The begin of the period that ends at d.
    pub(crate) fn release(&self) -> u64 {
        self.deadline - self.task.period
    }

    /// Whether the period has begun and still wants service.
    pub(crate) fn released(&self, now: u64) -> bool {
        self.release() <= now
    }

    /// Applies rule a and begins the next period.
    pub(crate) fn served(&mut self) {
        self.statistics.served += 1;
        self.progress.served(self.task.window);
        self.next_period();
    }

    /// Applies rule b and begins the next period; partial service is lost. Returns whether the loss violates the
    /// window.
    pub(crate) fn lost(&mut self) -> bool {
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

    /// The largest service it may want between `now` and `until`, including periods that begin and wake-ups that
    /// happen in between.
    pub(crate) fn demand(&self, now: u64, until: u64) -> u64 {
        match self.deadline {
            deadline if deadline <= now => self.demand_after(now, until),
            deadline if deadline > until => 0,
            deadline => self.left + self.demand_after(deadline, until),
        }
    }

    /// The same for the periods from `from` on: whole periods if the task is ready, any part of C if a period may
    /// begin with a wake-up.
    fn demand_after(&self, from: u64, until: u64) -> u64 {
        let Task { period, service, .. } = self.task;
        if self.ready {
            return (until - from) / period * service;
        }
        (u128::from(until - from) * u128::from(service) / u128::from(period)) as u64
    }

    /// The CBS test: whether the rest of C fits before d without exceeding the bandwidth C/T.
    fn keeps_its_period(&self, now: u64) -> bool {
        let asked = u128::from(self.left) * u128::from(self.task.period);
        self.deadline > now && asked <= u128::from(self.deadline - now) * u128::from(self.task.service)
    }

    /// Counts a period that ended while blocked, or was given up, as served: the task wanted no more service in it.
    fn close(&mut self) {
        if std::mem::take(&mut self.owed) {
            self.statistics.served += 1;
            self.progress.served(self.task.window);
        }
    }

    pub(crate) fn wake(&mut self, now: u64, wake: Wake) {
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

    /// The part of C in proportion to the time until d: C·(d − now)/T, rounded down.
    fn affordable(&self, now: u64) -> u64 {
        let part = u128::from(self.deadline - now) * u128::from(self.task.service) / u128::from(self.task.period);
        part.min(u128::from(self.task.service)) as u64
    }
}
