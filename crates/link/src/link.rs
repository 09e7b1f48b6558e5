//! Runs a node on an engine: one lock, run to completion.
//!
//! A thread with work (the engine's receive thread, the timer thread, an application's) takes the lock, calls the node, and
//! carries out the node's outputs before it releases the lock. There is no queue between an event's arrival and its handler,
//! and none between a submission and the socket. The lock is fair: a source that floods waits behind the threads of its
//! priority that are waiting already ([`crate::turn`]), and rests from time to time ([`crate::pace`]). The lock has
//! priority inheritance: while a thread of higher priority waits, the holder runs with that priority. The kernel then
//! gives the lock to the waiting thread with the highest priority.

mod way;

use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use qfabric_channel::{Frame, Incarnation, Node, Output};
use qfabric_sync::{Lock, rank};
use qfabric_types::Instant;
use qfabric_types::channel::Name;
use rustix::time::{ClockId, clock_gettime};

use crate::pace::{Pace, REST};
use crate::turn::{Taken, Turn};
use crate::{Config, Counters, Error, threads};
use way::Way;

/// Receives a node's outputs that are meant for this process.
pub trait Listener: Send + Sync + 'static {
    /// A sink is ready, a source may go on, or there is a notice. Called under the node's lock: copy the output and
    /// wake a thread; never block and never call the link. `is_arrival`: a frame's arrival caused the output, and
    /// [`Listener::arrived`] follows in the same thread.
    fn on_output(&self, output: Output, is_arrival: bool);
    /// Called after each frame's arrival without a lock, in the receive thread; return quickly.
    fn arrived(&self) {}
    /// A network thread panicked because of a defect in this program: the network no longer works, or works in part.
    /// Called from any thread, without a lock.
    fn failed(&self, thread: &'static str, message: String) {
        tracing::error!(thread, message, "a network thread failed; restart this program");
    }
}

/// The value behind the lock: a node, or a value that has a node and also reads its outputs.
pub trait NodeOwner: Send + 'static {
    fn call<R>(&mut self, now: Instant, act: impl FnOnce(&mut Node) -> R) -> R;
    /// Like [`Node::poll`]; called after every call until it returns `None`.
    fn poll(&mut self, now: Instant) -> Option<Output>;
    /// Like [`Node::frame`].
    fn frame(&self, frame: Frame) -> &[u8];
    /// Like [`Node::memory`].
    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>>;
    /// The time at which [`NodeOwner::wake`] has to be called.
    fn next_wakeup(&self) -> Option<Instant>;
    /// Does all work that is due.
    fn wake(&mut self, now: Instant);
}

impl NodeOwner for Node {
    fn call<R>(&mut self, _now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        act(self)
    }

    fn poll(&mut self, _now: Instant) -> Option<Output> {
        Node::poll(self)
    }

    fn frame(&self, frame: Frame) -> &[u8] {
        Node::frame(self, frame)
    }

    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        Node::memory(self, frame)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Node::next_wakeup(self)
    }

    fn wake(&mut self, now: Instant) {
        Node::wake(self, now);
    }
}

/// A node with its engine and its threads.
pub struct Link<N: NodeOwner = Node> {
    shared: Arc<Shared<N>>,
    host: Name,
    incarnation: Incarnation,
    pace: Lock<Pace, { rank::SUBMITTING }>,
    timer: Lock<Option<JoinHandle<()>>, { rank::TIMER }>,
    /// Held while the network is left and joined again.
    reopening: Lock<(), { rank::REOPENING }>,
}

struct Shared<N> {
    state: Turn<State<N>>,
    timer_thread: OnceLock<i32>,
    listener: Arc<dyn Listener>,
}

struct State<N> {
    owner: N,
    way: Way,
    /// The time at which the timer thread wakes by itself; `None`: it waits for a signal.
    planned: Option<Instant>,
    closing: bool,
}

