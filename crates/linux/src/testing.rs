//! Helpers for tests with the real scheduler: a lock so that one test runs at a time, and threads with known behaviour.

pub mod crowd;
pub mod departures;
pub mod frozen;
pub mod losses;
pub mod power;

pub use crate::release::version as kernel_version;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_types::{Instant, Nanos, Share, ThreadId};

use crate::clock;

/// Waits until no other test uses the real scheduler. The lock is released when dropped.
#[must_use]
pub fn live_lock() -> File {
    use rustix::fs::{FlockOperation, flock};
    let dir = ["/run/lock", "/tmp"].into_iter().find(|d| std::path::Path::new(d).is_dir()).unwrap_or(".");
    let path = format!("{dir}/qfabric-live.lock");
    let file = File::options().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    flock(&file, FlockOperation::LockExclusive).unwrap_or_else(|e| panic!("{path}: {e}"));
    file
}

/// Prints the reason for which a test is skipped, and appends it to the file that `QFABRIC_SKIPS` names: `make test` lists
/// all skips at its end, and fails if this machine has what a test missed (`tests/skips.toml`). In the test machine
/// (`make vm-test`), which has everything that tests need, a skip is a failure.
pub fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var_os("QFABRIC_VM").is_none(), "this test must run in the test machine, but was skipped: {why}");
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os("QFABRIC_SKIPS") else { return };
    let line = format!("{}\t{why}\n", std::thread::current().name().unwrap_or("unnamed"));
    let mut file = File::options().create(true).append(true).open(file).expect("QFABRIC_SKIPS names a file");
    file.write_all(line.as_bytes()).expect("a skip can be recorded");
}

/// True if this process may use SCHED_DEADLINE; otherwise prints that the test is skipped.
pub fn may_reserve() -> bool {
    let may = crate::capability::held(rustix::thread::CapabilitySet::SYS_NICE);
    if !may {
        skip("this test needs CAP_SYS_NICE");
    }
    may
}

/// Aborts the test program with a message if no thread reports progress for [`Watchdog::SILENCE`]. For tests of code
/// that may hang; a slow machine still makes progress.
#[derive(Debug)]
pub struct Watchdog {
    steps: Arc<AtomicU64>,
    /// Dropping it ends the thread.
    _stop: std::sync::mpsc::Sender<()>,
}

impl Watchdog {
    /// Longer than any thread waits for a CPU beside eight hogs per core.
    pub const SILENCE: Duration = Duration::from_secs(120);

    /// Starts the watchdog; `what` names the test in the message.
    pub fn start(what: &str) -> Watchdog {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let steps = Arc::new(AtomicU64::new(0));
        let (seen, what) = (steps.clone(), what.to_owned());
        std::thread::spawn(move || {
            let mut last = u64::MAX;
            while stopped.recv_timeout(Watchdog::SILENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let now = seen.load(Ordering::Relaxed);
                if now == last {
                    // `eprintln` does not work here: the test harness captures its output.
                    let silence = Watchdog::SILENCE;
                    let _ = writeln!(io::stderr(), "{what}: no progress for {silence:?} after {now} steps");
                    std::process::abort();
                }
                last = now;
            }
        });
        Watchdog { steps, _stop: stop }
    }

    pub fn progress(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread of this process with known behaviour; ends when dropped.
#[derive(Debug)]
pub struct Worker {
    pub thread: ThreadId,
    used: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    join: Option<JoinHandle<()>>,
}

impl Worker {
    /// A thread that sleeps.
    pub fn sleeping() -> Worker {
        Worker::start(|| std::thread::sleep(Duration::from_millis(1)))
    }

    /// A thread that uses all CPU time it can get.
    pub fn burning() -> Worker {
        Worker::start(|| burn(Nanos::from_micros(100)))
    }

    /// A thread that uses `busy` of CPU time, then sleeps until the next multiple of `period`.
    pub fn periodic(period: Nanos, busy: Nanos) -> Worker {
        let mut next = clock::now();
        Worker::start(move || {
            burn(busy);
            next = next + period;
            std::thread::sleep(Duration::from_nanos(next.since(clock::now()).get()));
        })
    }

    /// A thread that calls `turn` repeatedly.
    pub fn start(mut turn: impl FnMut() + Send + 'static) -> Worker {
        let (used, turns, stop) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (in_used, in_turns, in_stop) = (used.clone(), turns.clone(), stop.clone());
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let body = move || {
            let _ = id_sender.send(rustix::thread::gettid().as_raw_nonzero().get());
            while !in_stop.load(Ordering::Relaxed) {
                turn();
                in_used.store(clock::thread_cpu().get(), Ordering::Relaxed);
                in_turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        let join = std::thread::Builder::new().name("qf-worker".into()).spawn(body).expect("a test may start threads");
        let thread = ThreadId(id_receiver.recv().expect("the thread sends its id first"));
        Worker { thread, used, turns, stop, join: Some(join) }
    }

    /// CPU time used up to the end of the last turn.
    pub fn used(&self) -> Nanos {
        Nanos::new(self.used.load(Ordering::Relaxed))
    }

    /// Number of finished turns.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Measures the share of one CPU that the thread gets during the next `length`.
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

/// Returns a value and the time at which it was read. Reads again if the reading took 1 ms or longer.
pub fn at_one_moment<T>(read: impl Fn() -> T) -> (Instant, T) {
    loop {
        let (before, value, after) = (clock::now(), read(), clock::now());
        if after.since(before) < Nanos::from_millis(1) {
            return (after, value);
        }
    }
}

/// Uses `time` of CPU time in the calling thread.
pub fn burn(time: Nanos) {
    let start = clock::thread_cpu();
    while clock::thread_cpu() - start < time {
        std::hint::black_box((0..200u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    }
}

/// Time that the hypervisor has taken from all CPUs, in ticks of 10 ms (`/proc/stat`). With paravirtual time
/// accounting, the CPU time of a thread excludes this time; the time between two context switches of the thread
/// includes it.
pub fn stolen() -> Nanos {
    stolen_in("cpu")
}

/// Time that the hypervisor has taken from one CPU; see [`stolen`].
pub fn stolen_from(cpu: u32) -> Nanos {
    stolen_in(&format!("cpu{cpu}"))
}

fn stolen_in(line: &str) -> Nanos {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let fields = stat.lines().map(str::split_whitespace).find_map(|mut f| (f.next() == Some(line)).then_some(f));
    let ticks = fields.and_then(|mut fields| fields.nth(7)?.parse::<u64>().ok());
    Nanos::from_millis(10 * ticks.expect("each line is a name, eight counters and those of guests"))
}

/// Bandwidth that can be reserved after earlier tests have ended: waits until two probes, 50 ms apart, agree.
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
