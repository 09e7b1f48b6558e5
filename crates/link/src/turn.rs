//! A lock that is given in turn.
//!
//! The standard library's mutex goes to whoever asks at the right moment, and that is the thread that has just given it
//! back and comes again: a source that floods kept a control event of the same host waiting for half a second, and the
//! receive thread with it. Here whoever wants the value first takes a second lock, the door, and keeps it until it has
//! the value: who comes again finds the door taken by the one that waits, and is next. Nobody waits for more turns than
//! there are threads; where nobody else is, the door costs about ten nanoseconds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A value that threads have in turn.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    door: Mutex<()>,
    value: Mutex<T>,
    /// Wakes the one thread that waits with the value's guard.
    wakes: Condvar,
}

impl<T> Turn<T> {
    pub fn new(value: T) -> Turn<T> {
        Turn { door: Mutex::new(()), value: Mutex::new(value), wakes: Condvar::new() }
    }

    /// A panic of the one before is its own: the others go on with what it left.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the value back until [`Turn::wake`], or for so long. Who was waiting gets it again without the door: only
    /// the timer's thread does, and it does not come often.
    pub fn wait<'a>(&self, guard: MutexGuard<'a, T>, longest: Option<Duration>) -> MutexGuard<'a, T> {
        match longest {
            Some(longest) => self.wakes.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0,
            None => self.wakes.wait(guard).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Wakes the thread that waits.
    pub fn wake(&self) {
        self.wakes.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// A millisecond at a time, without a pause. The middle one counts: between two of its own this thread may itself be
    /// kept from the processor.
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