/// The clock of every event: monotonic, nanoseconds.
fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl<N: NodeOwner> Link<N> {
    /// Opens the engine under a node. `enter` runs first, in the thread whose scheduling policy the engine's threads inherit.
    ///
    /// # Errors
    /// See [`crate::open`].
    pub fn open(
        config: &Config,
        mut owner: N,
        listener: Arc<dyn Listener>,
        enter: impl FnOnce() + Send + 'static,
    ) -> Result<Link<N>, Error> {
        let incarnation = owner.call(now(), |node| node.incarnation());
        let state = Turn::new(State { owner, way: Way::default(), planned: None, closing: false });
        let shared = Arc::new(Shared { state, timer_thread: OnceLock::new(), listener });
        let (pace, timer, reopening) = (Lock::new(Pace::new(now())), Lock::new(None), Lock::new(()));
        let link = Link { shared, host: config.host.clone(), incarnation, pace, timer, reopening };
        link.attach(0, config, enter)?;
        let ticking = Arc::clone(&link.shared);
        let failed = Arc::clone(&link.shared.listener);
        let failed = move |thread, message| failed.failed(thread, message);
        let timer = threads::spawn("qf-timer", failed, move || ticking.tick());
        *link.timer.lock() = Some(timer.map_err(Error::io("start the timer thread"))?);
        Ok(link)
    }

    /// Calls `act` under the lock with the current time. A thread that calls again and again without a pause then
    /// sleeps for a moment without the lock.
    pub fn with<R>(&self, act: impl FnOnce(&mut N, Instant) -> R) -> R {
        let (result, begin) = self.run(act);
        self.rest(begin);
        result
    }

    /// Like [`Link::with`], but never sleeps: for the network's threads and for threads that hold a lock. A thread that
    /// submits calls [`Link::rest`] as soon as it holds no lock.
    pub fn call<R>(&self, act: impl FnOnce(&mut N, Instant) -> R) -> R {
        self.run(act).0
    }

    /// Returns the time from which on the caller had the lock, too.
    fn run<R>(&self, act: impl FnOnce(&mut N, Instant) -> R) -> (R, Instant) {
        let mut state = self.shared.state.lock();
        let begin = now();
        let State { owner, way, .. } = &mut *state;
        let result = act(owner, begin);
        way.carry_out(owner, begin, &*self.shared.listener);
        self.shared.replan(state);
        (result, begin)
    }

    /// The calling thread has worked since `begin` and holds no lock: it sleeps for a moment if such threads have
    /// worked for 100 µs without a pause.
    pub fn rest(&self, begin: Instant) {
        let is_enough = self.pace.lock().is_enough(begin, now());
        if is_enough {
            thread::sleep(REST);
        }
    }

    pub fn host(&self) -> &Name {
        &self.host
    }

    /// The sum of a counter over all engines since this link was opened.
    pub fn count(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.shared.state.lock().way.count(of)
    }

    /// Ids (Linux) of the threads between an event and the network: the engine's and the timer's.
    pub fn threads(&self) -> Vec<i32> {
        let engine = self.shared.state.lock().way.threads();
        engine.into_iter().chain(self.shared.timer_thread.get().copied()).collect()
    }

    /// Leaves the network; other hosts see it at once. Dropping does the same; a second call has no effect.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        let engine = state.way.leave();
        drop(state);
        self.shared.state.wake();
        let timer = self.timer.lock().take();
        if let Some(timer) = timer {
            let _ = timer.join();
        }
        if let Some(engine) = engine {
            engine.close();
        }
    }
}

impl<N: NodeOwner> Drop for Link<N> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<N> std::fmt::Debug for Shared<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<N: NodeOwner> std::fmt::Debug for Link<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<N: NodeOwner> Shared<N> {
    /// Wakes the timer thread if the node's next wakeup is earlier than the planned one.
    fn replan(&self, state: Taken<'_, State<N>>) {
        let wanted = state.owner.next_wakeup();
        let earlier = wanted.is_some_and(|wanted| state.planned.is_none_or(|planned| wanted < planned));
        drop(state);
        if earlier {
            self.state.wake();
        }
    }

    /// The timer thread.
    fn tick(&self) {
        let _ = self.timer_thread.set(rustix::thread::gettid().as_raw_nonzero().get());
        let mut state = self.state.lock();
        while !state.closing {
            let now = now();
            if state.owner.next_wakeup().is_some_and(|due| due <= now) {
                let State { owner, way, .. } = &mut *state;
                owner.wake(now);
                way.carry_out(owner, now, &*self.listener);
            }
            state.planned = state.owner.next_wakeup();
            state = self.wait(state, now);
        }
    }

    fn wait<'a>(&self, state: Taken<'a, State<N>>, now: Instant) -> Taken<'a, State<N>> {
        match state.planned {
            Some(due) if due <= now => state,
            Some(due) => self.state.wait(state, Some(Duration::from_nanos(due.since(now).get()))),
            None => self.state.wait(state, None),
        }
    }
}
