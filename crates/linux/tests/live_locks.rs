//! Priority inheritance: a high-priority thread waits for a lock whose holder has no priority, with a third thread of
//! medium priority on the same CPU.

use std::fs;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use qfabric_linux::clock;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_sync::{Condvar, Lock};
use qfabric_types::{Nanos, ThreadId};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const MIDDLE: u32 = 20;
const HIGH: u32 = 30;
/// The priority `HIGH` as `/proc` shows it.
const INHERITED: i32 = -1 - HIGH as i32;

/// CPU time after which the medium-priority thread gives up, so that the test ends if no priority is inherited. It is
/// less than what the kernel lets real-time threads use in a row.
const MOST: Nanos = Nanos::from_millis(300);

/// Pins the calling thread to one CPU, the same in all threads of a test, and gives it a real-time priority if asked.
fn pin_here(priority: Option<u32>) {
    let mut allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    allowed.clear();
    allowed.set(first);
    sched_setaffinity(None, &allowed).unwrap();
    if let Some(priority) = priority {
        SchedAttr::fifo(priority).give(ThreadId(0)).unwrap();
    }
}

/// The effective priority of the calling thread, inherited or its own, as `/proc` shows it: negative for real-time
/// priorities, 0 or more without a real-time policy.
fn priority() -> i32 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// What the three threads of the test share. No thread starts before all have their priorities: a high-priority thread
/// that does not have its priority yet would wait until the medium-priority thread ends.
struct Shared {
    lock: Lock<u32, 1>,
    all_ready: Barrier,
    hog_started: AtomicBool,
    lock_taken: AtomicBool,
    hog_ended: AtomicBool,
}

impl Shared {
    fn new() -> Shared {
        let [hog_started, lock_taken, hog_ended] = [const { AtomicBool::new(false) }; 3];
        Shared { lock: Lock::new(0), all_ready: Barrier::new(3), hog_started, lock_taken, hog_ended }
    }

    /// Holds the lock until the hog runs. Returns the priority right before the release.
    fn hold(&self, held: Sender<()>) -> i32 {
        pin_here(None);
        self.all_ready.wait();
        self.lock.with(|_| {
            held.send(()).unwrap();
            while !self.hog_started.load(Ordering::SeqCst) {
                spin_loop();
            }
            priority()
        })
    }

    /// The medium-priority thread: starts the high-priority thread as its first step and then keeps the CPU.
    fn hog(&self, is_held: Receiver<()>, starts: Sender<()>) {
        pin_here(Some(MIDDLE));
        self.all_ready.wait();
        is_held.recv().unwrap();
        self.hog_started.store(true, Ordering::SeqCst);
        starts.send(()).unwrap();
        while !self.lock_taken.load(Ordering::SeqCst) && clock::thread_cpu() < MOST {
            spin_loop();
        }
        self.hog_ended.store(true, Ordering::SeqCst);
    }

    /// The high-priority thread. Returns whether the hog still ran when it got the lock.
    fn take(&self, hog_starts: Receiver<()>) -> bool {
        pin_here(Some(HIGH));
        self.all_ready.wait();
        hog_starts.recv().unwrap();
        self.lock.with(|value| *value += 1);
        self.lock_taken.store(true, Ordering::SeqCst);
        !self.hog_ended.load(Ordering::SeqCst)
    }
}

#[test]
fn the_holder_of_a_lock_runs_with_the_priority_of_the_thread_that_waits_for_it() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let shared = &Shared::new();
    let ((held, is_held), (starts, hog_starts)) = (channel(), channel());
    let (holder, hog_runs) = thread::scope(|scope| {
        let waiting = scope.spawn(move || shared.take(hog_starts));
        scope.spawn(move || shared.hog(is_held, starts));
        let holder = scope.spawn(move || shared.hold(held));
        (holder.join().unwrap(), waiting.join().unwrap())
    });
    assert_eq!(holder, INHERITED, "the priority of the holder right before it released the lock");
    assert!(hog_runs, "the medium-priority thread ran to its end before the lock was taken");
}

/// A notified thread takes the lock again, here from the thread that notified it and still holds the lock.
#[test]
fn a_notified_thread_lends_its_priority_to_the_lock_holder_too() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (step, changed) = (Lock::<u32, 1>::new(0), Condvar::new());
    let holder = thread::scope(|scope| {
        scope.spawn(|| {
            pin_here(Some(HIGH));
            let mut at = step.lock();
            *at = 1;
            while *at == 1 {
                at = at.wait(&changed);
            }
        });
        pin_here(None);
        while step.with(|at| *at == 0) {
            thread::yield_now();
        }
        step.with(|at| {
            *at = 2;
            changed.notify_all();
            priority()
        })
    });
    assert_eq!(holder, INHERITED, "the priority of the holder after it notified");
}
