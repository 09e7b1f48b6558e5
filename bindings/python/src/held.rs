//! What a Python object holds, and threads use one after the other.
//!
//! Whoever waits for a lock must not hold the interpreter: the thread that has the lock may need it to go on, and all
//! other threads stand still meanwhile. So the lock is taken here alone, and without the interpreter.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::ecalls::value_error;

/// Something that may have ended; `None` then.
pub(crate) struct Held<T: Send>(Mutex<Option<T>>);

impl<T: Send> Held<T> {
    pub fn new(value: T) -> Self {
        Held(Mutex::new(Some(value)))
    }

    /// Runs `act` on it, without the interpreter; a `ValueError` with `ended` where it is gone.
    pub fn with<A: Send>(
        &self,
        py: Python<'_>,
        ended: &str,
        act: impl FnOnce(&mut T) -> PyResult<A> + Send,
    ) -> PyResult<A> {
        py.detach(|| self.locked().as_mut().map_or_else(|| Err(value_error(ended)), act))
    }

    /// Ends it by `end`, without the interpreter and without the lock, which only says who ends it. None: it had ended.
    pub fn end<A: Send>(&self, py: Python<'_>, end: impl FnOnce(T) -> A + Send) -> Option<A> {
        py.detach(|| {
            let taken = self.locked().take();
            taken.map(end)
        })
    }

    fn locked(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Drop for Held<T> {
    /// Collected by the interpreter, it asks the daemon to end it: other threads run meanwhile.
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            without_interpreter(|| drop(held));
        }
    }
}

/// Runs `act` while other Python threads may run, too; also where the interpreter is ending.
pub(crate) fn without_interpreter(act: impl FnOnce() + Send) {
    let mut act = Some(act);
    let done = Python::try_attach(|py| py.detach(|| act.take().map(|act| act())));
    if done.is_none()
        && let Some(act) = act
    {
        act();
    }
}
