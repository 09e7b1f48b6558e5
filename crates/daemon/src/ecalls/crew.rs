//! Threads that share work: as many as there is work for, up to a limit; a thread that finds none for a while leaves.
//!
//! This is the state alone: its caller starts the threads. Every change of it, and the look that led to the change, happen
//! under one lock. (A thread that had looked, and was taken off the count later, once lost the work that came in
//! between.) `tests/handler_threads.rs` runs this file through the orders in which threads can meet.

use std::time::Duration;

use qfabric_sched::EventQueue;
use qfabric_types::Instant;

use super::sync::{Condvar, Guard, Lock, rank};

/// Work that is ready, and how many threads there are for it.
pub(crate) struct Crew<W> {
    state: Lock<State<W>, { rank::HANDLER_THREADS }>,
    arrived: Condvar,
    left: Condvar,
    most: usize,
}

struct State<W> {
    ready: EventQueue<W>,
    /// Threads that take work, or are being started.
    threads: usize,
    /// Those of them that wait for work, woken or not.
    idle: usize,
    stopping: bool,
}

impl<W> Crew<W> {
    /// At most `most` threads; at most `capacity` works are ready at a time.
    pub fn new(most: usize, capacity: usize) -> Crew<W> {
        let state = State { ready: EventQueue::new(capacity), threads: 0, idle: 0, stopping: false };
        Crew { state: Lock::new(state), arrived: Condvar::new(), left: Condvar::new(), most }
    }

    /// Threads there are.
    pub fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Work is ready. `true`: the caller starts a thread for it, which is counted already; where it cannot, it says so
    /// by [`Crew::leave`].
    #[must_use]
    pub fn push(&self, deadline: Instant, work: W) -> bool {
        let mut state = self.state.lock();
        // The caller has no more works than there is room for.
        let _ = state.ready.push(deadline, work);
        // A thread that was woken counts as idle until it runs: each idle thread takes one work.
        let starts = state.ready.len() > state.idle && state.threads < self.most && !state.stopping;
        state.threads += usize::from(starts);
        drop(state);
        self.arrived.notify_one();
        starts
    }

    /// The work whose deadline comes first; waits for at most `patience` until there is some. None: the calling thread
    /// is off the count, and ends.
    pub fn next(&self, patience: Duration) -> Option<W> {
        let mut state = self.state.lock();
        while !state.stopping {
            // At moment zero nothing is late: lateness is counted event by event, elsewhere.
            if let Some(work) = state.ready.take(Instant::ZERO, drop) {
                return Some(work);
            }
            state.idle += 1;
            let (woken, is_over) = state.wait_timeout(&self.arrived, patience);
            state = woken;
            state.idle -= 1;
            if is_over && state.ready.is_empty() {
                break;
            }
        }
        self.take_off(state);
        None
    }

    /// A thread ends otherwise than by [`Crew::next`]: it could not be started, or has failed.
    pub fn leave(&self) {
        self.take_off(self.state.lock());
    }

    fn take_off(&self, mut state: Guard<'_, State<W>, { rank::HANDLER_THREADS }>) {
        state.threads -= 1;
        drop(state);
        self.left.notify_all();
    }

    /// Ends the threads, each after the work it is at. Returns when all have left.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.arrived.notify_all();
        while state.threads > 0 {
            state = state.wait(&self.left);
        }
    }
}
