//! Replaces `src/ecalls/sync.rs` in models: the same names, with shuttle's locks and atomics.
//!
//! Time is not modelled. A thread's bounded wait ends at any time: notified, timed out, or spuriously, which a
//! condition variable allows. The dispatcher's wait ends only by a nudge, so that an event that only the timeout
//! would find is a deadlock.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use qfabric_types::Nanos;
use shuttle::rand::{Rng, thread_rng};
pub(crate) use shuttle::sync::Condvar;
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Mutex, MutexGuard};

pub(crate) use qfabric_sync::rank;

/// One, so that a queue with two events needs two turns.
pub(crate) const DELIVERIES_PER_TURN: usize = 1;

pub(crate) struct Lock<T, const RANK: u16>(Mutex<T>);

pub(crate) struct Guard<'a, T, const RANK: u16>(&'a Lock<T, RANK>, MutexGuard<'a, T>);

/// Replaces epoll: whether there was a nudge.
#[derive(Default)]
pub(crate) struct Sources {
    nudged: Mutex<bool>,
    happened: Condvar,
}

/// Empty, because nudges are the only source in a model.
pub(crate) struct ReadySources;

pub(crate) fn lock<T, const RANK: u16>(lock: &Lock<T, RANK>) -> Guard<'_, T, RANK> {
    lock.lock()
}

impl<T, const RANK: u16> Lock<T, RANK> {
    pub(crate) fn new(value: T) -> Self {
        Lock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T, RANK> {
        Guard(self, self.0.lock().unwrap())
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}

impl<'a, T, const RANK: u16> Guard<'a, T, RANK> {
    pub(crate) fn wait(self, condition: &Condvar) -> Self {
        let Guard(lock, value) = self;
        Guard(lock, condition.wait(value).unwrap())
    }

    pub(crate) fn wait_timeout(self, _: &Condvar, _: Duration) -> (Self, bool) {
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

impl ReadySources {
    pub(crate) fn new() -> ReadySources {
        ReadySources
    }
}

impl Sources {
    pub(crate) fn nudge(&self) {
        *self.nudged.lock().unwrap() = true;
        self.happened.notify_all();
    }

    pub(crate) fn wait(&self, _: &mut ReadySources, longest: Nanos) -> bool {
        let mut nudged = self.nudged.lock().unwrap();
        while !*nudged && longest > Nanos::ZERO {
            nudged = self.happened.wait(nudged).unwrap();
        }
        *nudged
    }

    pub(crate) fn clear_nudge(&self) {
        *self.nudged.lock().unwrap() = false;
    }
}
