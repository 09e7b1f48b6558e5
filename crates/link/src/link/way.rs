//! A link's engine, which is replaced when the access list or the certificates change.
//!
//! ```text
//! attached ── reopen ──> without: all hosts are gone, frames are lost ── opened ──> attached
//!                            └── refused: stays without, until the next reopen
//! ```
//! Members stay throughout. The other hosts see a host that left and came back.

use std::collections::BTreeSet;
use std::sync::Arc;

use qfabric_channel::Output;
use qfabric_types::Instant;
use qfabric_types::channel::ChannelId;

use super::{Link, Listener, NodeOwner, Shared, State, now};
use crate::{Config, Counters, Engine, EngineEvent, Error, Handler};

/// The present engine, and the state that a new engine needs.
#[derive(Default)]
pub(super) struct Way {
    engine: Option<Arc<dyn Engine>>,
    /// The number of the engine; reports of earlier engines are ignored.
    opening: u64,
    /// Channels whose frames are wanted on this host.
    wanted: BTreeSet<ChannelId>,
    /// The counts of earlier engines.
    former: Counters,
}

impl Way {
    /// Carries out the node's outputs.
    pub(super) fn carry_out(&mut self, owner: &mut impl NodeOwner, now: Instant, listener: &dyn Listener) {
        let (engine, wanted) = (self.engine.as_deref(), &mut self.wanted);
        Doing { engine, wanted, listener, is_arrival: false }.run(owner, now);
    }

    pub(super) fn count(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        of(&self.former) + self.engine.as_ref().map_or(0, |engine| of(engine.counters()))
    }

    pub(super) fn threads(&self) -> Vec<i32> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| engine.threads())
    }

    /// Takes the engine out; the caller closes it after it has released the lock.
    pub(super) fn leave(&mut self) -> Option<Arc<dyn Engine>> {
        let engine = self.engine.take()?;
        self.former.add(engine.counters());
        Some(engine)
    }
}

impl<N: NodeOwner> Link<N> {
    /// Leaves the network, and joins it again with another configuration of the same host. For the node and for other hosts
    /// it is like a cable that was cut and repaired: members stay, frames sent in the meantime are lost. `enter` runs first, in
    /// the thread whose scheduling policy the engine's threads inherit.
    ///
    /// # Errors
    /// See [`crate::open`]. After an error there is no network until the next successful call.
    pub fn reopen(&self, config: &Config, enter: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let _one = self.reopening.lock();
        let (opening, engine) = self.detach();
        if let Some(engine) = engine {
            engine.close();
        }
        self.attach(opening, config, enter)
    }

    /// Whether there is an engine.
    pub fn is_open(&self) -> bool {
        self.shared.state.lock().way.engine.is_some()
    }

    /// Whether the engine should be replaced by a new one ([`Link::reopen`]): see [`Engine::is_worn`].
    pub fn is_worn(&self) -> bool {
        self.shared.state.lock().way.engine.as_ref().is_some_and(|engine| engine.is_worn())
    }

    fn detach(&self) -> (u64, Option<Arc<dyn Engine>>) {
        let mut state = self.shared.state.lock();
        let State { owner, way, .. } = &mut *state;
        let engine = way.leave();
        way.opening += 1;
        let (opening, now) = (way.opening, now());
        owner.call(now, |node| node.cut_off(now));
        way.carry_out(owner, now, &*self.shared.listener);
        self.shared.replan(state);
        (opening, engine)
    }

    /// Hosts may appear before this returns; the answers to them go to the engine that reported them.
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

/// Carries out a node's outputs. Without an engine frames are lost, as if the cable were cut.
struct Doing<'a> {
    engine: Option<&'a dyn Engine>,
    wanted: &'a mut BTreeSet<ChannelId>,
    listener: &'a dyn Listener,
    /// The output is the result of a frame's arrival.
    is_arrival: bool,
}

impl Doing<'_> {
    fn run(self, owner: &mut impl NodeOwner, now: Instant) {
        while let Some(output) = owner.poll(now) {
            match output {
                Output::Send(to, lane, frame) => match (self.engine, owner.memory(frame)) {
                    (Some(engine), Some(long)) => engine.send_long(to.as_ref(), lane, long),
                    (Some(engine), None) => engine.send(to.as_ref(), lane, owner.frame(frame)),
                    (None, _) => {}
                },
                Output::Listen(channel) => {
                    self.engine.into_iter().for_each(|engine| engine.listen(&channel));
                    self.wanted.insert(channel);
                }
                Output::Ignore(channel) => {
                    self.engine.into_iter().for_each(|engine| engine.ignore(&channel));
                    self.wanted.remove(&channel);
                }
                told => self.listener.on_output(told, self.is_arrival),
            }
        }
    }
}

/// The handler of one engine.
struct Hearing<N> {
    shared: Arc<Shared<N>>,
    opening: u64,
}

impl<N: NodeOwner> Handler for Hearing<N> {
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>) {
        let mut state = self.shared.state.lock();
        if state.closing || state.way.opening != self.opening {
            return;
        }
        let State { owner, way, .. } = &mut *state;
        let (now, listener) = (now(), &*self.shared.listener);
        let is_arrival = matches!(event, EngineEvent::Arrived { .. });
        owner.call(now, |node| match event {
            EngineEvent::Arrived { from, lane, frame } => node.arrive(from, lane, frame, now),
            EngineEvent::Appeared { host, .. } => node.appeared(host, now),
            EngineEvent::Vanished { host, .. } => node.vanished(host, now),
        });
        Doing { engine: Some(engine), wanted: &mut way.wanted, listener, is_arrival }.run(owner, now);
        self.shared.replan(state);
        if is_arrival {
            self.shared.listener.arrived();
        }
    }

    fn failed(&self, thread: &'static str, message: String) {
        self.shared.listener.failed(thread, message);
    }
}
