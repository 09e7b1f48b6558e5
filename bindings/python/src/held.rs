//! The native value behind a Python object, for one thread at a time or for several.
//!
//! A thread that waits for a lock must not hold the interpreter lock: the owner of the lock may need the interpreter
//! to continue, and all other threads would stop meanwhile. So the lock is taken only in this file, and without the
//! interpreter; that of a [`Shared`] value is held only for a copy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::ecalls::value_error;

/// Longest wait without a look at signals, such as that of Ctrl-C.
const STEP: Duration = Duration::from_millis(500);

/// Pause in which a thread that waits for the lock of a value gets it.
const PAUSE: Duration = Duration::from_millis(1);

/// A value that may have ended; None then.
pub(crate) struct Held<T: Send> {
    value: Mutex<Option<T>>,
    /// Threads that wait for the lock.
    waiting: AtomicUsize,
}

impl<T: Send> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Held { value: Mutex::new(Some(value)), waiting: AtomicUsize::new(0) }
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

    /// Like [`Held::with`], for an `act` that waits: see [`in_steps`]. Other threads get the value between two steps.
    pub(crate) fn wait<A: Send>(
        &self,
        py: Python<'_>,
        ended: &str,
        patience: Duration,
        mut act: impl FnMut(&mut T, Duration) -> PyResult<Option<A>> + Send,
    ) -> PyResult<Option<A>> {
        let step = |step| {
            let came = match self.locked().as_mut() {
                Some(held) => act(held, step).transpose(),
                None => Some(Err(value_error(ended))),
            };
            // Without a pause, this thread would nearly always have the lock again before another one has woken up.
            if came.is_none() && self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(PAUSE);
            }
            came
        };
        in_steps(py, patience, step)?.transpose()
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
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let locked = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        locked
    }
}

impl<T: Send> Drop for Held<T> {
    /// The interpreter collects the object, and `end` sends a request to the daemon: other threads run meanwhile.
    fn drop(&mut self) {
        let held = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            without_interpreter(|| drop(held));
        }
    }
}

/// A value that several threads may use at the same time; None once it is closed.
pub(crate) struct Shared<T: Send + Sync>(Mutex<Option<Arc<T>>>);

impl<T: Send + Sync> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Shared(Mutex::new(Some(Arc::new(value))))
    }

    /// The last copy of a closed value ends it: drop the copy without the interpreter, such as with [`end`].
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Send + Sync> Drop for Shared<T> {
    /// The interpreter collects the object; the end of the value waits for the network: others run meanwhile.
    fn drop(&mut self) {
        if let Some(shared) = self.take() {
            without_interpreter(|| drop(shared));
        }
    }
}

/// Drops a copy of a shared value without the interpreter.
pub(crate) fn end<T: Send + Sync>(py: Python<'_>, shared: Arc<T>) {
    py.detach(|| drop(shared));
}

/// Calls `act` without the interpreter, each time with the time that it may wait, until it returns something or
/// `patience` is over. Python handles signals in between, and may raise KeyboardInterrupt.
pub(crate) fn in_steps<A: Send>(
    py: Python<'_>,
    patience: Duration,
    mut act: impl FnMut(Duration) -> Option<A> + Send,
) -> PyResult<Option<A>> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let came = py.detach(|| act(left.min(STEP)));
        if came.is_some() || left <= STEP {
            return Ok(came);
        }
        py.check_signals()?;
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
