//! The interface of a network engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_types::channel::{ChannelId, Name};

/// Largest number of bytes of a frame. The largest text that `channel` ships (64 KiB) and an announcement of a full
/// host fit.
pub const MAX_FRAME: usize = 256 << 10;

/// Largest number of other hosts that an engine connects to.
pub const MAX_HOSTS: usize = qfabric_realm::MAX_HOSTS;

/// A host that has been silent for this time counts as gone. Including the detection the time stays below 2 s.
pub const LEASE: Duration = Duration::from_millis(1500);

/// Signs of life in each lease, if nothing else is sent. A sign that is 0.75 s late ends a connection. With a hundred
/// hosts two signs are 400 frames a second. Three signs within 1 s were 900 frames a second, a quarter of the CPU time
/// of a host that receives ten reports a second from each host.
pub(crate) const SIGNS: u32 = 2;

/// An event that an engine reports to its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEvent<'a> {
    Arrived {
        /// The sender. Under mutual TLS with an access list the certificate proves the sender.
        from: &'a Name,
        lane: Lane,
        /// The bytes that the sender gave to [`Engine::send`].
        frame: &'a [u8],
    },
    /// A host is present: from now on frames can be sent to it.
    Appeared {
        host: &'a Name,
        /// A host that crashed and came back has another incarnation.
        incarnation: Incarnation,
    },
    /// A host has left, crashed, fallen silent or been disconnected.
    Vanished {
        host: &'a Name,
        /// The incarnation that ended.
        incarnation: Incarnation,
    },
}

/// Receives the engine's events. The engine's receive thread calls it with one event after the other; it must not
/// block.
pub trait Handler: Send + Sync + 'static {
    /// `engine` is the engine that reports the event, so the handler can answer at once.
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>);

    /// A thread of the engine panicked because of a defect in this program.
    fn failed(&self, thread: &'static str, message: String) {
        tracing::error!(thread, message, "a network thread failed");
    }
}

impl<F: Fn(&dyn Engine, EngineEvent<'_>) + Send + Sync + 'static> Handler for F {
    fn handle(&self, engine: &dyn Engine, event: EngineEvent<'_>) {
        self(engine, event);
    }
}

/// Carries frames between hosts. Calls return at once. If a peer does not take its frames in time, data frames are
/// dropped; control frames wait in a bounded backlog, and when it is full the connection ends.
pub trait Engine: Send + Sync {
    /// Sends a frame of at most [`MAX_FRAME`] bytes; longer ones are dropped and counted.
    fn send(&self, to: DestinationRef<'_>, lane: Lane, frame: &[u8]);

    /// Like [`Engine::send`]; the engine may keep a clone of the memory instead of a copy of the bytes.
    fn send_long(&self, to: DestinationRef<'_>, lane: Lane, frame: &Arc<Vec<u8>>) {
        self.send(to, lane, frame);
    }

    /// Requests frames for the channel.
    fn listen(&self, channel: &ChannelId);

    /// Ends [`Engine::listen`] for the channel.
    fn ignore(&self, channel: &ChannelId);

    fn counters(&self) -> &Counters;

    /// Whether the engine has used up so much of what does not come back that a new one should take its place.
    fn is_worn(&self) -> bool {
        false
    }

    /// Ids (Linux) of the threads between an event and the network, so that they can get a scheduling policy.
    fn threads(&self) -> Vec<i32>;

    /// Leaves the network; other hosts see it at once. Later calls have no effect.
    fn close(&self);
}

/// Counters of an engine since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames given to the engine, by [`Lane`]; a frame for many hosts counts once.
    pub sent: [AtomicU64; 3],
    /// Frames given to the handler, by lane.
    pub received: [AtomicU64; 3],
    /// Frames that were not sent because they are too long or the connection has no room. Zenoh does not report the
    /// latter.
    pub dropped: AtomicU64,
    /// Frames and connections that were refused: malformed, of another realm or version, or with another host's name.
    pub refused: AtomicU64,
    /// Connections that ended because a peer did not take control frames or was silent.
    pub ended: AtomicU64,
}

impl Counters {
    /// Adds the counts of another engine.
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

/// Opens the engine that the configuration names. `enter` runs first, in the thread whose scheduling policy the engine's
/// threads inherit.
///
/// # Errors
/// The configuration is invalid, an address cannot be listened on, or a certificate cannot be used.
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
