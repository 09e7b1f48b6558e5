//! What a channel is: its types of events, their order, and what happens when a sink is slow.

use qfabric_types::Nanos;
use qfabric_types::channel::Name;
use qfabric_types::format::Format;
use serde::{Deserialize, Serialize};

/// One type of events. Its number is its place in [`Spec::types`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventType {
    /// Layout of an event's beginning; size 0: bytes without a layout. Its name is the type's name. What comes behind
    /// the layout, up to [`Format::MAX_SIZE`] in all, is the application's.
    pub format: Format,
}

impl EventType {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.format.name
    }
}

/// In which order queued events of one priority are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As they were submitted, by this host's clock.
    #[default]
    Time,
    /// Earliest deadline first; those without one after the others.
    Deadline,
}

/// What happens to an event when a sink's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// The oldest of the lowest priority makes room.
    #[default]
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// [`crate::Node::submit`] says [`crate::SubmitError::WouldBlock`] until the sink has taken events, for at most
    /// `patience`; from then on this sink's events are dropped until it takes some.
    Block {
        /// How long a slow sink may hold up the others. At most [`Limits::PATIENCE`].
        patience: Nanos,
    },
}

/// A channel's specification: given by its creator, carried by everybody who holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Types of events, at most [`Limits::TYPES`].
    pub types: Vec<EventType>,
    /// Order.
    #[serde(default)]
    pub order: Order,
    /// Back-pressure.
    #[serde(default)]
    pub pressure: Pressure,
}

/// Who created a channel, and when. Of two creations of one name the smaller stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// Nanoseconds since 1970 by the creator's clock.
    pub created_unix_ns: u64,
    /// The creator's host.
    pub creator: Name,
}

/// How much there may be of everything. Refusals name the number, the limit and what to do.
#[derive(Debug)]
pub enum Limits {}

impl Limits {
    /// Channels that are held on one host.
    pub const CHANNELS: usize = 1024;
    /// Sources and sinks of one channel, on all hosts.
    pub const MEMBERS: usize = 4096;
    /// Types of events of one channel.
    pub const TYPES: usize = 64;
    /// Filters of one channel on one host.
    pub const FILTERS: usize = 32;
    /// Bytes of a filter's text.
    pub const TEXT: usize = 64 << 10;
    /// Registrations of applications on one host.
    pub const REGISTRATIONS: usize = 1024;
    /// Hosts that are known.
    pub const HOSTS: usize = 4096;
    /// Events in a sink's queue.
    pub const QUEUE: usize = 4096;
    /// Bytes of the events in a sink's queue.
    pub const QUEUE_BYTES: usize = 4 << 20;
    /// Bytes of a frame.
    pub const FRAME: usize = 64 << 10;
    /// Longest time for which a slow sink may hold up the others.
    pub const PATIENCE: Nanos = Nanos::from_millis(10_000);
}
