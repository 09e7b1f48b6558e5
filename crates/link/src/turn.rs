//! A value that threads have in turn, and a way to wait with it.
//!
//! The standard library's mutex goes to whoever asks at the right moment, and that is the thread that has just given it
//! back and comes again: a source that floods kept a control event of the same host waiting for half a second, and the
//! receive thread with it. A [`Lock`] is handed over to a thread that waits: a thread that comes again is behind it. Among
//! threads of one priority nobody waits for more turns than there are threads.

use std::time::Duration;

use qfabric_sync::{Condvar, Guard, Lock, rank};

/// A value that threads have in turn.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    value: Lock<T, { rank::NODE }>,
    /// Wakes the one thread that waits with the value's guard.
    wakes: Condvar,
}

/// The value, until this is dropped.
pub(crate) type Taken<'a, T> = Guard<'a, T, { rank::NODE }>;

impl<T> Turn<T> {
    pub fn new(value: T) -> Turn<T> {
        Turn { value: Lock::new(value), wakes: Condvar::new() }
    }

    /// A panic of the one before is its own: the others go on with what it left.
    pub fn lock(&self) -> Taken<'_, T> {
        self.value.lock()
    }

    /// Gives the value back until [`Turn::wake`], or for so long.
    pub fn wait<'a>(&self, taken: Taken<'a, T>, longest: Option<Duration>) -> Taken<'a, T> {
        match longest {
            Some(longest) => taken.wait_timeout(&self.wakes, longest).0,
            None => taken.wait(&self.wakes),
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
