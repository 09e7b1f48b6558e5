//! A link's engine, which may be another one tomorrow: another access list, other certificates.
//!
//! ```text
//! attached ── reopen ──> without: all hosts are gone, what is sent is lost ── opened ──> attached
//!                            └── refused: stays without, until the next reopen
//! ```
//! Members stay through all of it. For the others it is a host that left and is back.

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_types::channel::ChannelId;

use super::port::EnginePort;
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
    pub fn port<'a>(&'a mut self, listener: &'a dyn Listener) -> EnginePort<'a> {
        EnginePort { engine: self.engine.as_deref(), wanted: &mut self.wanted, listener, is_arrival: false }
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
        inside.call(now, &mut way.port(&*self.shared.listener), |node, port| node.cut_off(now, port));
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
        let mut port = EnginePort { engine: Some(engine), wanted: &mut way.wanted, listener, is_arrival };
        inside.call(now, &mut port, |node, port| match event {
            EngineEvent::Arrived { from, lane, frame } => node.arrive(from, lane, frame, now),
            EngineEvent::Appeared { host, .. } => node.appeared(host, now),
            EngineEvent::Vanished { host, .. } => node.vanished(host, now),
        });
        self.shared.replan(state);
        if is_arrival {
            self.shared.listener.arrived();
        }
    }

    fn failed(&self, thread: &'static str, message: String) {
        self.shared.listener.failed(thread, message);
    }
}
