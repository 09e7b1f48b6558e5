//! A condition variable for [`crate::Lock`].
//!
//! The standard library's condition variable works only with its own mutex. This one uses the same algorithm: a
//! thread sleeps on a counter of notifications as long as the counter has the value from before the thread released
//! the lock. After the sleep the thread takes the lock like any other thread, in the order of priorities.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use linux_futex::{Futex, Private, TimedWaitError};

/// The longest sleep that is requested from the kernel, about 34 years: longer values may not fit into its seconds.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Wakes threads that wait by [`crate::Guard::wait`].
#[derive(Default)]
pub struct Condvar(Futex<Private>);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(Futex::new(0))
    }

    /// Wakes one thread.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.notify(i32::MAX);
    }

    /// `Relaxed` suffices: the lock, under which both sides read the counter, orders it with the caller's changes.
    fn notify(&self, most: i32) {
        self.0.value.fetch_add(1, Relaxed);
        self.0.wake(most);
    }

    /// `without_the_lock` releases the lock, runs its argument, and takes the lock again. May return without a
    /// notification.
    pub(crate) fn wait(&self, without_the_lock: impl FnOnce(&mut dyn FnMut())) {
        let count = self.0.value.load(Relaxed);
        without_the_lock(&mut || {
            // A notification since the load above, or a signal, ends the wait as well.
            let _ = self.0.wait(count);
        });
    }

    /// Like [`Condvar::wait`]; returns `true` if `longest` passed without a notification.
    pub(crate) fn wait_timeout(&self, longest: Duration, without_the_lock: impl FnOnce(&mut dyn FnMut())) -> bool {
        let count = self.0.value.load(Relaxed);
        let mut is_over = false;
        without_the_lock(&mut || {
            is_over = self.0.wait_for(count, longest.min(LONGEST)) == Err(TimedWaitError::TimedOut);
        });
        is_over
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::Lock;

    type Count = Lock<usize, 1>;

    const THREADS: usize = 8;

    /// Joins each thread explicitly: ThreadSanitizer does not see how a scope waits for its threads.
    fn join<'a>(threads: impl IntoIterator<Item = thread::ScopedJoinHandle<'a, ()>>) {
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Each thread passes the turn on in every round; one lost notification stops all of them.
    #[test]
    fn no_notification_is_lost() {
        let (turn, changed) = (Count::new(0), Condvar::new());
        thread::scope(|scope| {
            let (turn, changed) = (&turn, &changed);
            let turns = |own: usize| {
                for round in 0..500 {
                    let mut at = turn.lock();
                    while *at != round * THREADS + own {
                        at = at.wait(changed);
                    }
                    *at += 1;
                    drop(at);
                    changed.notify_all();
                }
            };
            join(std::array::from_fn::<_, THREADS, _>(|own| own).map(|own| scope.spawn(move || turns(own))));
        });
        assert_eq!(*turn.lock(), 500 * THREADS);
    }

    #[test]
    fn notify_one_wakes_a_thread_and_notify_all_wakes_the_rest() {
        let (ready, changed, woken) = (Count::new(0), Condvar::new(), AtomicUsize::new(0));
        thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| {
                scope.spawn(|| {
                    let mut left = ready.lock();
                    while *left == 0 {
                        left = left.wait(&changed);
                    }
                    *left -= 1;
                    woken.fetch_add(1, Relaxed);
                })
            });
            ready.with(|left| *left = 1);
            changed.notify_one();
            while woken.load(Relaxed) < 1 {
                thread::yield_now();
            }
            ready.with(|left| *left = THREADS - 1);
            changed.notify_all();
            join(threads);
        });
        assert_eq!((woken.into_inner(), *ready.lock()), (THREADS, 0));
    }

    #[test]
    fn a_wait_with_a_bound_ends_and_holds_the_lock_again() {
        let (value, changed) = (Count::new(7), Condvar::new());
        let (mut guard, mut is_over) = value.lock().wait_timeout(&changed, Duration::from_millis(1));
        while !is_over {
            (guard, is_over) = guard.wait_timeout(&changed, Duration::from_millis(1));
        }
        let other = thread::scope(|scope| scope.spawn(|| value.try_lock().is_none()).join().unwrap());
        assert_eq!((*guard, other), (7, true));
    }

    /// A bound that the kernel's clock cannot hold is cut, not refused.
    #[test]
    fn a_wait_with_an_endless_bound_is_notified() {
        let (value, changed) = (Count::new(0), Condvar::new());
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut at = value.lock();
                while *at == 0 {
                    at = at.wait_timeout(&changed, Duration::MAX).0;
                }
            });
            value.with(|at| *at = 1);
            changed.notify_all();
            join([waits]);
        });
    }
}
