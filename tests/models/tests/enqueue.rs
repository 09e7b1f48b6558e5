//! Models schedulers in the kernel whose decisions take effect only after the operation has returned
//! (`bpf/sched`). This file repeats the steps of `fair.h` and `members.h` between a decision, the insertion that
//! the kernel makes for it, and the CPU that looks at the queue.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use qfabric_models::explore;

/// The queue of one CPU, and a mark that says whether the queue may hold a thread. An earlier version had this
/// mark.
#[derive(Default)]
struct Own {
    queue: Mutex<u32>,
    marked: AtomicBool,
}

impl Own {
    /// `ops.select_cpu` chooses the queue, then the kernel inserts the thread.
    fn wake(&self) {
        self.marked.store(true, Ordering::SeqCst);
        *self.queue.lock().unwrap() += 1;
    }

    /// A decision: whether a thread waits.
    fn finds_thread(&self, by_mark: bool) -> bool {
        if by_mark && !self.marked.swap(false, Ordering::SeqCst) {
            return false;
        }
        let any = *self.queue.lock().unwrap() > 0;
        if by_mark && any {
            self.marked.store(true, Ordering::SeqCst);
        }
        any
    }
}

/// A CPU takes a hog while a thread wakes. At the end of the hog's time slice, the CPU decides again.
fn a_wake_up_during_a_decision(by_mark: bool) {
    explore(3, move || {
        let own = Arc::new(Own::default());
        let shared = own.clone();
        let waking = thread::spawn(move || shared.wake());
        own.finds_thread(by_mark);
        waking.join().unwrap();
        assert!(own.finds_thread(by_mark), "the decision missed the thread");
    });
}

#[test]
fn the_next_decision_finds_a_thread_that_woke() {
    a_wake_up_during_a_decision(false);
}

#[test]
#[should_panic(expected = "the decision missed the thread")]
fn with_a_mark_the_next_decision_misses_a_thread_that_woke() {
    a_wake_up_during_a_decision(true);
}

/// A server's queue, the state of its CPU, and the queue of another CPU.
#[derive(Default)]
struct Host {
    gone: AtomicBool,
    departures: AtomicU64,
    queue: Mutex<u32>,
    elsewhere: Mutex<u32>,
    /// The lock of the other CPU's run queue, and the number of the departure after which that CPU last gathered
    /// threads.
    other: Mutex<u64>,
}

impl Host {
    /// `ops.enqueue` of a member of the server on the other CPU, and the insertion.
    fn enqueue(&self) {
        let _locked = self.other.lock().unwrap();
        let queue = if self.gone.load(Ordering::SeqCst) { &self.elsewhere } else { &self.queue };
        *queue.lock().unwrap() += 1;
    }

    fn empty(&self) {
        let moved = std::mem::take(&mut *self.queue.lock().unwrap());
        *self.elsewhere.lock().unwrap() += moved;
    }

    /// `qf_suspend`: the CPU leaves.
    fn suspend(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.empty();
        self.departures.fetch_add(1, Ordering::SeqCst);
    }

    /// `qf_gather`, called by the decision of the other CPU.
    fn gather(&self) {
        let mut seen = self.other.lock().unwrap();
        let now = self.departures.load(Ordering::SeqCst);
        if *seen != now {
            *seen = now;
            self.empty();
        }
    }
}

/// The other CPU decides during the departure, and once more after an interrupt.
fn a_thread_enqueued_during_a_departure(gathers: bool) {
    explore(3, move || {
        let host = Arc::new(Host::default());
        let (leaving, deciding) = (host.clone(), host.clone());
        let leaves = thread::spawn(move || leaving.suspend());
        let decides = thread::spawn(move || {
            if gathers {
                deciding.gather();
            }
        });
        host.enqueue();
        leaves.join().unwrap();
        decides.join().unwrap();
        if gathers {
            host.gather();
        }
        assert_eq!(*host.queue.lock().unwrap(), 0, "stranded");
        assert_eq!(*host.elsewhere.lock().unwrap(), 1);
    });
}

#[test]
fn a_thread_enqueued_while_its_servers_cpu_leaves_is_not_stranded() {
    a_thread_enqueued_during_a_departure(true);
}

#[test]
#[should_panic(expected = "stranded")]
fn without_gathering_a_thread_is_stranded() {
    a_thread_enqueued_during_a_departure(false);
}
