//! A second implementation of DWCS, written in the order of its text: lists, scans, cross products. Slow and plain.
//! `model.rs` compares the machine with it, and the benchmark names it as the rival.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Regular(usize),
    Extra(usize),
    Nobody,
}

#[derive(Clone, Debug)]
pub(crate) struct NaiveTask {
    pub arrival: u64,
    pub period: u64,
    pub service: u64,
    pub window: (u16, u16),
    pub work_conserving: bool,
    pub network: u8,
    pub deadline: u64,
    pub rem: u64,
    pub current: (u16, u16),
    pub blocked: bool,
    pub owed: bool,
    pub served: u64,
    pub missed: u64,
    pub violations: u64,
}

impl NaiveTask {
    pub(crate) fn new(arrival: u64, period: u64, service: u64, window: (u16, u16), work_conserving: bool) -> Self {
        NaiveTask {
            arrival,
            period,
            service,
            window,
            work_conserving,
            network: 0,
            deadline: arrival + period,
            rem: service,
            current: window,
            blocked: false,
            owed: false,
            served: 0,
            missed: 0,
            violations: 0,
        }
    }

    fn rule_a(&mut self) {
        let (x, y) = self.current;
        if y > x {
            self.current = (x, y - 1);
        } else if y == x && x > 0 {
            self.current = (x - 1, y - 1);
        }
        if self.current == (0, 0) {
            self.current = self.window;
        }
        self.served += 1;
    }

    fn rule_b(&mut self) {
        let (x, y) = self.current;
        self.missed += 1;
        if x > 0 {
            self.current = (x - 1, y - 1);
            if self.current == (0, 0) {
                self.current = self.window;
            }
        } else {
            self.current = (0, y.saturating_add(1));
            self.violations += 1;
        }
    }

    fn released(&self, t: u64) -> bool {
        !self.blocked && t + self.period >= self.deadline
    }

    fn surplus(&self, t: u64) -> bool {
        !self.blocked && self.work_conserving && !self.released(t) && self.deadline > self.arrival + self.period
    }
}

/// State of the network queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Unknown,
    Empty,
    Waiting,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub tasks: Vec<NaiveTask>,
    pub queue: Queue,
    /// (deadline, number, sink)
    pub events: Vec<(u64, u64, usize)>,
    /// Index of the task server among the tasks, and U_r as a fraction.
    pub server: Option<(usize, u64, u64)>,
    pub delivered: Vec<(u64, u8)>,
}

impl Naive {
    pub(crate) fn new(tasks: Vec<NaiveTask>) -> Self {
        Naive { tasks, queue: Queue::Unknown, events: Vec::new(), server: None, delivered: Vec::new() }
    }

    /// Table 1, or Table 5 if the state of the queue is known.
    fn precedes(&self, a: usize, b: usize) -> Ordering {
        let (i, j) = (&self.tasks[a], &self.tasks[b]);
        let ((xi, yi), (xj, yj)) = (i.current, j.current);
        let network = match self.queue {
            Queue::Unknown => Ordering::Equal,
            Queue::Empty => i.network.cmp(&j.network),
            Queue::Waiting => j.network.cmp(&i.network),
        };
        let ratio = (u64::from(xi) * u64::from(yj)).cmp(&(u64::from(xj) * u64::from(yi)));
        let denominator = if xi == 0 && xj == 0 { yj.cmp(&yi) } else { xi.cmp(&xj) };
        let is_server = |task: usize| self.server.is_some_and(|(place, ..)| place == task);
        let first_come = (is_server(a), i.arrival, a).cmp(&(is_server(b), j.arrival, b));
        i.deadline.cmp(&j.deadline).then(network).then(ratio).then(denominator).then(first_come)
    }

    fn first(&self, which: impl Fn(&NaiveTask) -> bool) -> Option<usize> {
        let of: Vec<usize> = (0..self.tasks.len()).filter(|&k| which(&self.tasks[k])).collect();
        of.into_iter().min_by(|&a, &b| self.precedes(a, b))
    }

    fn next_period(&mut self, k: usize) {
        if let Some((place, num, den)) = self.server
            && place == k
        {
            let first = self.events.iter().min().map_or(1, |&(_, _, sink)| self.tasks[sink].service);
            self.tasks[k].service = first;
            self.tasks[k].period = (first * den).div_ceil(num);
        }
        let task = &mut self.tasks[k];
        task.deadline += task.period;
        task.rem = task.service;
    }

