//! A model of the handler threads: the very file of the service, run through random orders of its steps (shuttle).

#[allow(dead_code)] // the model needs a part
#[path = "../src/ecalls/crew.rs"]
mod crew;

/// What the file waits with, in the model. Time is no step of its own: a wait with a bound ends when it likes, notified,
/// over, or for no reason, which a condition variable allows.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use shuttle::rand::{Rng, thread_rng};
    pub use shuttle::sync::Condvar;
    use shuttle::sync::{Mutex, MutexGuard};

    pub use qfabric_sync::rank;

    pub struct Lock<T, const RANK: u16>(Mutex<T>);

    pub struct Guard<'a, T, const RANK: u16>(&'a Lock<T, RANK>, MutexGuard<'a, T>);

    impl<T, const RANK: u16> Lock<T, RANK> {
        pub fn new(value: T) -> Self {
            Lock(Mutex::new(value))
        }

        pub fn lock(&self) -> Guard<'_, T, RANK> {
            Guard(self, self.0.lock().unwrap())
        }
    }

    impl<'a, T, const RANK: u16> Guard<'a, T, RANK> {
        pub fn wait(self, condition: &Condvar) -> Self {
            let Guard(lock, value) = self;
            Guard(lock, condition.wait(value).unwrap())
        }

        pub fn wait_timeout(self, _: &Condvar, _: Duration) -> (Self, bool) {
            let Guard(lock, value) = self;
            drop(value);
            shuttle::thread::yield_now();
            (lock.lock(), thread_rng().gen_bool(0.5))
        }
    }

    impl<T, const RANK: u16> Deref for Guard<'_, T, RANK> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.1
        }
    }

    impl<T, const RANK: u16> DerefMut for Guard<'_, T, RANK> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.1
        }
    }
}

use std::time::Duration;

use qfabric_types::Instant;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread::{self, JoinHandle};

use crew::Crew;

const ORDERS: usize = 5_000;
const WORKS: usize = 3;

/// Threads that share work, as the service starts them.
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
        if self.crew.push(Instant::new(work as u64), work) {
            let own = self.clone();
            let thread = thread::spawn(move || own.work());
            self.started.lock().unwrap().push(thread);
        }
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

/// Two threads hand out work, as the dispatcher and a handler thread do.
fn push_from_two(pool: &Pool) {
    let other = pool.clone();
    let pushing = thread::spawn(move || (0..WORKS).for_each(|work| other.push(work)));
    (0..WORKS).for_each(|work| pool.push(WORKS + work));
    pushing.join().unwrap();
}

#[test]
fn all_work_is_done_also_where_it_comes_while_the_last_thread_leaves() {
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
fn an_end_waits_for_all_threads_and_none_comes_after_it() {
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
