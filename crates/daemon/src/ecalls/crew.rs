//! A set of threads that share work: as many threads as there is work, up to a limit. A thread without work ends
//! after a time.
//!
//! This file holds the state only; the caller starts the threads. Every change, and the check that led to the
//! change, happen under one lock: with a check outside of the lock, work that arrived in between could be lost.
//! `tests/handler_threads.rs` runs this file through the orders in which threads can meet.

use std::time::Duration;

use qfabric_sched::EventQueue;
use qfabric_types::Instant;

use super::sync::{Condvar, Guard, Lock, rank};

/// Ready work, and the number of threads for it.
pub(crate) struct Crew<W> {
    state: Lock<State<W>, { rank::HANDLER_THREADS }>,
    arrived: Condvar,
    left: Condvar,
    most: usize,
}

struct State<W> {
    ready: EventQueue<W>,
    /// Threads that take work or are being started.
    threads: usize,
    /// Threads that wait for work, woken or not.
    idle: usize,
    stopping: bool,
}

impl<W> Crew<W> {
    /// At most `most` threads and at most `capacity` pieces of ready work.
    pub(super) fn new(most: usize, capacity: usize) -> Crew<W> {
        let state = State { ready: EventQueue::new(capacity), threads: 0, idle: 0, stopping: false };
        Crew { state: Lock::new(state), arrived: Condvar::new(), left: Condvar::new(), most }
    }

    pub(super) fn threads(&self) -> usize {
        self.state.lock().threads
    }

    /// Adds ready work; `priority` orders work with equal deadlines, smaller first. `true`: the caller must start a
    /// thread, which is counted already; if it cannot, it calls [`Crew::leave`].
    #[must_use]
    pub(super) fn push(&self, deadline: Instant, priority: i32, work: W) -> bool {
        let mut state = self.state.lock();
        // The caller has at most `capacity` pieces of work, so this cannot fail.
        let _ = state.ready.push_prioritized(deadline, priority, work);
        // A woken thread counts as idle until it runs: each idle thread takes one piece of work.
        let starts = state.ready.len() > state.idle && state.threads < self.most && !state.stopping;
        state.threads += usize::from(starts);
        drop(state);
        self.arrived.notify_one();
        starts
    }

    /// `true`: work waits, but no thread is there, because the last one could not be started. The caller must start a
    /// thread, as after [`Crew::push`].
    #[must_use]
    pub(super) fn is_abandoned(&self) -> bool {
        let mut state = self.state.lock();
        let starts = state.threads == 0 && !state.ready.is_empty() && !state.stopping;
        state.threads += usize::from(starts);
        starts
    }

    /// Neither threads nor work.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.threads == 0 && state.ready.is_empty()
    }

    /// The work with the earliest deadline, then with the smallest priority; waits at most `timeout` for it. `None`:
    /// the calling thread is no longer counted and must end.
    pub(super) fn next(&self, timeout: Duration) -> Option<W> {
        let mut state = self.state.lock();
        while !state.stopping {
            // At time zero no work is late. Lateness is counted for each event elsewhere.
            if let Some(work) = state.ready.take(Instant::ZERO, drop) {
                return Some(work);
            }
            state.idle += 1;
            let (woken, is_over) = state.wait_timeout(&self.arrived, timeout);
            state = woken;
            state.idle -= 1;
            if is_over && state.ready.is_empty() {
                break;
            }
        }
        self.take_off(state);
        None
    }

    /// Called if a thread could not be started or has failed, so that it does not end through [`Crew::next`].
    pub(super) fn leave(&self) {
        self.take_off(self.state.lock());
    }

    fn take_off(&self, mut state: Guard<'_, State<W>, { rank::HANDLER_THREADS }>) {
        state.threads -= 1;
        drop(state);
        self.left.notify_all();
    }

    /// Ends the threads, each after its present work. Returns when all have ended.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.arrived.notify_all();
        while state.threads > 0 {
            state = state.wait(&self.left);
        }
    }
}
