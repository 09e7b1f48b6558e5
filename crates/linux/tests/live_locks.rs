//! Priority inheritance: a high-priority thread waits for a lock whose holder has no priority, with a third thread of
//! medium priority on the same CPU.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
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

/// The holder waits until the medium-priority thread runs, which starts the high-priority thread as its first step and
/// then keeps the CPU. No thread starts before all have their priorities: a high-priority thread that does not have its
/// priority yet would wait until the medium-priority thread ends.
#[test]
fn the_holder_of_a_lock_runs_with_the_priority_of_the_thread_that_waits_for_it() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let lock = &Lock::<u32, 1>::new(0);
    let ((held, is_held), (hog, hog_starts)) = (channel(), channel());
    let all_ready = &Barrier::new(3);
    let [started, got, ended] = &[const { AtomicBool::new(false) }; 3];
    let (holder, hog_runs) = thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            pin_here(Some(HIGH));
            all_ready.wait();
            hog_starts.recv().unwrap();
            lock.with(|value| *value += 1);
            got.store(true, Ordering::SeqCst);
            !ended.load(Ordering::SeqCst)
        });
        scope.spawn(move || {
            pin_here(Some(MIDDLE));
            all_ready.wait();
            is_held.recv().unwrap();
            started.store(true, Ordering::SeqCst);
            hog.send(()).unwrap();
            while !got.load(Ordering::SeqCst) && clock::thread_cpu() < MOST {}
            ended.store(true, Ordering::SeqCst);
        });
        let holder = scope.spawn(move || {
            pin_here(None);
            all_ready.wait();
            lock.with(|_| {
                held.send(()).unwrap();
                while !started.load(Ordering::SeqCst) {}
                priority()
            })
        });
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