    /// Runs one tick at `t`.
    pub(crate) fn tick(&mut self, t: u64) -> Runs {
        self.turnover(t);
        let regular = self.first(|task| task.released(t));
        let extra = self.first(|task| task.surplus(t));
        let on_server = regular.is_some() && regular == self.server.map(|(place, ..)| place);
        let chosen = match (regular, extra) {
            (Some(i), _) => Runs::Regular(i),
            (None, Some(i)) => Runs::Extra(i),
            (None, None) => Runs::Nobody,
        };
        let mut runs = if on_server { Runs::Nobody } else { chosen };
        if let Some((sink, rule)) = self.event(t, chosen, on_server) {
            let regular = rule != 5 && self.tasks[sink].released(t);
            runs = if regular { Runs::Regular(sink) } else { Runs::Extra(sink) };
        }
        self.account(runs);
        if on_server && let Some(server) = regular {
            self.account(Runs::Regular(server));
        }
        runs
    }

    fn turnover(&mut self, t: u64) {
        // One task at a time, the earliest first: only the task server's next period depends on the events.
        while let Some(k) = self.first(|task| task.released(t) && task.deadline <= t) {
            self.tasks[k].rule_b();
            self.next_period(k);
        }
    }

    fn account(&mut self, runs: Runs) {
        if let Runs::Regular(k) = runs {
            self.tasks[k].rem -= 1;
            if self.tasks[k].rem == 0 {
                self.tasks[k].rule_a();
                self.next_period(k);
            }
        }
    }

    fn event(&mut self, t: u64, chosen: Runs, on_server: bool) -> Option<(usize, u8)> {
        self.events.retain(|&(deadline, ..)| deadline >= t);
        let able = |&(_, _, sink): &(u64, u64, usize)| !self.tasks[sink].blocked && self.tasks[sink].arrival <= t;
        let event = self.events.iter().copied().filter(able).min()?;
        let j = event.2;
        let rule = match chosen {
            _ if on_server => Some(5),
            Runs::Regular(i) | Runs::Extra(i) if i == j => Some(1),
            Runs::Nobody => Some(2),
            Runs::Extra(_) => Some(3),
            Runs::Regular(i) => self.fits_first(i, j, t).then_some(4),
        }?;
        self.events.retain(|other| *other != event);
        self.delivered.push((event.1, rule));
        Some((j, rule))
    }

    fn fits_first(&self, i: usize, j: usize, t: u64) -> bool {
        let until = self.tasks[j].deadline;
        if !self.tasks[j].released(t) || self.tasks[i].deadline != until {
            return false;
        }
        let before = (0..self.tasks.len()).filter(|&k| self.precedes(k, j) == Ordering::Less);
        let sum: u64 = before.map(|k| self.demand(k, t, until)).sum();
        sum + self.tasks[j].rem < until - t
    }

    /// Period by period for a ready task; in proportion for a blocked task, which may begin a period at any time.
    fn demand(&self, k: usize, t: u64, until: u64) -> u64 {
        let task = &self.tasks[k];
        let (mut at, mut sum) = if task.deadline <= t { (t, 0) } else { (task.deadline, task.rem) };
        if at > until {
            return 0;
        }
        if task.blocked {
            return sum + (until - at) * task.service / task.period;
        }
        while at + task.period <= until {
            at += task.period;
            sum += task.service;
        }
        sum
    }

    pub(crate) fn block(&mut self, k: usize, t: u64) {
        self.turnover(t);
        if !self.tasks[k].blocked {
            self.tasks[k].owed = self.tasks[k].released(t);
            self.tasks[k].blocked = true;
        }
    }

    pub(crate) fn wake(&mut self, k: usize, t: u64, aligned: bool) {
        self.turnover(t);
        let task = &mut self.tasks[k];
        if !task.blocked {
            return;
        }
        task.blocked = false;
        let owed = std::mem::take(&mut task.owed);
        if task.deadline > t && task.rem * task.period <= (task.deadline - t) * task.service {
            return;
        }
        let close = |task: &mut NaiveTask, owed: bool| {
            if owed {
                task.rule_a();
            }
        };
        if !aligned {
            close(task, owed);
            (task.deadline, task.rem) = (t + task.period, task.service);
            return;
        }
        let stale = task.deadline <= t;
        if stale {
            close(task, owed);
        }
        while task.deadline <= t {
            task.deadline += task.period;
            task.rem = task.service;
        }
        task.rem = task.rem.min(task.service * (task.deadline - t) / task.period);
        if task.rem == 0 {
            close(task, owed && !stale);
            task.deadline += task.period;
            task.rem = task.service;
        }
    }
}
