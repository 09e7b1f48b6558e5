//! Random task sets, and random events, drawn from a seed.

use qfabric_linux::abi::*;
use qfabric_sched::dwcs::{Task, Window};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// A task that can be given to the theory and to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub period: u64,
    pub service: u64,
    pub x: u16,
    pub y: u16,
    pub arrival: u64,
    pub work_conserving: bool,
    pub network: u8,
    pub aligned: bool,
}

/// Properties of the drawn sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub tasks: u32,
    pub arrivals: bool,
    pub blocking: bool,
    pub events: bool,
    pub network: bool,
    pub task_server: bool,
    pub stalls: bool,
}

const PERIODS: [u64; 8] = [1, 2, 3, 4, 6, 8, 12, 24];

pub(crate) fn tasks(rng: &mut ChaCha8Rng, kind: Kind) -> Vec<Drawn> {
    let several = rng.random_range(1..=kind.tasks);
    // Some sets are half loaded, others are overloaded up to twice, and some have many equal deadlines.
    let longest = rng.random_range(2..=PERIODS.len());
    (0..several).map(|_| task(rng, kind, several, longest)).collect()
}

fn task(rng: &mut ChaCha8Rng, kind: Kind, several: u32, longest: usize) -> Drawn {
    let scale = if several > 20 { u64::from(several) / 10 } else { 1 };
    let period = PERIODS[rng.random_range(0..longest)] * scale;
    // Short windows end soon and coincide; with the task server they keep its fraction small.
    let most = if kind.task_server || rng.random_bool(0.8) { 6 } else { 255 };
    let y = rng.random_range(1..=most);
    Drawn {
        period,
        service: rng.random_range(1..=period.div_ceil(3)),
        x: rng.random_range(0..y),
        y,
        arrival: if kind.arrivals { rng.random_range(0..30) } else { 0 },
        work_conserving: rng.random_bool(0.3),
        network: if kind.network { rng.random_range(0..=3) * 30 } else { 0 },
        aligned: rng.random_bool(0.5),
    }
}

impl Drawn {
    pub(crate) fn theory(&self) -> Task {
        let window = Window::new(self.x.into(), self.y.into()).unwrap();
        let task = Task::new(self.period, self.service, window).unwrap().arriving(self.arrival).unwrap();
        task.work_conserving(self.work_conserving).network(self.network).unwrap()
    }

    pub(crate) fn kernel(&self) -> qf_config {
        let also = |on, ask| if on { ask } else { 0 };
        qf_config {
            period_ns: self.period,
            service_ns: self.service,
            arrival_ns: self.arrival,
            x: self.x,
            y: self.y,
            network: self.network,
            ask: QF_ASK_READY | also(self.work_conserving, QF_ASK_WORK_CONSERVING) | also(self.aligned, QF_ASK_ALIGNED),
            ..Default::default()
        }
    }
}

/// U_r = 1 − Σ(1 − x/y)·C/T as a fraction; `None` if it is not positive, or too fine for the kernel's record.
pub(crate) fn rest(tasks: &[Drawn]) -> Option<(u32, u32)> {
    let (mut num, mut den) = (1i128, 1i128);
    for task in tasks {
        let (part, of) =
            (i128::from(task.y - task.x) * i128::from(task.service), i128::from(task.y) * i128::from(task.period));
        (num, den) = (num * of - part * den, den * of);
        let divisor = gcd(num.abs(), den).max(1);
        (num, den) = (num / divisor, den / divisor);
    }
    (num > 0).then_some(())?;
    Some((u32::try_from(num).ok()?, u32::try_from(den).ok()?))
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
