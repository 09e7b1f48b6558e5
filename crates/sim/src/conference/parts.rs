//! Parts of a simulated host: its processor with one job at a time, and the measurement of rates.

use qfabric_control::flow::{Claim, Processor};
use qfabric_types::{Instant, Nanos};

/// The load of a host, which the experiment sets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Other programs that always run.
    pub hogs: f64,
}

/// How the application is scheduled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scheduling {
    /// With the guaranteed share of its contract, in CPUs.
    Contract(f64),
    /// With a SCHED_RR priority; the other programs have [`Scheduling::HOGS`].
    Priority(i64),
}

impl Scheduling {
    /// The priority of the paper's disturbing program.
    pub(super) const HOGS: i64 = 50;
    /// The kernel leaves a part of the time to tasks of lower classes; a lower priority gets a tenth of it here.
    const STARVED: f64 = 0.005;

    /// CPU seconds per second for a job that runs now.
    fn speed(self, hogs: f64) -> f64 {
        match self {
            Scheduling::Contract(reserved) => {
                Processor { others: hogs, ..Processor::IDLE }.divide(&[Claim { reserved, wants: 1.0 }])[0]
            }
            Scheduling::Priority(own) if own > Self::HOGS || hogs == 0.0 => 1.0,
            Scheduling::Priority(Self::HOGS) => 1.0 / (1.0 + hogs),
            Scheduling::Priority(_) => Self::STARVED,
        }
    }
}

/// A processor with one thread of the conference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    scheduling: Scheduling,
    hogs: f64,
    /// CPU seconds that the present job still needs.
    left: Option<f64>,
    since: Instant,
    /// CPU seconds used, and seconds in which a thread waited, since the last report.
    used: f64,
    waited: f64,
    reported: Instant,
    /// Changes with every plan, so that an older timer is void.
    plan: u64,
}

impl Cpu {
    pub(super) fn new(scheduling: Scheduling) -> Cpu {
        let zero = Instant::ZERO;
        Cpu { scheduling, hogs: 0.0, left: None, since: zero, used: 0.0, waited: 0.0, reported: zero, plan: 0 }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.left.is_some()
    }

    /// Begins a job of `cost` CPU seconds. Returns when it will end, with the number of the plan.
    pub(super) fn begin(&mut self, cost: f64, now: Instant) -> (Instant, u64) {
        self.run(now);
        self.left = Some(cost.max(0.0));
        self.next(now).unwrap_or((now, self.plan))
    }

    /// Changes load and scheduling; returns the new end of the present job.
    pub(super) fn change(&mut self, hogs: f64, scheduling: Option<Scheduling>, now: Instant) -> Option<(Instant, u64)> {
        self.run(now);
        self.hogs = hogs;
        self.scheduling = scheduling.unwrap_or(self.scheduling);
        self.next(now)
    }

    /// Whether this plan is the present one and its job has ended.
    pub(super) fn end(&mut self, plan: u64, now: Instant) -> bool {
        if plan != self.plan || self.left.is_none() {
            return false;
        }
        self.run(now);
        self.left = None;
        true
    }

    fn next(&mut self, now: Instant) -> Option<(Instant, u64)> {
        let left = self.left?;
        self.plan += 1;
        let takes = left / self.scheduling.speed(self.hogs);
        Some((now + Nanos::from_f64(takes * 1e9), self.plan))
    }

    /// Accounts for the time until now.
    fn run(&mut self, now: Instant) {
        let time = now.since(self.since).as_secs_f64();
        self.since = now;
        let runnable = self.hogs + if self.left.is_some() { 1.0 } else { 0.0 };
        self.waited += if runnable > 1.0 { time } else { 0.0 };
        if let Some(left) = &mut self.left {
            let done = (time * self.scheduling.speed(self.hogs)).min(*left);
            *left -= done;
            self.used += done;
        }
    }

    /// CPUs used since the last report, and the part of the time in which a thread waited.
    pub(super) fn report(&mut self, now: Instant) -> (f64, f64) {
        self.run(now);
        let time = now.since(self.reported).as_secs_f64().max(1e-3);
        let result = (self.used / time, (self.waited / time).min(1.0));
        (self.used, self.waited, self.reported) = (0.0, 0.0, now);
        result
    }
}

/// Counts events between two reports, without parts of intervals: from the last event of one report to the last event of
/// the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    count: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    before: Option<Instant>,
    reported: Option<Instant>,
}

impl Meter {
    pub(super) fn count(&mut self, now: Instant) {
        self.first = if self.count == 0 { Some(now) } else { self.first };
        (self.last, self.count) = (Some(now), self.count + 1);
    }

    /// Events per second since the last report.
    pub(super) fn report(&mut self, now: Instant) -> f64 {
        let since = self.reported.map_or(1.0, |reported| now.since(reported).as_secs_f64()).max(1e-3);
        let has_paused = match (self.first, self.before) {
            (Some(first), Some(before)) => first.since(before).as_secs_f64() > 2.0 * since,
            _ => true,
        };
        let (intervals, from) =
            if has_paused { (self.count.saturating_sub(1), self.first) } else { (self.count, self.before) };
        let between = self.last.zip(from).map_or(0.0, |(last, from)| last.since(from).as_secs_f64());
        let rate =
            if intervals > 0 && between > 0.0 { f64::from(intervals) / between } else { f64::from(self.count) / since };
        self.before = if self.count > 0 { self.last } else { self.before };
        (self.count, self.reported) = (0, Some(now));
        rate
    }
}
