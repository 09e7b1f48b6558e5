//! Helpers of tests that need the real scheduler: one at a time, with threads whose doings are known.

pub mod crowd;
pub mod departures;
pub mod frozen;
pub mod losses;

pub use crate::release::version as kernel_version;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_types::{Instant, Nanos, Share, ThreadId};

use crate::clock;

/// Waits until no other test uses the real scheduler; free again when dropped.
#[must_use]
pub fn live_lock() -> File {
    use rustix::fs::{FlockOperation, flock};
    let dir = ["/run/lock", "/tmp"].into_iter().find(|d| std::path::Path::new(d).is_dir()).unwrap_or(".");
    let path = format!("{dir}/qfabric-live.lock");
    let file = File::options().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    flock(&file, FlockOperation::LockExclusive).unwrap_or_else(|e| panic!("{path}: {e}"));
    file
}

/// Says in one line why a test does nothing here. In the test machine (`make vm-test`), which has what tests need,
/// that is a failure.
pub fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var_os("QFABRIC_VM").is_none(), "skipped in the test machine, where it must run: {why}");
    eprintln!("skipped: {why}");
}

/// Whether this process may use SCHED_DEADLINE at all; says on standard error when a test is skipped for it.
pub fn may_reserve() -> bool {
    let may = crate::capability::held(rustix::thread::CapabilitySet::SYS_NICE);
    if !may {
        skip("this test needs CAP_SYS_NICE");
    }
    may
}

/// Aborts the test program with a message when no thread progresses for [`Watchdog::SILENCE`]. For tests of code that may
/// hang: a slow machine is slow, but it progresses.
#[derive(Debug)]
pub struct Watchdog {
    steps: Arc<AtomicU64>,
    /// Dropping it ends the thread.
    _stop: std::sync::mpsc::Sender<()>,
}

impl Watchdog {
    /// Longer than any thread waits for a CPU beside eight hogs per core.
    pub const SILENCE: Duration = Duration::from_secs(120);

    /// Starts watching `what`.
    pub fn start(what: &str) -> Watchdog {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let steps = Arc::new(AtomicU64::new(0));
        let (seen, what) = (steps.clone(), what.to_owned());
        std::thread::spawn(move || {
            let mut last = u64::MAX;
            while stopped.recv_timeout(Watchdog::SILENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let now = seen.load(Ordering::Relaxed);
                if now == last {
                    // Not by `eprintln`, which the test harness keeps to itself.
                    let silence = Watchdog::SILENCE;
                    let _ = writeln!(io::stderr(), "{what}: no progress for {silence:?} after {now} steps");
                    std::process::abort();
                }
                last = now;
            }
        });
        Watchdog { steps, _stop: stop }
    }

    /// Reports one step.
    pub fn progress(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread of this process with a known way of life; ends when dropped.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub thread: ThreadId,
    used: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    join: Option<JoinHandle<()>>,
}

impl Worker {
    /// Sleeps.
    pub fn sleeping() -> Worker {
        Worker::start(|| std::thread::sleep(Duration::from_millis(1)))
    }

    /// Uses all the CPU it gets.
    pub fn burning() -> Worker {
        Worker::start(|| burn(Nanos::from_micros(100)))
    }

    /// Burns `busy` of CPU time, then sleeps until the next multiple of `period`.
    pub fn periodic(period: Nanos, busy: Nanos) -> Worker {
        let mut next = clock::now();
        Worker::start(move || {
            burn(busy);
            next = next + period;
            std::thread::sleep(Duration::from_nanos(next.since(clock::now()).get()));
        })
    }

    /// Does `turn` over and over.
    pub fn start(mut turn: impl FnMut() + Send + 'static) -> Worker {
        let (used, turns, stop) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (in_used, in_turns, in_stop) = (used.clone(), turns.clone(), stop.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let live = move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
            while !in_stop.load(Ordering::Relaxed) {
                turn();
                in_used.store(clock::thread_cpu().get(), Ordering::Relaxed);
                in_turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        let join = std::thread::Builder::new().name("qf-worker".into()).spawn(live).expect("a test may start threads");
        let thread = ThreadId(told.recv().expect("the thread says its number first"));
        Worker { thread, used, turns, stop, join: Some(join) }
    }

    /// CPU time used up to the end of its last turn.
    pub fn used(&self) -> Nanos {
        Nanos::new(self.used.load(Ordering::Relaxed))
    }

    /// How often it has done its turn.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// The share of one CPU it gets over the next `length`.
    pub fn share_over(&self, length: Duration) -> f64 {
        let (start, used) = at_one_moment(|| self.used());
        std::thread::sleep(length);
        let (end, later) = at_one_moment(|| self.used());
        (later - used).as_f64() / end.since(start).as_f64()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

/// A moment and what was read then: read again where a busy machine took the reader away in between.
pub fn at_one_moment<T>(read: impl Fn() -> T) -> (Instant, T) {
    loop {
        let (before, value, after) = (clock::now(), read(), clock::now());
        if after.since(before) < Nanos::from_millis(1) {
            return (after, value);
        }
    }
}

/// Uses so much CPU time of the calling thread.
pub fn burn(time: Nanos) {
    let start = clock::thread_cpu();
    while clock::thread_cpu() - start < time {
        std::hint::black_box((0..200u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    }
}

/// Time that the hypervisor has taken from all CPUs, in ticks of 10 ms (`/proc/stat`). A thread's CPU time is without it
/// where the kernel has paravirtual time accounting; the time between two switches of the thread is with it.
pub fn stolen() -> Nanos {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let ticks = stat.split_whitespace().nth(8).and_then(|t| t.parse::<u64>().ok());
    Nanos::from_millis(10 * ticks.expect("the first line is `cpu`, eight counters and those of guests"))
}

/// The room for reservations once what earlier tests held is free again: the same twice, 50 ms apart.
pub fn settled_room() -> Share {
    let mut last = Share::ZERO;
    for _ in 0..40 {
        let room = crate::capacity::probe().expect("who may reserve may probe");
        if room == last && room > Share::ZERO {
            return room;
        }
        last = room;
        std::thread::sleep(Duration::from_millis(50));
    }
    last
}
