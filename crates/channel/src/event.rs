//! Events as they are submitted, delivered and taken.

use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use crate::{AttributesRef, SourceId};

/// Whom an event is for, before filters choose among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// All sinks of the channel.
    #[default]
    All,
    /// All of its sinks on one host, such as a resource manager's.
    Host(&'a Name),
    /// One sink.
    Sink(&'a Name, u32),
}

/// An event to be submitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submission<'a> {
    /// Its type's number.
    pub event_type: u16,
    /// 0, the lowest, to 7.
    pub priority: u8,
    /// When it is of no use any more, by this host's clock.
    pub deadline: Option<Instant>,
    /// For whom.
    pub target: Target<'a>,
    /// At most 16, each name 1 to 32 of `a-z A-Z 0-9 _`.
    pub attributes: &'a [(&'a str, i64)],
    /// As the type's format says, with anything behind it; at most 1 MiB in all ([`crate::Limits::EVENT`]).
    pub payload: &'a [u8],
}

/// What became of a submitted event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Its number among this source's events, from 1.
    pub number: u64,
    /// Sinks on other hosts that it was sent to.
    pub remote: u32,
    /// Sinks on this host that it was given to.
    pub local: u32,
    /// Sinks that filters passed over.
    pub filtered: u32,
    /// Sinks that are too slow, where the channel's policy is to drop, or at hosts that it would not reach in time.
    pub dropped: u32,
}

/// An event at a sink. Times are by this host's clock.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Where.
    pub channel: &'a ChannelId,
    /// The source's host.
    pub host: &'a Name,
    /// The source's number there.
    pub source: SourceId,
    /// The event's number among the source's, from 1; those that filters kept from here are missing.
    pub number: u64,
    /// Its type's number.
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
    /// When it was submitted; exact to half a round trip for events from elsewhere.
    pub sent: Instant,
    /// When it is of no use any more.
    pub deadline: Option<Instant>,
    /// Its Q-attributes.
    pub attributes: AttributesRef<'a>,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// An event that was taken from a queue. Kept by the caller and used again, so that taking needs no memory.
#[derive(Debug, Default)]
pub struct Taken {
    pub(crate) meta: Option<Meta>,
    pub(crate) channel: Option<Arc<ChannelId>>,
    pub(crate) host: Option<Arc<Name>>,
    /// Attributes, then the payload.
    pub(crate) bytes: Vec<u8>,
}

/// What is kept of an event beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub source: SourceId,
    pub number: u64,
    pub event_type: u16,
    pub priority: u8,
    pub sent: Instant,
    pub deadline: Option<Instant>,
    /// How many of the bytes are attributes.
    pub attribute_bytes: u32,
}

impl Meta {
    pub fn of(event: &Event<'_>) -> Meta {
        Meta {
            source: event.source,
            number: event.number,
            event_type: event.event_type,
            priority: event.priority,
            sent: event.sent,
            deadline: event.deadline,
            attribute_bytes: event.attributes.bytes().len() as u32,
        }
    }
}

impl Taken {
    /// The event; none before the first was taken.
    pub fn event(&self) -> Option<Event<'_>> {
        let (meta, channel, host) = (self.meta?, self.channel.as_deref()?, self.host.as_deref()?);
        let (attributes, payload) = self.bytes.split_at(meta.attribute_bytes as usize);
        Some(Event {
            channel,
            host,
            source: meta.source,
            number: meta.number,
            event_type: meta.event_type,
            priority: meta.priority,
            sent: meta.sent,
            deadline: meta.deadline,
            attributes: AttributesRef::checked(attributes),
            payload,
        })
    }
}
