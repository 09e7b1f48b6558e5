//! What a network engine does for a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qfabric_channel::{Destination, Incarnation, Lane};
use qfabric_types::channel::{ChannelId, Name};

/// Most bytes of a frame: the largest text that `channel` ships (64 KiB) and an announcement of a full host fit in.
pub const MAX_FRAME: usize = 256 << 10;

/// Most other hosts an engine talks to.
pub const MAX_HOSTS: usize = 1024;

/// A host that is not heard for so long is gone. With the time to notice it stays below 2 s.
pub const LEASE: Duration = Duration::from_millis(1500);

/// Signs of life within a lease, where nothing else is sent: one that is 0.75 s late ends a connection. With a
/// hundred hosts these are 400 frames a second; three within 1 s were 900, a quarter of the CPU time of a host that hears
/// ten reports a second from each.
pub(crate) const SIGNS: u32 = 2;

/// What happened on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEvent<'a> {
    /// A frame came.
    Arrived {
        /// Who sent it. Under mutual TLS with an access list this is who the certificate says.
        from: &'a Name,
        /// By which way.
        lane: Lane,
        /// What was given to [`Engine::send`] there.
        frame: &'a [u8],
    },
    /// A host is there: from now on it gets what is sent to it.
    Appeared {
        /// Which.
        host: &'a Name,
        /// Of which of its lives; a host that crashed and came back has another.
        incarnation: Incarnation,
    },
    /// A host has left, crashed, fallen silent or been cut off.
    Vanished {
        /// Which.
        host: &'a Name,
        /// Of which of its lives.
        incarnation: Incarnation,
    },
}

/// Who is told. Called by the engine's receive thread, one event after the other; must not block.
pub trait Handler: Send + Sync + 'static {
    /// Something happened. `engine` is the one that says so: answers may be sent at once.
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>);

    /// A thread of the engine failed, by a mistake of this program.
    fn failed(&self, thread: &'static str, message: String) {
        tracing::error!(thread, message, "a thread of the network failed");
    }
}

impl<F: Fn(&dyn Engine, EngineEvent<'_>) + Send + Sync + 'static> Handler for F {
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>) {
        self(engine, event);
    }
}

/// Brings frames from host to host. Calls return at once: what a peer does not take in time is dropped (data) or, after
/// a bounded backlog, ends the connection to it (control).
pub trait Engine: Send + Sync {
    /// Sends a frame of at most [`MAX_FRAME`] bytes; longer ones are dropped and counted.
    fn send(&self, to: Destination<'_>, lane: Lane, frame: &[u8]);

    /// From now on frames for the channel are wanted here.
    fn listen(&self, channel: &ChannelId);

    /// Frames for the channel are no longer wanted here.
    fn ignore(&self, channel: &ChannelId);

    /// What has been counted.
    fn counters(&self) -> &Counters;

    /// Ids (Linux) of the threads between an event and the network, for a policy of their own.
    fn threads(&self) -> Vec<i32>;

    /// Says goodbye: other hosts learn of it at once. Everything afterwards does nothing.
    fn close(&self);
}

/// What an engine counts, from its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames given to the engine, by [`Lane`]; one for many hosts counts once.
    pub sent: [AtomicU64; 3],
    /// Frames given to the handler, by lane.
    pub received: [AtomicU64; 3],
    /// Frames that were not sent: too long, or no room in the connection. Zenoh does not report the latter.
    pub dropped: AtomicU64,
    /// Frames and connections that were refused: malformed, another realm or version, another's name.
    pub refused: AtomicU64,
    /// Connections ended because a peer did not take control frames, or was silent.
    pub ended: AtomicU64,
}

impl Counters {
    /// Counts what another one has counted, too.
    pub(crate) fn add(&self, other: &Counters) {
        let Counters { sent, received, dropped, refused, ended } = self;
        let own = sent.iter().chain(received).chain([dropped, refused, ended]);
        let Counters { sent, received, dropped, refused, ended } = other;
        let others = sent.iter().chain(received).chain([dropped, refused, ended]);
        for (own, other) in own.zip(others) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn count_sent(&self, lane: Lane) {
        self.sent[lane as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_received(&self, lane: Lane) {
        self.received[lane as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens the engine that the configuration names. `enter` runs first in the thread whose scheduling policy the engine's
/// threads inherit.
///
/// # Errors
/// What is wrong with the configuration, an address that cannot be listened on, a certificate that cannot be used.
pub fn open(
    config: &crate::Config,
    incarnation: Incarnation,
    handler: Arc<dyn Handler>,
    enter: impl FnOnce() + Send + 'static,
) -> Result<Arc<dyn Engine>, crate::Error> {
    config.check()?;
    match config.engine {
        crate::EngineKind::Plain => crate::plain::open(config, incarnation, handler, enter),
        crate::EngineKind::Zenoh => crate::zenoh::open(config, incarnation, handler, enter),
    }
}
