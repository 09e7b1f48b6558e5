//! The native value behind a Python object, for one thread at a time.
//!
//! A thread that waits for a lock must not hold the interpreter lock: the owner of the lock may need the interpreter
//! to continue, and all other threads would stop meanwhile. So the lock is taken only in this file, and without the
//! interpreter.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::ecalls::value_error;

/// A value that may have ended; None then.
pub(crate) struct Held<T: Send>(Mutex<Option<T>>);

impl<T: Send> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Held(Mutex::new(Some(value)))
    }

    /// Runs `act` on the value, without the interpreter. Raises `ValueError` with the text `ended` if the value has
    /// ended.
    pub(crate) fn with<A: Send>(
        &self,
        py: Python<'_>,
        ended: &str,
        act: impl FnOnce(&mut T) -> PyResult<A> + Send,
    ) -> PyResult<A> {
        py.detach(|| self.locked().as_mut().map_or_else(|| Err(value_error(ended)), act))
    }

    /// Ends the value with `end`, without the interpreter. The lock only decides which thread ends it, and is not
    /// held meanwhile. None if the value had ended before.
    pub(crate) fn end<A: Send>(&self, py: Python<'_>, end: impl FnOnce(T) -> A + Send) -> Option<A> {
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
    /// The interpreter collects the object, and `end` sends a request to the daemon: other threads run meanwhile.
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            without_interpreter(|| drop(held));
        }
    }
}

/// Runs `act` while other Python threads may run; also works while the interpreter shuts down.
pub(crate) fn without_interpreter(act: impl FnOnce() + Send) {
    let mut act = Some(act);
    let done = Python::try_attach(|py| py.detach(|| act.take().map(|act| act())));
    if done.is_none()
        && let Some(act) = act
    {
        act();
    }
}
