//! The messages of `channels.sock`; little endian, no padding. Hello, Welcome and a refusal of the connection are
//! packets on the socket (SOCK_SEQPACKET). Welcome carries the memory of two rings ([`crate::message_ring`]),
//! through which all other messages go; after that the socket only wakes a side that sleeps.
//!
//! ```text
//! application                           daemon
//!   Hello ────────────────────────────────>        a connection is a lease: everything that HTTP
//!        <──────────────────────────── Welcome     requests opened under it ends with it
//!   Submit ───────────────────────────────>        answered by Sent if that was requested
//!        <───────────────────── Refused            always, if the event was refused
//!        <───────────────────── Writable           after `would block`: try again
//!   More(sink, n) ────────────────────────>        n more events of this sink may be sent
//!   Report(registration) ─────────────────>        for resource managers on this host and on sources' hosts
//!   Late(sink, source, n) ────────────────>        n events whose deadline passed while they waited
//!        <───────────────────── Event              at most as many as the credit; further ones stay in
//!        <───────────────────── Ended              the node's queue, which is bounded
//!        <───────────────────── Decided            to applications with a member of the channel
//! ```
//! A message longer than [`MAX_MESSAGE`] is sent in parts ([`parts`], [`Reassembler`]), in either direction, because the
//! rings take no longer messages, and a second way would break the order.
//!
//! Every message is checked: one with an unknown kind, a wrong length or a text that is not UTF-8 is invalid.

mod event;
mod parts;
mod read;

pub use event::{Attributes, Destination, Event, SubmitRequest};
pub use parts::{Reassembler, ReassemblyOutcome, parts};

use crate::api::channel::LeaseId;
use read::{Reader, text, word};

/// Version of the messages below; a daemon with another version refuses `Hello`.
pub const VERSION: u8 = 7;
/// Largest number of bytes of an event's payload.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Largest number of attributes of an event.
pub const MAX_ATTRIBUTES: usize = 16;
/// Largest number of bytes of an attribute's name.
pub const MAX_KEY: usize = 32;
/// Largest number of bytes of a message in one piece: 16 KiB of payload, the attributes and the fields before them.
pub const MAX_MESSAGE: usize = (16 << 10) + HEAD;
/// Largest number of bytes of a message in parts.
pub const MAX_WHOLE: usize = MAX_PAYLOAD + HEAD;
/// Largest number of bytes of the attributes and the fields before them.
const HEAD: usize = MAX_ATTRIBUTES * (1 + MAX_KEY + 8) + 256;
/// Largest number of bytes of a refusal's or a reason's text; a longer text is cut.
pub const MAX_TEXT: usize = 1_000;
/// Largest number of events for which a sink may have credit.
pub const MAX_CREDIT: u32 = 1024;

/// A message from an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient<'a> {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u8,
    },
    /// Submits an event.
    Submit(SubmitRequest<'a>),
    /// Permits the daemon to send further events of a sink. Credit beyond [`MAX_CREDIT`] is ignored.
    More {
        sink: u32,
        /// Number of further events.
        events: u32,
    },
    /// A value for resource managers: see [`Report`].
    Report(Report<'a>),
    /// Events were dropped while they waited for the application, because their deadline had passed.
    Late(LateReport<'a>),
}

/// Events that waited too long for their reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateReport<'a> {
    pub sink: u32,
    /// Name of the source's host.
    pub host: &'a str,
    /// The source's number on that host.
    pub source: u32,
    /// Number of events.
    pub events: u32,
}

/// A report of an application about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The application's registration in a group; it must belong to this connection.
    pub registration: u32,
    /// The attribute: a name that begins with `app.`.
    pub attribute: &'a str,
    pub value: i64,
}

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon<'a> {
    /// The connection was accepted.
    Welcome {
        /// The lease number of the connection.
        lease: LeaseId,
        /// This host's name on the network.
        host: &'a str,
    },
    /// An event of a sink.
    Event(Event<'a>),
    /// The result of a submitted event.
    Sent(Sent),
    /// A submitted event was refused.
    Refused(Refused<'a>),
    /// The number of a source that had to wait and may try again.
    Writable(u32),
    /// A source or sink ended without a request of the application.
    Ended {
        member: Member,
        /// The number of the source or sink.
        number: u32,
        why: &'a str,
    },
    /// A decision of a resource manager to which an application can adapt.
    Decided(Decision<'a>),
}

/// A decision of a resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The channel of the decision: `NAME`, or `quality:NAME`.
    pub channel: &'a str,
    /// The attribute, such as `app.rate_milli`: thousandths of an event per second.
    pub attribute: &'a str,
    /// The host whose sinks it concerns, or the application.
    pub subject: &'a str,
    /// The amount; `None`: the decision is withdrawn.
    pub amount: Option<i64>,
}

/// The kind of a member of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// Sends events.
    Source,
    /// Receives events.
    Sink,
}

/// The result of a submitted event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// [`SubmitRequest::tag`].
    pub tag: u32,
    /// The event's number among those of the source, from 1.
    pub number: u64,
    /// Number of sinks on other hosts to which the event was sent.
    pub remote: u32,
    /// Number of sinks on this host that received the event.
    pub local: u32,
    /// Number of sinks excluded by filters.
    pub filtered: u32,
    /// Number of sinks excluded because they are too slow (if the channel's policy is to drop), or because the
    /// event would arrive too late at their host.
    pub dropped: u32,
}

