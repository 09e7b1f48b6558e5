//! Events: what a source submits, what a sink receives, and what a caller takes from a queue.

use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};

use crate::{AttributesRef, SourceId};

/// The sinks that an event is meant for, before filters choose among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// All sinks of the channel.
    #[default]
    All,
    /// All sinks of the channel on one host, for example a resource manager's.
    Host(&'a Name),
    Sink(&'a Name, u32),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Submission<'a> {
    /// The type's place in [`crate::Spec::types`].
    pub event_type: u16,
    /// 0 (lowest) to 7.
    pub priority: u8,
    /// The event is of no use after this time of this host's clock.
    pub deadline: Option<Instant>,
    pub target: Target<'a>,
    /// The time for which the event may wait on its way, so that it goes to other hosts in one frame with others: at most
    /// [`crate::Limits::SLACK`], and half of the time to the deadline; more is shortened. Only Q-channels use it.
    pub slack: Nanos,
    /// At most 16; each name has 1 to 32 characters of `a-z A-Z 0-9 _`.
    pub attributes: &'a [(&'a str, i64)],
    /// In the format of the type, with any bytes behind it; at most 1 MiB in total ([`crate::Limits::EVENT`]).
    pub payload: &'a [u8],
}

/// The number of sinks that a submitted event was sent to, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The event's number among this source's events, from 1.
    pub number: u64,
    /// Sinks on other hosts that the event was sent to.
    pub remote: u32,
    /// Sinks on this host that the event was given to.
    pub local: u32,
    /// Sinks that filters removed.
    pub filtered: u32,
    /// Sinks that were passed over because they are too slow (if the channel drops events), or because the event would
    /// reach their host too late.
    pub dropped: u32,
}

/// An event at a sink. Times are by this host's clock.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub channel: &'a ChannelId,
    /// The source's host.
    pub host: &'a Name,
    /// The source's number on its host.
    pub source: SourceId,
    /// The event's number among the source's, from 1. Numbers of events that filters withheld from this host are
    /// missing.
    pub number: u64,
    /// The type's place in [`crate::Spec::types`].
    pub event_type: u16,
    /// 0 (lowest) to 7.
    pub priority: u8,
    /// The time of submission; for events of other hosts exact to half a round trip.
    pub sent: Instant,
    /// The event is of no use after this time.
    pub deadline: Option<Instant>,
    pub attributes: AttributesRef<'a>,
    pub payload: &'a [u8],
}

/// An event that was taken from a queue. The caller passes the same value to the next take, so that taking allocates no
/// memory.
#[derive(Debug, Default)]
pub struct Taken {
    pub(crate) meta: Option<Meta>,
    pub(crate) channel: Option<Arc<ChannelId>>,
    pub(crate) host: Option<Arc<Name>>,
    /// The attributes, then the payload.
    pub(crate) bytes: Vec<u8>,
}

/// The fields of an event that are not bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub source: SourceId,
    pub number: u64,
    pub event_type: u16,
    pub priority: u8,
    pub sent: Instant,
    pub deadline: Option<Instant>,
    /// How many of [`Taken::bytes`] are attributes.
    pub attribute_bytes: u32,
}

impl Meta {
    pub(crate) fn of(event: &Event<'_>) -> Meta {
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
    /// `None` before the first event was taken.
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
