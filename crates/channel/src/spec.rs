//! What a channel is: its types of events, their order, and what happens when a sink is slow.

use qfabric_types::Nanos;
pub use qfabric_types::api::channel::Order;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::Format;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::wire::Writer;

/// One type of events. Its number is its place in [`Spec::types`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventType {
    /// Layout of an event's beginning; size 0: bytes without a layout. Its name is the type's name. What comes behind
    /// the layout, up to [`Limits::EVENT`] in all, is the application's.
    pub format: Format,
}

impl EventType {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.format.name
    }
}

/// What happens to an event when a sink's queue is full. The API names the same three, with the patience in a field of its
/// own ([`qfabric_types::api::channel::Pressure`]).
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

impl Spec {
    /// Whether it can be a channel's: its numbers within their limits, its formats sound, their names different.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_types()?;
        if let Pressure::Block { patience } = self.pressure
            && patience > Limits::PATIENCE
        {
            return Err(Error::Patience { asked: patience });
        }
        let asked = self.encoded_len();
        let remedy = "declare fewer or smaller types";
        if asked > Limits::SPEC {
            return Err(Error::TooMany { what: "bytes of specification", asked, limit: Limits::SPEC, remedy });
        }
        Ok(())
    }

    fn validate_types(&self) -> Result<(), Error> {
        let asked = self.types.len();
        if asked > Limits::TYPES {
            let remedy = "use several channels";
            return Err(Error::TooMany { what: "types of events", asked, limit: Limits::TYPES, remedy });
        }
        for (at, event_type) in self.types.iter().enumerate() {
            event_type.format.validate()?;
            if self.types[..at].iter().any(|before| before.name() == event_type.name()) {
                return Err(Error::TwoTypes(event_type.name().to_owned()));
            }
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        let mut bytes = Vec::new();
        Writer(&mut bytes).spec(self);
        bytes.len()
    }

    /// The number of a type.
    pub fn type_number(&self, name: &str) -> Option<u16> {
        let at = self.types.iter().position(|event_type| event_type.name() == name)?;
        Some(at as u16)
    }

    /// The number of a type of the channel's; the error names those that it has.
    pub(crate) fn numbered(&self, id: &ChannelId, name: &str) -> Result<u16, Error> {
        let known = || Error::NoType { channel: id.clone(), name: name.to_owned(), known: self.type_names() };
        self.type_number(name).ok_or_else(known)
    }

    /// The types of those names, one bit each; of no names: all types.
    pub(crate) fn wanted(&self, id: &ChannelId, names: &[String]) -> Result<u64, Error> {
        if names.is_empty() {
            return Ok(self.all_types());
        }
        names.iter().try_fold(0, |types, name| Ok(types | 1 << self.numbered(id, name)?))
    }

    /// All types, one bit each.
    pub(crate) fn all_types(&self) -> u64 {
        match self.types.len() {
            Limits::TYPES.. => u64::MAX,
            count => (1 << count) - 1,
        }
    }

    /// Names of the types, for people.
    pub(crate) fn type_names(&self) -> String {
        let names: Vec<String> = self.types.iter().map(|known| format!("`{}`", known.name())).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
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
    /// Sources and sinks of one host, on all channels: as many as its whole record is believed to have.
    pub const HOST_MEMBERS: usize = 4 * Limits::MEMBERS;
    /// Types of events of one channel.
    pub const TYPES: usize = 64;
    /// Filters of one channel on one host.
    pub const FILTERS: usize = 32;
    /// Bytes of a filter's text.
    pub const TEXT: usize = u16::MAX as usize;
    /// Registrations of applications on one host.
    pub const REGISTRATIONS: usize = 1024;
    /// Hosts that are known.
    pub const HOSTS: usize = 4096;
    /// Events in a sink's queue.
    pub const QUEUE: usize = 4096;
    /// Bytes of the events in a sink's queue.
    pub const QUEUE_BYTES: usize = 4 << 20;
    /// Bytes of an event on a data channel.
    pub const EVENT: usize = 1 << 20;
    /// Bytes of an event that goes in one frame: a longer one is split into fragments. On the quality plane, whose frames
    /// must not wait behind bulk, the limit of all events.
    pub const WHOLE: usize = 16 << 10;
    /// Bytes of an event in one fragment: two of them fill one of Zenoh's batches of 64 KiB.
    pub const FRAGMENT: usize = 30 << 10;
    /// Bytes under way to another host of fragments on the data lane, where nothing is to wait long. Zenoh drops what finds none of a connection's four batches free; this is what two of them take, while the two before
    /// it are being given back.
    pub const UNDER_WAY: u64 = 96 << 10;
    /// Bytes under way to another host on the bulk lane, whose queue has sixteen batches. With 44 KiB at least in each, of which one
    /// is being written and two are being given back, they hold 570 KiB.
    pub const BULK_UNDER_WAY: u64 = 384 << 10;
    /// Bytes that wait for a host until those before them have arrived. What finds no room is dropped.
    pub const WAITING: usize = 4 << 20;
    /// And where the channel blocks: then the source waits.
    pub const WAITING_BLOCKS: usize = 256 << 10;
    /// Bytes of a source's events that a sink has not read, where the channel blocks; the rest of its queue is for attributes.
    pub const UNREAD: usize = Limits::QUEUE_BYTES / 4 * 3;
    /// Bytes of a frame.
    pub const FRAME: usize = 128 << 10;
    /// Bytes of a specification as it is told to others.
    pub const SPEC: usize = 48 << 10;
    /// Bytes of a creation's proof.
    pub const PROOF: usize = 4 << 10;
    /// Longest time for which a slow sink may hold up the others.
    pub const PATIENCE: Nanos = Nanos::from_millis(10_000);
}
