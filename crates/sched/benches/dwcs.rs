//! Measures scheduling decisions per second in simulation: `cargo bench -p qfabric-sched`. Target: 10 million. One
//! decision is one tick: turnover, pick, account. The same run also measures two other schedulers: the same order
//! found by a scan of all tasks in every tick, and an EDF of two binary heaps, which has no windows and so does
//! less work. Time is the thread's own CPU time, so that other load on the machine matters little. Results are
//! medians of nine rounds.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::hint::black_box;

use qfabric_sched::dwcs::{Machine, Policy, Task, Window};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 9;
const TICKS: u64 = 400_000;

/// Periods between n/2 and 2n, so that ΣC/T is near 1 with a mean service of `service`; windows of all kinds.
fn numbers(n: u64, service: u64) -> Vec<(u64, u64, (u64, u64), bool)> {
    let one = |k: u64| {
        let period = service * (n / 2 + k * 7919 % (n + n / 2) + 1);
        (period, service.min(period), (k % 3, 3 + k % 5), k.is_multiple_of(4))
    };
    (0..n).map(one).collect()
}

fn machine(n: u64, service: u64) -> Machine {
    let task = |(period, service, (x, y), work_conserving)| {
        Task::new(period, service, Window::new(x, y).unwrap()).unwrap().work_conserving(work_conserving)
    };
    let tasks: Vec<Task> = numbers(n, service).into_iter().map(task).collect();
    Machine::new(&tasks, Policy::Dwcs)
}

/// Linear scan: compares all tasks by Table 1, with cross products.
struct Scan(Vec<Scanned>);

struct Scanned {
    period: u64,
    service: u64,
    window: (u64, u64),
    work_conserving: bool,
    deadline: u64,
    left: u64,
    current: (u64, u64),
}

impl Scanned {
    fn new((period, service, window, work_conserving): (u64, u64, (u64, u64), bool)) -> Self {
        Scanned { period, service, window, work_conserving, deadline: period, left: service, current: window }
    }

    fn precedes(&self, other: &Self) -> Ordering {
        let ((x, y), (i, j)) = (self.current, other.current);
        let last = if x == 0 && i == 0 { j.cmp(&y) } else { x.cmp(&i) };
        self.deadline.cmp(&other.deadline).then((x * j).cmp(&(i * y))).then(last)
    }

    fn next(&mut self, served: bool) {
        self.current = match self.current {
            (x, y) if served && y > x => (x, y - 1),
            (0, y) => (0, y + 1),
            (x, y) => (x - 1, y - 1),
        };
        if self.current == (0, 0) {
            self.current = self.window;
        }
        self.deadline += self.period;
        self.left = self.service;
    }
}

impl Scan {
    fn tick(&mut self, t: u64) -> Option<usize> {
        self.0.iter_mut().filter(|task| task.deadline <= t).for_each(|task| task.next(false));
        let first = |wanted: &dyn Fn(&Scanned) -> bool| {
            let of = self.0.iter().enumerate().filter(|(_, task)| wanted(task));
            of.min_by(|(_, a), (_, b)| a.precedes(b)).map(|(place, _)| place)
        };
        let Some(regular) = first(&|task| task.deadline <= t + task.period) else {
            return first(&|task| task.work_conserving);
        };
        let task = &mut self.0[regular];
        task.left -= 1;
        if task.left == 0 {
            task.next(true);
        }
        Some(regular)
    }
}

/// EDF: released tasks ordered by deadline, the others by release.
struct Heaps {
    released: BinaryHeap<Reverse<(u64, u64, u64, u64)>>,
    waiting: BinaryHeap<Reverse<(u64, u64, u64)>>,
    missed: u64,
}

impl Heaps {
    fn new(n: u64, service: u64) -> Self {
        let released = numbers(n, service).into_iter().map(|(period, c, ..)| Reverse((period, c, period, c))).collect();
        Heaps { released, waiting: BinaryHeap::new(), missed: 0 }
    }

    fn tick(&mut self, t: u64) -> Option<u64> {
        while let Some(&Reverse((release, period, c))) = self.waiting.peek().filter(|next| next.0.0 <= t) {
            self.waiting.pop();
            self.released.push(Reverse((release + period, c, period, c)));
        }
        while let Some(&Reverse((deadline, _, period, c))) = self.released.peek().filter(|first| first.0.0 <= t) {
            self.released.pop();
            self.missed += 1;
            self.released.push(Reverse((deadline + period, c, period, c)));
        }
        let mut first = self.released.peek_mut()?;
        let Reverse((deadline, left, period, c)) = &mut *first;
        let next = (*deadline, *period, *c);
        *left -= 1;
        if *left == 0 {
            std::collections::binary_heap::PeekMut::pop(first);
            self.waiting.push(Reverse(next));
        }
        Some(next.0)
    }
}

/// Million ticks per second: the median of [`ROUNDS`] rounds. The rivals take turns in each round, so that all of
/// them run under the same conditions.
fn medians(mut rivals: [Box<dyn FnMut()>; 3]) -> [f64; 3] {
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (rival, rates) in rivals.iter_mut().zip(&mut rates) {
            let start = cpu_time();
            rival();
            rates.push(TICKS as f64 / (cpu_time() - start) / 1e6);
        }
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    })
}

/// CPU time of this thread, in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn compare(n: u64, service: u64) {
    let (mut ours, mut scan, mut heaps) = (
        machine(n, service),
        Scan(numbers(n, service).into_iter().map(Scanned::new).collect()),
        Heaps::new(n, service),
    );
    let (mut at, mut on) = (0, 0);
    let [dwcs, scan, edf] = medians([
        Box::new(move || {
            for _ in 0..TICKS {
                black_box(ours.step());
            }
        }),
        Box::new(move || {
            // A hundredth of the ticks, because the scan is slow.
            for t in at..at + TICKS / 100 {
                black_box(scan.tick(t));
            }
            at += TICKS / 100;
        }),
        Box::new(move || {
            for t in on..on + TICKS {
                black_box(heaps.tick(t));
            }
            on += TICKS;
        }),
    ]);
    let scan = scan / 100.0;
    println!(
        "{n:>4} tasks, C = {service}: {dwcs:6.1} M decisions/s; linear scan {scan:6.2} (DWCS/scan = {:.1}); EDF on heaps \
         {edf:6.1} (DWCS/EDF = {:.2})",
        dwcs / scan,
        dwcs / edf
    );
}

fn main() {
    // `cargo test --benches` and `make bench ARGS=--short` only check that the program runs.
    let is_check = std::env::args().any(|arg| arg == "--test" || arg == "--max-time");
    let sizes: &[u64] = if is_check { &[2] } else { &[10, 100, 1_000] };
    for &n in sizes {
        compare(n, 1);
        compare(n, 4);
    }
}
