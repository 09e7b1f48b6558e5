//! Changes the bandwidth sum of one CPU's run queue and nothing else, by provoking a race in the kernel.
//!
//! If a thread wakes for another CPU that is idle, its reservation is subtracted from the sum of the run queue on which
//! it slept, and its wake-up is queued. The other CPU adds the reservation to its own sum about 25 µs later. A
//! `sched_setattr` in between treats the thread as a sleeper of the new CPU: it subtracts the old reservation there,
//! where it was not yet added, and adds the new one. The new one is then added a second time. From then on the sum is
//! wrong by the new reservation minus the old one. Programs cause this race by chance; [`shift`] causes it on purpose.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use qfabric_types::{Nanos, Reservation, Share, ThreadId};
use rustix::thread::CpuSet;

use crate::cpus::CpuList;
use crate::deadline::refusal;
use crate::mechanism::ApplyError;
use crate::sched_attr::SchedAttr;
use crate::threads;

const SELF: ThreadId = ThreadId(0);
/// Period of the woken thread: it gives the thread a later deadline than that of the thread that wakes it.
const LONG: Nanos = Nanos::from_millis(1_000);
/// Least bandwidth of the woken thread (1 ms of each second), so that it can end.
pub(super) const LEAST: Share = Share::from_ppm(1_000);
/// Budget and period of the thread that wakes it, and of the threads that keep the other CPUs busy.
const HOLDER: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(5));
/// Longest wait for a thread to begin or to fall asleep.
const PATIENCE: Duration = Duration::from_millis(200);

/// Tries once to change the sum of `cpu` by `to − from`. Returns `false` if the thread did not wake on that CPU; the
/// sum is then unchanged. Only [`super::lent_too_much`] can find out if the wake-up was still queued.
///
/// Needs a second CPU, free bandwidth for the larger of `from` and `to`, and 0.2 of each CPU but one.
pub(crate) fn shift(cpu: u32, from: Share, to: Share) -> Result<bool, ApplyError> {
    let others: Vec<u32> = CpuList::online().iter().filter(|other| *other != cpu).collect();
    let Some((&here, busy)) = others.split_first() else { return Ok(false) };
    let attempt = Attempt::default();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| attempt.sleep_twice(here));
        let thread = sleeper.thread().clone();
        let over = EndOnDrop(&attempt, thread.clone());
        wait_until(|| attempt.sleeper().is_some());
        let Some(id) = attempt.sleeper() else { return Ok(false) };
        give(id, reservation(from))?;
        attempt.wake(&thread, 1);
        wait_until(|| attempt.woken.load(Ordering::Acquire) == 1 && threads::is_asleep(id));

        busy.iter().for_each(|cpu| drop(scope.spawn(|| attempt.hold(*cpu))));
        wait_until(|| attempt.holding.load(Ordering::Acquire) == busy.len() as u32);
        let attempt = &attempt;
        let change = move || attempt.wake_and_change(here, &thread, id, reservation(to));
        scope.spawn(change).join().expect("it does not panic")?;
        drop(over);
        Ok(sleeper.join().expect("it does not panic") == [here, cpu])
    })
}

/// State that the threads of one attempt share.
#[derive(Default)]
struct Attempt {
    /// Thread id of the sleeper; 0 before it has started.
    sleeper: AtomicI32,
    /// Number of wake-ups that are requested, and number that happened.
    wakings: AtomicU32,
    woken: AtomicU32,
    /// Number of other CPUs that are kept busy.
    holding: AtomicU32,
    over: AtomicBool,
}

impl Attempt {
    fn sleeper(&self) -> Option<ThreadId> {
        Some(ThreadId(self.sleeper.load(Ordering::Acquire))).filter(|id| id.0 != 0)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the CPUs on which it woke.
    fn sleep_twice(&self, here: u32) -> [u32; 2] {
        go_to(here);
        self.sleeper.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        let at = [1, 2].map(|time| {
            while self.wakings.load(Ordering::Acquire) < time && !self.is_over() {
                std::thread::park();
            }
            self.woken.store(time, Ordering::Release);
            current_cpu()
        });
        while !self.is_over() {
            std::thread::park(); // its reservation may be changing at this moment
        }
        let _ = SchedAttr::fair(0).give_leaving(SELF);
        at
    }

    fn wake(&self, thread: &Thread, time: u32) {
        self.wakings.store(time, Ordering::Release);
        thread.unpark();
    }

    /// Runs on `cpu` with an earlier deadline than the sleeper's, for 1 ms of every 5 ms.
    fn hold(&self, cpu: u32) {
        go_to(cpu);
        let is_held = give(SELF, holder()).is_ok();
        self.holding.fetch_add(1, Ordering::AcqRel);
        while is_held && !self.is_over() {
            std::hint::spin_loop();
        }
        let _ = SchedAttr::fair(0).give_leaving(SELF);
    }

    /// Wakes the sleeper and changes its reservation immediately afterwards. The caller has an earlier deadline than
    /// the sleeper, so the kernel sends the sleeper to the idle CPU.
    fn wake_and_change(&self, here: u32, thread: &Thread, id: ThreadId, to: Reservation) -> Result<(), ApplyError> {
        go_to(here);
        give(SELF, holder())?;
        self.wake(thread, 2);
        let changed = give(id, to);
        let _ = SchedAttr::fair(0).give_leaving(SELF);
        changed
    }
}

/// Ends the sleeper when dropped, on every path.
struct EndOnDrop<'a>(&'a Attempt, Thread);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.1.unpark();
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn give(thread: ThreadId, reservation: Reservation) -> Result<(), ApplyError> {
    SchedAttr::deadline(reservation, false).give(thread).map_err(|error| refusal(thread, reservation, &error))
}

fn reservation(share: Share) -> Reservation {
    let budget = Nanos::new((share.max(LEAST).as_f64() * LONG.as_f64()) as u64);
    Reservation::new(budget, LONG).expect("a thousandth of a CPU or more is one")
}

fn holder() -> Reservation {
    Reservation::new(HOLDER.0, HOLDER.1).expect("a fifth of a CPU is one")
}

/// Moves the calling thread to `cpu`, then allows all CPUs again, because a reserved thread must be allowed on all of
/// them.
fn go_to(cpu: u32) {
    let Ok(everywhere) = rustix::thread::sched_getaffinity(None) else { return };
    let mut there = CpuSet::new();
    there.set(cpu as usize);
    let _ = rustix::thread::sched_setaffinity(None, &there);
    let _ = rustix::thread::sched_setaffinity(None, &everywhere);
}

fn current_cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}
