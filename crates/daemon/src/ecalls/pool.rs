//! Handler threads (003 §3.2: «kernel threads», 000 §3.2.2: a pool whose size is modified as needed).
//!
//! ```text
//! submit ──> backlog of the subscription (EDF) ──> ready: subscriptions (EDF) ──> thread: one event, then back
//!            full: dropped, counted                 each at most once              idle for a while: ends
//! ```
//! One thread at a time works for a subscription, so its events stay in the order of their deadlines and its
//! handlers' variables need no thought. There are as many threads as there is work for, up to the limit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_sched::EventQueue;
use qfabric_types::Instant;
use qfabric_types::memory::Stamp;

use super::subscription::{Subscription, count};

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(5);

/// Events of one subscription that wait for a thread.
#[derive(Debug)]
pub(crate) struct Backlog {
    events: EventQueue<Job>,
    /// It is in the pool's ready queue, or a thread works for it.
    active: bool,
}

/// An event, and where in the chain it goes on.
#[derive(Debug)]
struct Job {
    stage: usize,
    data: Box<[u8]>,
    stamp: Stamp,
}

impl Backlog {
    /// For at most `capacity` events.
    pub fn new(capacity: usize) -> Backlog {
        Backlog { events: EventQueue::new(capacity), active: false }
    }
}

/// The threads.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    ended: Condvar,
    most: usize,
}

struct State {
    ready: EventQueue<Arc<Subscription>>,
    threads: usize,
    idle: usize,
    stopping: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// At most `most` threads, for at most `subscriptions`.
    pub fn new(most: usize, subscriptions: usize) -> Pool {
        let ready = EventQueue::new(subscriptions);
        let state = State { ready, threads: 0, idle: 0, stopping: false };
        Pool(Arc::new(Shared { state: state.into(), arrived: Condvar::new(), ended: Condvar::new(), most }))
    }

    /// Threads there are.
    pub fn threads(&self) -> usize {
        lock(&self.0.state).threads
    }

    /// Has a thread carry on with an event at `stage`.
    pub fn submit(&self, to: &Arc<Subscription>, stage: usize, data: &[u8], stamp: Stamp) {
        let deadline = to.deadline(stamp);
        let mut backlog = lock(&to.backlog);
        if backlog.events.push(deadline, Job { stage, data: data.into(), stamp }).is_err() {
            count(&to.tally.dropped_queue);
        } else if !backlog.active {
            backlog.active = true;
            drop(backlog);
            self.make_ready(to);
        }
    }

    fn make_ready(&self, subscription: &Arc<Subscription>) {
        let deadline = lock(&subscription.backlog).events.next_deadline();
        let mut state = lock(&self.0.state);
        // It holds every subscription once.
        let _ = state.ready.push(deadline.unwrap_or(Instant::NEVER), subscription.clone());
        if state.idle == 0 && state.threads < self.0.most && !state.stopping {
            self.grow(&mut state);
        }
        self.0.arrived.notify_one();
    }

    fn grow(&self, state: &mut State) {
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("qf-handler".to_owned());
        // Where no thread is to be had, those that there are do the work later.
        if thread.spawn(move || pool.work()).is_ok() {
            state.threads += 1;
        }
    }

    fn work(&self) {
        // Made by the dispatcher, which comes before others; what takes long does not.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 0);
        while let Some(subscription) = self.next() {
            self.serve(&subscription);
        }
        lock(&self.0.state).threads -= 1;
        self.0.ended.notify_all();
    }

    /// The subscription whose event is due first; none: there is no work any more.
    fn next(&self) -> Option<Arc<Subscription>> {
        let mut state = lock(&self.0.state);
        loop {
            // At moment zero nothing is late: lateness is the backlog's to count, event by event.
            let due = state.ready.take(Instant::ZERO, drop);
            if state.stopping {
                return None;
            }
            if due.is_some() {
                return due;
            }
            state.idle += 1;
            let (woken, waited) = self.0.arrived.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.ready.is_empty() {
                return None;
            }
        }
    }

    /// One event; then the others' turn.
    fn serve(&self, subscription: &Arc<Subscription>) {
        let job = lock(&subscription.backlog).events.take(clock::now(), |_| count(&subscription.tally.late));
        if let Some(Job { stage, data, stamp }) = job {
            subscription.carry(stage, &data, stamp, self);
        }
        let mut backlog = lock(&subscription.backlog);
        backlog.active = !backlog.events.is_empty();
        if backlog.active {
            drop(backlog);
            self.make_ready(subscription);
        }
    }

    /// Ends the threads, each after the event it works on.
    pub fn stop(&self) {
        let mut state = lock(&self.0.state);
        state.stopping = true;
        self.0.arrived.notify_all();
        while state.threads > 0 {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
