//! A node on an engine: one lock, run to completion.
//!
//! Whoever has work (the engine's receive thread, the timer's, an application's) takes the lock and calls the node; it
//! says what it wants done, and that is done before the lock is given back. No queue lies between an event's arrival
//! and its handler, and none between a submission and the socket. The lock is fair: a source that floods takes its turn
//! after whoever waits ([`crate::turn`]). It is not one of priority inheritance: threads that submit should have the
//! policy of [`Link::threads`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use qfabric_channel::{Destination, Event, Lane, Node, Notice, Port, SinkId, SourceId};
use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};
use rustix::time::{ClockId, clock_gettime};

use crate::turn::Turn;
use crate::{Config, Counters, Engine, EngineEvent, Error, Handler};

/// Who is told what the node wants told in this process. Called under the node's lock: copy and wake, never block,
/// never call the link.
pub trait Listener: Send + Sync + 'static {
    /// An event for a sink that asked to be called.
    fn deliver(&self, sink: SinkId, event: &Event<'_>);
    /// A sink's queue is no longer empty.
    fn ready(&self, sink: SinkId);
    /// A source that was told to wait may try again.
    fn writable(&self, source: SourceId);
    /// Something happened.
    fn notice(&self, notice: Notice);
}

/// What stands behind the lock: a node, or something that holds one and wants to see what it does.
pub trait Inside: Send + 'static {
    /// Calls the node. What `act` says to its port is, in the end, said to `port`.
    fn call<R>(&mut self, now: Instant, port: &mut dyn Port, act: impl FnOnce(&mut Node, &mut dyn Port) -> R) -> R;
    /// When [`Inside::wake`] is wanted.
    fn next_wakeup(&self) -> Option<Instant>;
    /// Does what is due.
    fn wake(&mut self, now: Instant, port: &mut dyn Port);
}

impl Inside for Node {
    fn call<R>(&mut self, _now: Instant, port: &mut dyn Port, act: impl FnOnce(&mut Node, &mut dyn Port) -> R) -> R {
        act(self, port)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Node::next_wakeup(self)
    }

    fn wake(&mut self, now: Instant, port: &mut dyn Port) {
        Node::wake(self, now, port);
    }
}

/// This host's part in all channels.
pub struct Link<N: Inside = Node> {
    shared: Arc<Shared<N>>,
    engine: Arc<dyn Engine>,
    host: Name,
    timer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<N> {
    state: Turn<State<N>>,
    timer_thread: OnceLock<i32>,
    listener: Arc<dyn Listener>,
}

struct State<N> {
    inside: N,
    /// When the timer thread will wake by itself; none: when it is told.
    planned: Option<Instant>,
    closing: bool,
}

/// The clock of every event: monotonic, nanoseconds.
fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl<N: Inside> Link<N> {
    /// Opens the engine under a node. `enter` runs first in the thread whose scheduling policy the engine's threads
    /// inherit.
    ///
    /// # Errors
    /// See [`crate::open`].
    pub fn open(
        config: &Config,
        mut inside: N,
        listener: Arc<dyn Listener>,
        enter: impl FnOnce() + Send + 'static,
    ) -> Result<Link<N>, Error> {
        let incarnation = inside.call(now(), &mut Deaf, |node, _| node.incarnation());
        let state = Turn::new(State { inside, planned: None, closing: false });
        let shared = Arc::new(Shared { state, timer_thread: OnceLock::new(), listener });
        let handler = Arc::clone(&shared) as Arc<dyn Handler>;
        let engine = crate::open(config, incarnation, handler, enter)?;
        let (ticking, by) = (Arc::clone(&shared), Arc::clone(&engine));
        let timer = thread::Builder::new().name("qf-timer".into()).spawn(move || ticking.tick(&*by));
        let timer = Mutex::new(Some(timer.map_err(Error::io("start the timer thread"))?));
        Ok(Link { shared, engine, host: config.host.clone(), timer })
    }

    /// Calls what is behind the lock. The port is to be given to the node's methods; the time is the clock's.
    pub fn with<R>(&self, act: impl FnOnce(&mut N, Instant, &mut dyn Port) -> R) -> R {
        let mut state = self.shared.state.lock();
        let result = act(&mut state.inside, now(), &mut self.shared.port(&*self.engine));
        self.shared.replan(state);
        result
    }

    /// This host.
    pub fn host(&self) -> &Name {
        &self.host
    }

    /// What the engine has counted.
    pub fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    /// Ids (Linux) of the threads between an event and the network, the engine's and the timer's.
    pub fn threads(&self) -> Vec<i32> {
        self.engine.threads().into_iter().chain(self.shared.timer_thread.get().copied()).collect()
    }

    /// Leaves the network: others learn of it at once. Also done when dropped; again, it does nothing.
    pub fn close(&self) {
        self.shared.state.lock().closing = true;
        self.shared.state.wake();
        let timer = self.timer.lock().expect("no panic while closing").take();
        if let Some(timer) = timer {
            let _ = timer.join();
            self.engine.close();
        }
    }
}

impl<N: Inside> Drop for Link<N> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<N> std::fmt::Debug for Shared<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<N: Inside> std::fmt::Debug for Link<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<N: Inside> Shared<N> {
    fn port<'a>(&'a self, engine: &'a dyn Engine) -> EnginePort<'a> {
        EnginePort { engine, listener: &*self.listener }
    }

