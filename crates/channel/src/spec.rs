//! A channel's specification: its types of events, their order, and what happens when a sink is slow.

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
    /// Layout of an event's beginning; its name is the type's name. Size 0 means bytes without a layout. The bytes
    /// behind the layout, up to [`Limits::EVENT`] in total, belong to the application.
    pub format: Format,
}

impl EventType {
    pub fn name(&self) -> &str {
        &self.format.name
    }
}

/// What happens to an event when a sink's queue is full. The API has the same three variants, with the patience in a
/// separate field ([`qfabric_types::api::channel::Pressure`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// The oldest event of the lowest priority is dropped.
    #[default]
    DropOldest,
    /// The new event is dropped.
    DropNewest,
    /// [`crate::Node::submit`] returns [`crate::SubmitError::WouldBlock`] until the sink has taken events, for at most
    /// `patience`. After that, events for this sink are dropped until it takes some.
    Block {
        /// The longest time for which a slow sink may hold up the others. At most [`Limits::PATIENCE`].
        patience: Nanos,
    },
}

/// A channel's specification. The creator sets it; every holder stores and announces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// At most [`Limits::TYPES`].
    pub types: Vec<EventType>,
    #[serde(default)]
    pub order: Order,
    #[serde(default)]
    pub pressure: Pressure,
}

impl Spec {
    /// Checks that the numbers are within their limits, the formats are valid, and the names of the types differ.
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

    pub fn type_number(&self, name: &str) -> Option<u16> {
        let at = self.types.iter().position(|event_type| event_type.name() == name)?;
        Some(at as u16)
    }

    /// Like [`Spec::type_number`]; the error lists the channel's types.
    pub(crate) fn numbered(&self, id: &ChannelId, name: &str) -> Result<u16, Error> {
        let known = || Error::NoType { channel: id.clone(), name: name.to_owned(), known: self.type_names() };
        self.type_number(name).ok_or_else(known)
    }

    /// The types of these names, one bit each; all types if `names` is empty.
    pub(crate) fn wanted(&self, id: &ChannelId, names: &[String]) -> Result<u64, Error> {
        if names.is_empty() {
            return Ok(self.all_types());
        }
        names.iter().try_fold(0, |types, name| Ok(types | 1 << self.numbered(id, name)?))
    }

    /// A mask with one bit for each type.
    pub(crate) fn all_types(&self) -> u64 {
        match self.types.len() {
            Limits::TYPES.. => u64::MAX,
            count => (1 << count) - 1,
        }
    }

    /// The names of the types, for messages.
    pub(crate) fn type_names(&self) -> String {
        let names: Vec<String> = self.types.iter().map(|known| format!("`{}`", known.name())).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The creator of a channel and the time of creation. On a name conflict the smaller (earlier) origin wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// Nanoseconds since 1970 by the creator's clock.
    pub created_unix_ns: u64,
    pub creator: Name,
}

/// The limits of all quantities. A refusal names the number, the limit and the next step.
#[derive(Debug)]
pub enum Limits {}

impl Limits {
    /// Channels that one host holds.
    pub const CHANNELS: usize = 1024;
    /// Sources and sinks of one channel, on all hosts.
    pub const MEMBERS: usize = 4096;
    /// Sources and sinks of one host, on all channels. Other hosts ignore members of its record beyond this number.
    pub const HOST_MEMBERS: usize = 4 * Limits::MEMBERS;
    /// Types of events of one channel.
    pub const TYPES: usize = 64;
    /// Filters of one channel on one host.
    pub const FILTERS: usize = 32;
    /// Instructions per second of the filters of one user, or of one other host, by default: with 1 ns for an
    /// instruction a tenth of a CPU.
    pub const FILTER_RATE: u64 = 100_000_000;
    /// Bytes of a filter's text.
    pub const TEXT: usize = u16::MAX as usize;
    /// Registrations of applications on one host.
    pub const REGISTRATIONS: usize = 1024;
    /// Hosts in the directory.
    pub const HOSTS: usize = 4096;
    /// Events in a sink's queue.
    pub const QUEUE: usize = 4096;
    /// Bytes of all events in a sink's queue. On a channel that blocks, each host has a share beyond it: see `queue`.
    pub const QUEUE_BYTES: usize = 4 << 20;
    /// Bytes of an event on a data channel.
    pub const EVENT: usize = 1 << 20;
    /// Bytes of an event that goes in one frame; a longer event is split into fragments. On the quality plane, whose
    /// frames must not wait behind bulk data, this is the limit for all events.
    pub const WHOLE: usize = 16 << 10;
    /// Bytes of an event in one fragment: two fragments fill one of Zenoh's batches of 64 KiB.
    pub const FRAGMENT: usize = 30 << 10;
    /// Bytes of fragments under way to another host on the data lane, whose queue must stay short. Zenoh drops a frame
    /// if none of a connection's four batches is free. This limit fills two batches; the other two may still be in the
    /// process of being returned.
    pub const UNDER_WAY: u64 = 96 << 10;
    /// Bytes under way to another host on the bulk lane, whose queue has sixteen batches. One batch is being written
    /// and two are being returned; the others, with at least 44 KiB each, hold 570 KiB.
    pub const BULK_UNDER_WAY: u64 = 384 << 10;
    /// Bytes that wait for a host until earlier bytes have arrived. An event that finds no room is dropped.
    pub const WAITING: usize = 4 << 20;
    /// As [`Limits::WAITING`], for a channel that blocks: its source waits instead.
    pub const WAITING_BLOCKS: usize = 256 << 10;
    /// Bytes of a source's events that a sink has not read, on a channel that blocks; the rest of the queue is for
    /// attributes.
    pub const UNREAD: usize = Limits::QUEUE_BYTES / 4 * 3;
    pub const FRAME: usize = 128 << 10;
    /// Bytes of a private message to another host.
    pub const PRIVATE: usize = 4 << 10;
    /// Bytes of frames that go to a host in one: they fill one of Zenoh's batches of 64 KiB.
    pub const BUNDLE: usize = 60 << 10;
    /// Bytes of frames that wait for others, for all hosts; when there are more, all of them are sent.
    pub const BUNDLES: usize = 4 << 20;
    /// Hosts to which a combiner passes one frame on.
    pub const BUNDLE_HOSTS: usize = 32;
    /// Longest time for which an event may wait for others.
    pub const SLACK: Nanos = Nanos::from_millis(10_000);
    /// Bytes of an encoded specification.
    pub const SPEC: usize = 48 << 10;
    /// Bytes of a creation's proof.
    pub const PROOF: usize = 4 << 10;
    /// Longest time for which a slow sink may hold up the others.
    pub const PATIENCE: Nanos = Nanos::from_millis(10_000);
}
