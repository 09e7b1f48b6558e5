//! A link's engine, which may be another one tomorrow: another access list, other certificates.
//!
//! ```text
//! attached ── reopen ──> without: all hosts are gone, what is sent is lost ── opened ──> attached
//!                            └── refused: stays without, until the next reopen
//! ```
//! Members stay through all of it. For the others it is a host that left and is back.

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_channel::Output;
use qfabric_types::Instant;
use qfabric_types::channel::ChannelId;

use super::{Inside, Link, Listener, Shared, State, now};
use crate::{Config, Counters, Engine, EngineEvent, Error, Handler};

/// What carries frames, and what it has to be told when it is another one.
#[derive(Default)]
pub(super) struct Way {
    engine: Option<Arc<dyn Engine>>,
    /// Which one it is; what an earlier one still says is not heard.
    opening: u64,
    /// Channels whose frames are wanted here.
    wanted: BTreeSet<ChannelId>,
    /// What earlier ones have counted.
    former: Counters,
}

impl Way {
    /// Does what the node wants done.
    pub fn carry_out(&mut self, inside: &mut impl Inside, now: Instant, listener: &dyn Listener) {
        let (engine, wanted) = (self.engine.as_deref(), &mut self.wanted);
        Doing { engine, wanted, listener, is_arrival: false }.run(inside, now);
    }

    pub fn count(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        of(&self.former) + self.engine.as_ref().map_or(0, |engine| of(engine.counters()))
    }

    pub fn threads(&self) -> Vec<i32> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| engine.threads())
    }

    /// The engine, which is to be closed by who has left the lock.
    pub fn leave(&mut self) -> Option<Arc<dyn Engine>> {
        let engine = self.engine.take()?;
        self.former.add(engine.counters());
        Some(engine)
    }
}

impl<N: Inside> Link<N> {
    /// Leaves the network, and joins it again by another configuration of the same host. For the others, and for the node,
    /// it is as if the cable had been cut and joined: members stay, what is sent meanwhile is lost. `enter` runs first in
    /// the thread whose scheduling policy the engine's threads inherit.
    ///
    /// # Errors
    /// See [`crate::open`]. There is no network then, until it is opened again.
    pub fn reopen(&self, config: &Config, enter: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let _one = self.reopening.lock();
        let (opening, engine) = self.detach();
        if let Some(engine) = engine {
            engine.close();
        }
        self.attach(opening, config, enter)
    }

    /// Whether there is a network.
    pub fn is_open(&self) -> bool {
        self.shared.state.lock().way.engine.is_some()
    }

    fn detach(&self) -> (u64, Option<Arc<dyn Engine>>) {
        let mut state = self.shared.state.lock();
        let State { inside, way, .. } = &mut *state;
        let engine = way.leave();
        way.opening += 1;
        let (opening, now) = (way.opening, now());
        inside.call(now, |node| node.cut_off(now));
        way.carry_out(inside, now, &*self.shared.listener);
        self.shared.replan(state);
        (opening, engine)
    }

    /// Hosts may appear before it returns: they are answered by the engine that says so.
    pub(super) fn attach(
        &self,
        opening: u64,
        config: &Config,
        enter: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let hearing = Arc::new(Hearing { shared: Arc::clone(&self.shared), opening });
        let engine = crate::open(config, self.incarnation, hearing, enter)?;
        let mut state = self.shared.state.lock();
        if state.closing {
            drop(state);
            engine.close();
            return Ok(());
        }
        state.way.wanted.iter().for_each(|channel| engine.listen(channel));
        state.way.engine = Some(engine);
        Ok(())
    }
}

/// Does what a node wants done. Without an engine what is sent is lost, as if the cable were cut.
struct Doing<'a> {
    engine: Option<&'a dyn Engine>,
    wanted: &'a mut BTreeSet<ChannelId>,
    listener: &'a dyn Listener,
    /// Whether a frame's arrival is handled.
    is_arrival: bool,
}

impl Doing<'_> {
    fn run(self, inside: &mut impl Inside, now: Instant) {
        while let Some(output) = inside.poll(now) {
            match output {
                Output::Send(to, lane, frame) => {
                    self.engine.into_iter().for_each(|engine| engine.send(to.destination(), lane, inside.frame(frame)));
                }
                Output::Listen(channel) => {
                    self.engine.into_iter().for_each(|engine| engine.listen(&channel));
                    self.wanted.insert(channel);
                }
                Output::Ignore(channel) => {
                    self.engine.into_iter().for_each(|engine| engine.ignore(&channel));
                    self.wanted.remove(&channel);
                }
                told => self.listener.hear(told, self.is_arrival),
            }
        }
    }
}

/// Hears one engine.
struct Hearing<N> {
    shared: Arc<Shared<N>>,
    opening: u64,
}

impl<N: Inside> Handler for Hearing<N> {
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>) {
        let mut state = self.shared.state.lock();
        if state.closing || state.way.opening != self.opening {
            return;
        }
        let State { inside, way, .. } = &mut *state;
        let (now, listener) = (now(), &*self.shared.listener);
        let is_arrival = matches!(event, EngineEvent::Arrived { .. });
        inside.call(now, |node| match event {
            EngineEvent::Arrived { from, lane, frame } => node.arrive(from, lane, frame, now),
            EngineEvent::Appeared { host, .. } => node.appeared(host, now),
            EngineEvent::Vanished { host, .. } => node.vanished(host, now),
        });
        Doing { engine: Some(engine), wanted: &mut way.wanted, listener, is_arrival }.run(inside, now);
        self.shared.replan(state);
        if is_arrival {
            self.shared.listener.arrived();
        }
    }

    fn failed(&self, thread: &'static str, message: String) {
        self.shared.listener.failed(thread, message);
    }
}
