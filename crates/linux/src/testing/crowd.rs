//! Twelve kinds of threads to be reserved and released: spinning, waking often, overrunning, sleeping, fresh, exiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_types::ThreadId;

/// How many kinds there are.
pub const KINDS: usize = 12;
/// Its threads live for 1 to 3 ms each.
pub const BRIEF: usize = 10;
/// It sleeps for minutes.
pub const BLOCKED: usize = 11;
/// Work and sleep in turn, in microseconds. A budget of 1.3 ms in 10 ms is enough for some.
const LIVES: [(u64, u64); 10] = [
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

/// Numbers from one seed (xorshift64*): a failed run can be repeated, as far as the scheduler allows.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Another seed, other numbers.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }
}

/// What one kind shows of itself.
#[derive(Debug, Default)]
struct Slot {
    thread: AtomicI32,
    beats: AtomicU64,
    renew: AtomicBool,
    end: AtomicBool,
}

/// One thread of each kind, until dropped.
#[derive(Debug)]
pub struct Crowd {
    slots: Vec<Arc<Slot>>,
}

impl Crowd {
    /// Starts them.
    pub fn start() -> Crowd {
        let slots: Vec<Arc<Slot>> = (0..KINDS).map(|_| Arc::default()).collect();
        for (kind, slot) in slots.iter().enumerate() {
            spawn(kind, slot.clone());
        }
        Crowd { slots }
    }

    /// The thread that lives as `kind` now, if there is one at this moment.
    pub fn thread(&self, kind: usize) -> Option<ThreadId> {
        Some(ThreadId(self.slots[kind].thread.load(Ordering::Acquire))).filter(|thread| thread.0 != 0)
    }

    /// All threads there are now.
    pub fn threads(&self) -> Vec<ThreadId> {
        (0..KINDS).filter_map(|kind| self.thread(kind)).collect()
    }

    /// How far the thread of `kind` has come.
    pub fn beats(&self, kind: usize) -> u64 {
        self.slots[kind].beats.load(Ordering::Relaxed)
    }

    /// Another thread is to live as `kind`: this one may not be reserved for a while.
    pub fn renew(&self, kind: usize) {
        self.slots[kind].renew.store(true, Ordering::Relaxed);
    }
}

impl Drop for Crowd {
    /// They are not joined: one that the kernel forgot would never end.
    fn drop(&mut self) {
        self.slots.iter().for_each(|slot| slot.end.store(true, Ordering::Relaxed));
    }
}

fn spawn(kind: usize, slot: Arc<Slot>) {
    std::thread::Builder::new()
        .name(format!("qf-kind-{kind}"))
        .spawn(move || live(kind, slot))
        .expect("a test may start threads");
}

fn live(kind: usize, slot: Arc<Slot>) {
    let mut dice = Dice::new(kind as u64 + 1);
    if kind != BRIEF {
        slot.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }
    while !slot.end.load(Ordering::Relaxed) {
        slot.beats.fetch_add(1, Ordering::Relaxed);
        if slot.renew.swap(false, Ordering::Relaxed) {
            return spawn(kind, slot);
        }
        match kind {
            BRIEF => a_short_life(&slot, dice.below(2_000)),
            BLOCKED => nap(120_000_000),
            _ => {
                let (busy, idle) = LIVES[kind];
                burn(busy + if busy >= 1_000 { dice.below(200) } else { 0 });
                nap(idle);
            }
        }
    }
    slot.thread.store(0, Ordering::Release);
}

/// A thread that is born, works a little, sleeps a little, works and exits.
fn a_short_life(slot: &Arc<Slot>, work_us: u64) {
    let inner = slot.clone();
    let life = move || {
        inner.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        burn(100);
        nap(300);
        burn(work_us);
        inner.thread.store(0, Ordering::Release);
    };
    if let Ok(join) = std::thread::Builder::new().name("qf-brief".into()).spawn(life) {
        let _ = join.join();
    }
    nap(500);
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
