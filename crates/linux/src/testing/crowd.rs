//! Thirteen kinds of threads for tests of reservations: busy, waking often, overrunning, yielding, sleeping, new, and
//! exiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_types::ThreadId;

pub const KINDS: usize = 13;
/// Kind that calls `sched_yield`: the kernel then throttles the thread although it has budget.
pub const YIELDING: usize = 10;
/// Kind whose threads live for 1 to 3 ms each.
pub const BRIEF: usize = 11;
/// Kind that sleeps for minutes.
pub const BLOCKED: usize = 12;
/// CPU time and sleep of each turn, in microseconds. Some kinds need more than a budget of 1.3 ms in 10 ms.
const TURNS: [(u64, u64); 10] = [
    (400, 0),
    (400, 0),
    (50, 50),
    (200, 1_000),
    (1_000, 5_000),
    (2_000, 8_000),
    (1_500, 3_000),
    (100, 30_000),
    (20, 5_000),
    (1_300, 4_000),
];

/// Random numbers from one seed (xorshift64*), so that a failed run can be repeated as far as the scheduler allows.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }
}

/// State that the thread of one kind shares with the test.
#[derive(Debug, Default)]
struct Slot {
    thread: AtomicI32,
    beats: AtomicU64,
    renew: AtomicBool,
    end: AtomicBool,
}

#[derive(Debug)]
pub struct Crowd {
    slots: Vec<Arc<Slot>>,
}

impl Crowd {
    /// Starts one thread of each kind.
    pub fn start() -> Crowd {
        let slots: Vec<Arc<Slot>> = (0..KINDS).map(|_| Arc::default()).collect();
        for (kind, slot) in slots.iter().enumerate() {
            spawn(kind, slot.clone());
        }
        Crowd { slots }
    }

    /// The present thread of `kind`, if it has one at this moment.
    pub fn thread(&self, kind: usize) -> Option<ThreadId> {
        Some(ThreadId(self.slots[kind].thread.load(Ordering::Acquire))).filter(|thread| thread.0 != 0)
    }

    /// All present threads.
    pub fn threads(&self) -> Vec<ThreadId> {
        (0..KINDS).filter_map(|kind| self.thread(kind)).collect()
    }

    /// Number of turns of the thread of `kind`.
    pub fn beats(&self, kind: usize) -> u64 {
        self.slots[kind].beats.load(Ordering::Relaxed)
    }

    /// Replaces the thread of `kind`, for example because the present one may not be reserved for a while.
    pub fn renew(&self, kind: usize) {
        self.slots[kind].renew.store(true, Ordering::Relaxed);
    }
}

impl Drop for Crowd {
    /// Does not join the threads: a thread that the kernel no longer runs would never end.
    fn drop(&mut self) {
        self.slots.iter().for_each(|slot| slot.end.store(true, Ordering::Relaxed));
    }
}

fn spawn(kind: usize, slot: Arc<Slot>) {
    std::thread::Builder::new()
        .name(format!("qf-kind-{kind}"))
        .spawn(move || run_kind(kind, slot))
        .expect("a test may start threads");
}

fn run_kind(kind: usize, slot: Arc<Slot>) {
    let mut random = Random::new(kind as u64 + 1);
    if kind != BRIEF {
        slot.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }
    while !slot.end.load(Ordering::Relaxed) {
        slot.beats.fetch_add(1, Ordering::Relaxed);
        if slot.renew.swap(false, Ordering::Relaxed) {
            return spawn(kind, slot);
        }
        match kind {
            BRIEF => run_brief_thread(&slot, random.below(2_000)),
            BLOCKED => nap(120_000_000),
            YIELDING => yield_or_work(random.below(600)),
            _ => {
                let (busy, idle) = TURNS[kind];
                burn(busy + if busy >= 1_000 { random.below(200) } else { 0 });
                nap(idle);
            }
        }
    }
    slot.thread.store(0, Ordering::Release);
}

/// Starts a thread that works a little, sleeps a little, works again and exits.
fn run_brief_thread(slot: &Arc<Slot>, work_us: u64) {
    let inner = slot.clone();
    let body = move || {
        inner.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        burn(100);
        nap(300);
        burn(work_us);
        inner.thread.store(0, Ordering::Release);
    };
    if let Ok(join) = std::thread::Builder::new().name("qf-brief".into()).spawn(body) {
        let _ = join.join();
    }
    nap(500);
}

/// Yields, works or sleeps, in a random order.
fn yield_or_work(random_us: u64) {
    match random_us % 3 {
        0 => std::thread::yield_now(),
        1 => burn(random_us),
        _ => nap(random_us),
    }
}

fn nap(us: u64) {
    if us > 0 {
        std::thread::sleep(Duration::from_micros(us));
    }
}

fn burn(us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
