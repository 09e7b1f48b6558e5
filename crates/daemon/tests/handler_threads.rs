//! Model check of the handler threads: runs the source file of the service through random orders of its steps
//! (shuttle).

#[allow(dead_code)] // the model needs a part
#[path = "../src/ecalls/crew.rs"]
mod crew;

#[allow(dead_code, unused_imports)] // as above
#[path = "shuttle/sync.rs"]
mod sync;

use std::time::Duration;

use qfabric_types::Instant;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread::{self, JoinHandle};

use crew::Crew;

const ORDERS: usize = 5_000;
const WORKS: usize = 3;

/// Threads that share work; started as in the service.
#[derive(Clone)]
struct Pool {
    crew: Arc<Crew<usize>>,
    started: Arc<Mutex<Vec<JoinHandle<()>>>>,
    done: Arc<AtomicUsize>,
}

impl Pool {
    fn new(most: usize) -> Pool {
        Pool { crew: Arc::new(Crew::new(most, 2 * WORKS)), started: Arc::default(), done: Arc::default() }
    }

    fn push(&self, work: usize) {
        if self.crew.push(Instant::new(work as u64), 0, work) {
            self.start();
        }
    }

    fn start(&self) {
        let own = self.clone();
        let thread = thread::spawn(move || own.work());
        self.started.lock().unwrap().push(thread);
    }

    fn work(&self) {
        while self.crew.next(Duration::ZERO).is_some() {
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn join(&self) {
        loop {
            let Some(thread) = self.started.lock().unwrap().pop() else { return };
            thread.join().unwrap();
        }
    }
}

/// Two threads push work, as the dispatcher and a handler thread do.
fn push_from_two(pool: &Pool) {
    let other = pool.clone();
    let pushing = thread::spawn(move || (0..WORKS).for_each(|work| other.push(work)));
    (0..WORKS).for_each(|work| pool.push(WORKS + work));
    pushing.join().unwrap();
}

#[test]
fn all_work_is_done_even_if_it_arrives_while_the_last_thread_leaves() {
    for most in [1, 2] {
        let run = move || {
            let pool = Pool::new(most);
            push_from_two(&pool);
            pool.join();
            assert_eq!((pool.done.load(Ordering::SeqCst), pool.crew.threads()), (2 * WORKS, 0));
        };
        shuttle::check_random(run, ORDERS);
    }
}

#[test]
fn a_stop_waits_for_all_threads_and_no_thread_starts_after_it() {
    let run = || {
        let pool = Pool::new(2);
        let other = pool.clone();
        let ending = thread::spawn(move || {
            other.crew.stop();
            other.crew.threads()
        });
        push_from_two(&pool);
        assert_eq!(ending.join().unwrap(), 0);
        pool.join();
    };
    shuttle::check_random(run, ORDERS);
}

/// The work of the failed thread is done by a thread that the next event starts, although that event adds no work of
/// its own: the subscription is in the queue already.
#[test]
fn work_whose_thread_could_not_be_started_is_done_after_the_next_event() {
    let run = || {
        let pool = Pool::new(2);
        assert!(pool.crew.push(Instant::ZERO, 0, 0));
        let other = pool.clone();
        let next = thread::spawn(move || {
            if other.crew.is_abandoned() {
                other.start();
            }
        });
        pool.crew.leave();
        next.join().unwrap();
        if pool.crew.is_abandoned() {
            pool.start();
        }
        pool.join();
        assert_eq!((pool.done.load(Ordering::SeqCst), pool.crew.threads(), pool.crew.is_empty()), (1, 0, true));
    };
    shuttle::check_random(run, ORDERS);
}
