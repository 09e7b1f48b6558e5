//! A fair lock around a value, with a way to wait.
//!
//! The standard library's mutex goes to the thread that asks at the right moment, which is usually the thread that has just
//! released it. With that mutex a source that floods kept a control event of the same host, and the receive thread, waiting
//! for half a second. A [`Lock`] is handed to a waiting thread, so a thread that asks again comes behind it. Among threads of
//! one priority no thread waits for more turns than there are threads.

use std::time::Duration;

use qfabric_sync::{Condvar, Guard, Lock, rank};

/// A value that threads use in turn.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    value: Lock<T, { rank::NODE }>,
    /// Wakes the thread that waits with the guard.
    wakes: Condvar,
}

/// Access to the value until this guard is dropped.
pub(crate) type Taken<'a, T> = Guard<'a, T, { rank::NODE }>;

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Turn<T> {
        Turn { value: Lock::new(value), wakes: Condvar::new() }
    }

    /// A panic of an earlier holder is ignored: other threads go on with the value as it is.
    pub(crate) fn lock(&self) -> Taken<'_, T> {
        self.value.lock()
    }

    /// Releases the value until [`Turn::wake`], or for at most `longest`.
    pub(crate) fn wait<'a>(&self, taken: Taken<'a, T>, longest: Option<Duration>) -> Taken<'a, T> {
        match longest {
            Some(longest) => taken.wait_timeout(&self.wakes, longest).0,
            None => taken.wait(&self.wakes),
        }
    }

    /// Wakes the thread that waits.
    pub(crate) fn wake(&self) {
        self.wakes.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// Holds of one millisecond without a pause. The median counts, because this thread itself may lose the processor
    /// between two holds.
    #[test]
    fn a_thread_that_comes_again_and_again_lets_others_have_their_turn() {
        let turn = Arc::new(Turn::new(0_u32));
        let end = Arc::new(AtomicBool::new(false));
        let (floods, ends) = (Arc::clone(&turn), Arc::clone(&end));
        let flood = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let mut count = floods.lock();
                *count += 1;
                thread::sleep(Duration::from_millis(1));
            }
        });
        let taken = |own: u32| *turn.lock() - own;
        let mut turns: Vec<u32> = (0..21).map(|_| *turn.lock()).map(taken).collect();
        turns.sort();
        assert!(turns[10] <= 3, "the flood had more than its turns: {turns:?}");
        end.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    }

    #[test]
    fn a_waiting_thread_is_woken_or_comes_by_itself() {
        let turn = Arc::new(Turn::new(0));
        let other = Arc::clone(&turn);
        let waits = thread::spawn(move || {
            let mut guard = other.lock();
            while *guard == 0 {
                guard = other.wait(guard, None);
            }
            *other.wait(guard, Some(Duration::from_millis(1)))
        });
        *turn.lock() = 7;
        turn.wake();
        assert_eq!(waits.join().unwrap(), 7);
    }
}