/// The refusal of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// [`SubmitRequest::tag`]; 0 if the connection is refused.
    pub tag: u32,
    pub source: u32,
    /// A slow sink blocks the channel until this time (CLOCK_MONOTONIC), or until [`FromDaemon::Writable`]; 0:
    /// another reason.
    pub blocked_until_ns: u64,
    /// The reason, with the next step.
    pub why: &'a str,
}

impl<'a> FromClient<'a> {
    /// Writes the message into `out`, after clearing it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let payload = self.encode_head(out);
        out.extend(payload);
    }

    /// Writes the message without an event's payload into `out`, after clearing it; returns the payload, which has to
    /// follow. So a sender need not copy it.
    pub fn encode_head(&self, out: &mut Vec<u8>) -> &'a [u8] {
        out.clear();
        match self {
            FromClient::Hello { version } => out.extend([1, *version]),
            FromClient::Submit(submit) => {
                submit.encode_head(out);
                return submit.payload;
            }
            FromClient::More { sink, events } => {
                out.push(3);
                word(out, *sink);
                word(out, *events);
            }
            FromClient::Report(Report { registration, attribute, value }) => {
                out.push(4);
                word(out, *registration);
                out.extend(value.to_le_bytes());
                text(out, attribute);
            }
            FromClient::Late(LateReport { sink, host, source, events }) => {
                out.push(5);
                [*sink, *source, *events].into_iter().for_each(|number| word(out, number));
                text(out, host);
            }
        }
        &[]
    }

    /// Reads a message; `None` if it is invalid.
    pub fn decode(bytes: &'a [u8]) -> Option<FromClient<'a>> {
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            1 => FromClient::Hello { version: reader.byte()? },
            2 => return SubmitRequest::decode(reader).map(FromClient::Submit),
            3 => FromClient::More { sink: reader.word()?, events: reader.word()? },
            4 => {
                let (registration, value) = (reader.word()?, reader.long()?.cast_signed());
                FromClient::Report(Report { registration, attribute: reader.text()?, value })
            }
            5 => {
                let (sink, source, events) = (reader.word()?, reader.word()?, reader.word()?);
                FromClient::Late(LateReport { sink, host: reader.text()?, source, events })
            }
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

impl<'a> FromDaemon<'a> {
    /// Writes the message into `out`, after clearing it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let payload = self.encode_head(out);
        out.extend(payload);
    }

    /// Like [`FromClient::encode_head`].
    pub fn encode_head(&self, out: &mut Vec<u8>) -> &'a [u8] {
        out.clear();
        match self {
            FromDaemon::Welcome { lease, host } => {
                out.push(129);
                out.extend(lease.to_le_bytes());
                text(out, host);
            }
            FromDaemon::Event(event) => {
                event.encode_head(out);
                return event.payload;
            }
            FromDaemon::Sent(sent) => sent.encode(out),
            FromDaemon::Refused(refused) => refused.encode(out),
            FromDaemon::Writable(source) => {
                out.push(133);
                word(out, *source);
            }
            FromDaemon::Ended { member, number, why } => {
                out.extend([134, u8::from(*member == Member::Sink)]);
                word(out, *number);
                text(out, why);
            }
            FromDaemon::Decided(decided) => decided.encode(out),
        }
        &[]
    }

    /// Reads a message; `None` if it is invalid.
    pub fn decode(bytes: &'a [u8]) -> Option<FromDaemon<'a>> {
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            129 => FromDaemon::Welcome { lease: reader.long()?, host: reader.text()? },
            130 => return Event::decode(reader).map(FromDaemon::Event),
            131 => FromDaemon::Sent(Sent::decode(&mut reader)?),
            132 => FromDaemon::Refused(Refused::decode(&mut reader)?),
            133 => FromDaemon::Writable(reader.word()?),
            134 => {
                let member = if reader.flag()? { Member::Sink } else { Member::Source };
                FromDaemon::Ended { member, number: reader.word()?, why: reader.text()? }
            }
            135 => FromDaemon::Decided(Decision::decode(&mut reader)?),
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

impl<'a> Decision<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([135, u8::from(self.amount.is_some())]);
        out.extend(self.amount.unwrap_or(0).to_le_bytes());
        [self.channel, self.attribute, self.subject].into_iter().for_each(|part| text(out, part));
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Decision<'a>> {
        let (is_decided, amount) = (reader.flag()?, reader.long()?.cast_signed());
        let amount = match (is_decided, amount) {
            (true, amount) => Some(amount),
            (false, 0) => None,
            // A withdrawn decision has exactly one encoding.
            (false, _) => return None,
        };
        Some(Decision { channel: reader.text()?, attribute: reader.text()?, subject: reader.text()?, amount })
    }
}

impl Sent {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(131);
        word(out, self.tag);
        out.extend(self.number.to_le_bytes());
        [self.remote, self.local, self.filtered, self.dropped].into_iter().for_each(|count| word(out, count));
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Sent> {
        Some(Sent {
            tag: reader.word()?,
            number: reader.long()?,
            remote: reader.word()?,
            local: reader.word()?,
            filtered: reader.word()?,
            dropped: reader.word()?,
        })
    }
}

impl<'a> Refused<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(132);
        word(out, self.tag);
        word(out, self.source);
        out.extend(self.blocked_until_ns.to_le_bytes());
        text(out, self.why);
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Refused<'a>> {
        Some(Refused {
            tag: reader.word()?,
            source: reader.word()?,
            blocked_until_ns: reader.long()?,
            why: reader.text()?,
        })
    }
}

#[cfg(test)]
mod tests;