    /// Wakes the timer thread if the node wants to be called earlier than that thread knows.
    fn replan(&self, state: MutexGuard<'_, State<N>>) {
        let wanted = state.inside.next_wakeup();
        let earlier = wanted.is_some_and(|wanted| state.planned.is_none_or(|planned| wanted < planned));
        drop(state);
        if earlier {
            self.state.wake();
        }
    }

    /// The timer thread.
    fn tick(&self, engine: &dyn Engine) {
        let _ = self.timer_thread.set(rustix::thread::gettid().as_raw_nonzero().get());
        let mut state = self.state.lock();
        while !state.closing {
            let now = now();
            if state.inside.next_wakeup().is_some_and(|due| due <= now) {
                state.inside.wake(now, &mut self.port(engine));
            }
            state.planned = state.inside.next_wakeup();
            state = self.wait(state, now);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<N>>, now: Instant) -> MutexGuard<'a, State<N>> {
        match state.planned {
            Some(due) if due <= now => state,
            Some(due) => self.state.wait(state, Some(Duration::from_nanos(due.since(now).get()))),
            None => self.state.wait(state, None),
        }
    }
}

impl<N: Inside> Handler for Shared<N> {
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>) {
        let mut state = self.state.lock();
        if state.closing {
            return;
        }
        let now = now();
        state.inside.call(now, &mut self.port(engine), |node, port| match event {
            EngineEvent::Arrived { from, lane, frame } => node.arrive(from, lane, frame, now, port),
            EngineEvent::Appeared { host, .. } => node.appeared(host, now, port),
            EngineEvent::Vanished { host, .. } => node.vanished(host, now, port),
        });
        self.replan(state);
    }
}

/// What a node wants, to the engine and to this process.
struct EnginePort<'a> {
    engine: &'a dyn Engine,
    listener: &'a dyn Listener,
}

impl Port for EnginePort<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.engine.send(to, lane, frame);
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.engine.listen(channel);
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.engine.ignore(channel);
    }

    fn deliver(&mut self, sink: SinkId, event: &Event<'_>) {
        self.listener.deliver(sink, event);
    }

    fn ready(&mut self, sink: SinkId) {
        self.listener.ready(sink);
    }

    fn writable(&mut self, source: SourceId) {
        self.listener.writable(source);
    }

    fn notice(&mut self, notice: Notice) {
        self.listener.notice(notice);
    }
}

/// Before there is an engine: only questions are asked.
struct Deaf;

impl Port for Deaf {
    fn send(&mut self, _to: Destination<'_>, _lane: Lane, _frame: &[u8]) {}
    fn listen(&mut self, _channel: &ChannelId) {}
    fn ignore(&mut self, _channel: &ChannelId) {}
    fn deliver(&mut self, _sink: SinkId, _event: &Event<'_>) {}
    fn ready(&mut self, _sink: SinkId) {}
    fn writable(&mut self, _source: SourceId) {}
    fn notice(&mut self, _notice: Notice) {}
}
