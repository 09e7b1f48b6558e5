//! Changing what the run queue of one CPU has summed up, and nothing else.
//!
//! Where a thread wakes for another CPU that is idle, its reservation is subtracted from the sum of the run queue that it
//! slept on, and its wake-up is queued; the other CPU adds the reservation to its own sum when it comes to it, some 25 µs
//! later. `sched_setattr` in between takes the thread for a sleeper of the new CPU: it subtracts the old reservation there,
//! where nobody had added it, and adds the new one, which is then added once more. So the sum is wrong by the new
//! reservation less the old one, from then on. Programs come to this by chance; [`shift`] does it with intent.

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
/// Period of the thread that is woken: its deadline is then later than that of the one that wakes it.
const LONG: Nanos = Nanos::from_millis(1_000);
/// The least that it is given, so that it can end in peace: 1 ms of each second.
pub(super) const LEAST: Share = Share::from_ppm(1_000);
/// The thread that wakes it, and those that keep further CPUs busy meanwhile.
const HOLDER: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(5));
/// How long a thread may take to begin, or to fall asleep.
const PATIENCE: Duration = Duration::from_millis(200);

/// Tries once to change the sum of `cpu` by `to − from`. `false`: the thread did not wake there, so nothing was changed.
/// Whether its wake-up was still queued nobody tells but [`super::lent_too_much`].
///
/// Needs a second CPU, and room for the larger of `from` and `to` and 0.2 of each CPU but one.
pub(crate) fn shift(cpu: u32, from: Share, to: Share) -> Result<bool, ApplyError> {
    let others: Vec<u32> = CpuList::online().iter().filter(|other| *other != cpu).collect();
    let Some((&here, busy)) = others.split_first() else { return Ok(false) };
    let scene = Scene::default();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| scene.sleep_twice(here));
        let thread = sleeper.thread().clone();
        let over = Over(&scene, thread.clone());
        until(|| scene.sleeper().is_some());
        let Some(id) = scene.sleeper() else { return Ok(false) };
        give(id, reservation(from))?;
        scene.wake(&thread, 1);
        until(|| scene.woken.load(Ordering::Acquire) == 1 && threads::is_asleep(id));

        busy.iter().for_each(|cpu| drop(scope.spawn(|| scene.hold(*cpu))));
        until(|| scene.holding.load(Ordering::Acquire) == busy.len() as u32);
        let scene = &scene;
        let change = move || scene.wake_and_change(here, &thread, id, reservation(to));
        scope.spawn(change).join().expect("it does not panic")?;
        drop(over);
        Ok(sleeper.join().expect("it does not panic") == [here, cpu])
    })
}

/// What the threads of one try know of each other.
#[derive(Default)]
struct Scene {
    /// Who sleeps; 0: not there yet.
    sleeper: AtomicI32,
    /// How often it is to be awake, and how often it was.
    wakings: AtomicU32,
    woken: AtomicU32,
    /// How many further CPUs are kept busy.
    holding: AtomicU32,
    over: AtomicBool,
}

impl Scene {
    fn sleeper(&self) -> Option<ThreadId> {
        Some(ThreadId(self.sleeper.load(Ordering::Acquire))).filter(|id| id.0 != 0)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Answers where it woke each time.
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
            std::thread::park(); // its reservation may just be changed
        }
        let _ = SchedAttr::fair(0).give_leaving(SELF);
        at
    }

    fn wake(&self, thread: &Thread, time: u32) {
        self.wakings.store(time, Ordering::Release);
        thread.unpark();
    }

    /// Runs on `cpu` under an earlier deadline than the sleeper's, for a millisecond of each five.
    fn hold(&self, cpu: u32) {
        go_to(cpu);
        let is_held = give(SELF, holder()).is_ok();
        self.holding.fetch_add(1, Ordering::AcqRel);
        while is_held && !self.is_over() {
            std::hint::spin_loop();
        }
        let _ = SchedAttr::fair(0).give_leaving(SELF);
    }

    /// The two calls that matter, one right after the other, from under an earlier deadline than the sleeper's: so it is
    /// sent to the CPU that is idle.
    fn wake_and_change(&self, here: u32, thread: &Thread, id: ThreadId, to: Reservation) -> Result<(), ApplyError> {
        go_to(here);
        give(SELF, holder())?;
        self.wake(thread, 2);
        let changed = give(id, to);
        let _ = SchedAttr::fair(0).give_leaving(SELF);
        changed
    }
}

/// Lets the sleeper end, whatever happened.
struct Over<'a>(&'a Scene, Thread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.1.unpark();
    }
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !what() && Instant::now() < end {
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

/// Moves the calling thread to a CPU, and lets it go where it likes from there: a reserved thread must be allowed everywhere.
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
