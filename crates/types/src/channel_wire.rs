//! The messages of `channels.sock`; little endian, no padding. Hello, Welcome and a refusal of the connection are packets on
//! the socket (SOCK_SEQPACKET). Welcome brings the memory of two rings ([`crate::message_ring`]), by which all other messages go;
//! after that the socket only wakes whoever sleeps.
//!
//! ```text
//! application                           daemon
//!   Hello ────────────────────────────────>        a connection is a lease: what was opened under its number (by
//!        <──────────────────────────── Welcome     HTTP) ends with it
//!   Submit ───────────────────────────────>        answered by Sent where that is asked for
//!        <───────────────────── Refused            always, where the event was not taken
//!        <───────────────────── Writable           after `would block`: try again
//!   More(sink, n) ────────────────────────>        n more events of this sink may be sent
//!   Report(registration) ─────────────────>        for resource managers, here and at those who feed the channel
//!   Late(sink, source, n) ────────────────>        n events whose time passed while they waited for the reader
//!        <───────────────────── Event              at most as many as there is credit for: the others stay in
//!        <───────────────────── Ended              the node's queue, which is bounded
//!        <───────────────────── Decided            to those with a source or a sink on the channel
//! ```
//! A message that is longer than [`MAX_MESSAGE`] goes in parts ([`parts`], [`Whole`]), in either direction: the rings take no
//! longer ones, and a second way would be a second order.
//!
//! Whatever arrives is checked: unknown kinds, wrong lengths and texts that are not UTF-8 are none.

mod event;
mod parts;
mod read;

pub use event::{Attributes, Event, Submit, To};
pub use parts::{Heard, Whole, parts};

use crate::api::channel::LeaseId;
use read::{Reader, text, word};

/// Of the messages below; a daemon that speaks another one refuses `Hello`.
pub const VERSION: u8 = 6;
/// Longest payload of an event.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Most attributes of an event.
pub const MAX_ATTRIBUTES: usize = 16;
/// Longest name of an attribute.
pub const MAX_KEY: usize = 32;
/// Longest message that goes in one piece: 16 KiB of payload, the attributes and what stands before them.
pub const MAX_MESSAGE: usize = (16 << 10) + HEAD;
/// Longest one in all.
pub const MAX_WHOLE: usize = MAX_PAYLOAD + HEAD;
/// Attributes, and what stands before them.
const HEAD: usize = MAX_ATTRIBUTES * (1 + MAX_KEY + 8) + 256;
/// Longest text of a refusal or a reason; longer ones are cut.
pub const MAX_TEXT: usize = 1_000;
/// Most events for which a sink may have credit.
pub const MAX_CREDIT: u32 = 1024;

/// What an application says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient<'a> {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u8,
    },
    /// Submits an event.
    Submit(Submit<'a>),
    /// So many more events of the sink may be sent. Credit beyond [`MAX_CREDIT`] is not counted.
    More {
        /// The sink.
        sink: u32,
        /// How many.
        events: u32,
    },
    /// How an application is doing, for resource managers: see [`Report`].
    Report(Report<'a>),
    /// Events were dropped where they waited for the application: their time had passed.
    Late(Late<'a>),
}

/// Events that waited too long for their reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late<'a> {
    /// The sink.
    pub sink: u32,
    /// The source's host.
    pub host: &'a str,
    /// The source's number there.
    pub source: u32,
    /// How many.
    pub events: u32,
}

/// How an application is doing, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The application, by its membership of a group: one of the connection's own.
    pub registration: u32,
    /// Of what: a name that begins with `app.`.
    pub attribute: &'a str,
    /// How much.
    pub value: i64,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDaemon<'a> {
    /// The connection is a lease.
    Welcome {
        /// Its number.
        lease: LeaseId,
        /// This host's name on the network.
        host: &'a str,
    },
    /// An event of a sink.
    Event(Event<'a>),
    /// What became of an event that was submitted.
    Sent(Sent),
    /// An event that was submitted was not taken.
    Refused(Refused<'a>),
    /// A source that was told to wait may try again.
    Writable(u32),
    /// A source or sink ended by itself.
    Ended {
        /// Source or sink.
        member: Member,
        /// Its number.
        number: u32,
        /// Why.
        why: &'a str,
    },
    /// A resource manager decided something that an application can adapt to.
    Decided(Decided<'a>),
}

/// What a resource manager decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided<'a> {
    /// The channel that it is about: `NAME`, or `quality:NAME`.
    pub channel: &'a str,
    /// Of what, such as `app.rate_milli`: thousandths of an event per second.
    pub attribute: &'a str,
    /// For which host's sinks, or which application.
    pub subject: &'a str,
    /// How much; none: it is not decided any more.
    pub amount: Option<i64>,
}

/// A member of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// Events come from it.
    Source,
    /// Events go to it.
    Sink,
}

/// What became of an event that was submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// [`Submit::tag`].
    pub tag: u32,
    /// The event's number among the source's, from 1.
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

/// Why an event was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// [`Submit::tag`]; 0 where the connection is meant.
    pub tag: u32,
    /// The source.
    pub source: u32,
    /// A slow sink holds the channel up until then (CLOCK_MONOTONIC), or until [`FromDaemon::Writable`]; 0: another
    /// reason.
    pub blocked_until_ns: u64,
    /// The reason, with the way out.
    pub why: &'a str,
}

impl<'a> FromClient<'a> {
    /// Writes the message into `out`, which is emptied first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            FromClient::Hello { version } => out.extend([1, *version]),
            FromClient::Submit(submit) => submit.encode(out),
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
            FromClient::Late(Late { sink, host, source, events }) => {
                out.push(5);
                [*sink, *source, *events].into_iter().for_each(|number| word(out, number));
                text(out, host);
            }
        }
    }

    /// Reads a message; none where it makes no sense.
    pub fn decode(bytes: &'a [u8]) -> Option<FromClient<'a>> {
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            1 => FromClient::Hello { version: reader.byte()? },
            2 => return Submit::decode(reader).map(FromClient::Submit),
            3 => FromClient::More { sink: reader.word()?, events: reader.word()? },
            4 => {
                let (registration, value) = (reader.word()?, reader.long()?.cast_signed());
                FromClient::Report(Report { registration, attribute: reader.text()?, value })
            }
            5 => {
                let (sink, source, events) = (reader.word()?, reader.word()?, reader.word()?);
                FromClient::Late(Late { sink, host: reader.text()?, source, events })
            }
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

impl<'a> FromDaemon<'a> {
    /// Writes the message into `out`, which is emptied first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            FromDaemon::Welcome { lease, host } => {
                out.push(129);
                out.extend(lease.to_le_bytes());
                text(out, host);
            }
            FromDaemon::Event(event) => event.encode(out),
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
    }

    /// Reads a message; none where it makes no sense.
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
            135 => FromDaemon::Decided(Decided::decode(&mut reader)?),
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

impl<'a> Decided<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([135, u8::from(self.amount.is_some())]);
        out.extend(self.amount.unwrap_or(0).to_le_bytes());
        [self.channel, self.attribute, self.subject].into_iter().for_each(|part| text(out, part));
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Decided<'a>> {
        let (is_decided, amount) = (reader.flag()?, reader.long()?.cast_signed());
        let amount = match (is_decided, amount) {
            (true, amount) => Some(amount),
            (false, 0) => None,
            // Nothing is said in two ways.
            (false, _) => return None,
        };
        Some(Decided { channel: reader.text()?, attribute: reader.text()?, subject: reader.text()?, amount })
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
