//! What a scheduler of the kernel orders is carried out when its operation has returned (`bpf/sched`): the steps of
//! `fair.h` and `members.h` between a verdict, its insertion, and the CPU that looks, written down once more.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use qfabric_models::explore;

/// The queue of one CPU, and the mark that once said whether it is worth a look.
#[derive(Default)]
struct Own {
    queue: Mutex<u32>,
    marked: AtomicBool,
}

impl Own {
    /// `ops.select_cpu` orders, the kernel inserts.
    fn wake(&self) {
        self.marked.store(true, Ordering::SeqCst);
        *self.queue.lock().unwrap() += 1;
    }

    /// A decision: whether anybody waits.
    fn sees(&self, by_mark: bool) -> bool {
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

/// A CPU takes a hog while a thread wakes; at the end of the hog's turn it decides again.
fn a_wake_up_beside_a_decision(by_mark: bool) {
    explore(3, move || {
        let own = Arc::new(Own::default());
        let theirs = own.clone();
        let waking = thread::spawn(move || theirs.wake());
        own.sees(by_mark);
        waking.join().unwrap();
        assert!(own.sees(by_mark), "the thread is invisible");
    });
}

#[test]
fn a_thread_that_wakes_is_seen_at_the_next_decision() {
    a_wake_up_beside_a_decision(false);
}

#[test]
#[should_panic(expected = "the thread is invisible")]
fn with_a_mark_it_would_not_be() {
    a_wake_up_beside_a_decision(true);
}

/// A server's queue, its CPU's state, and another CPU's run queue.
#[derive(Default)]
struct Host {
    gone: AtomicBool,
    departures: AtomicU64,
    queue: Mutex<u32>,
    elsewhere: Mutex<u32>,
    /// The lock of the other CPU's run queue; the departure it has gathered after.
    other: Mutex<u64>,
}

impl Host {
    /// `ops.enqueue` of the server's member on the other CPU, and the insertion.
    fn enqueue(&self) {
        let _locked = self.other.lock().unwrap();
        let queue = if self.gone.load(Ordering::SeqCst) { &self.elsewhere } else { &self.queue };
        *queue.lock().unwrap() += 1;
    }

    fn empty(&self) {
        let moved = std::mem::take(&mut *self.queue.lock().unwrap());
        *self.elsewhere.lock().unwrap() += moved;
    }

    /// `qf_suspend`.
    fn suspend(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.empty();
        self.departures.fetch_add(1, Ordering::SeqCst);
    }

    /// `qf_gather`, with the other CPU's decision.
    fn gather(&self) {
        let mut seen = self.other.lock().unwrap();
        let now = self.departures.load(Ordering::SeqCst);
        if *seen != now {
            *seen = now;
            self.empty();
        }
    }
}

/// The other CPU decides beside it, and once more when it has been interrupted.
fn a_thread_enqueued_beside_a_departure(gathers: bool) {
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
fn a_thread_enqueued_while_its_servers_cpu_goes_is_not_stranded() {
    a_thread_enqueued_beside_a_departure(true);
}

#[test]
#[should_panic(expected = "stranded")]
fn without_gathering_it_would_be() {
    a_thread_enqueued_beside_a_departure(false);
}
