//! Events between application and daemon.

use super::read::{Reader, text, word};
use super::{MAX_ATTRIBUTES, MAX_KEY, MAX_PAYLOAD};

/// The recipients of an event, before filters choose among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination<'a> {
    /// All sinks of the channel.
    #[default]
    All,
    /// All sinks on one host.
    Host(&'a str),
    /// One sink: its host and number.
    Sink(&'a str, u32),
}

/// A submitted event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubmitRequest<'a> {
    pub source: u32,
    /// A number that the answer repeats; not 0.
    pub tag: u32,
    /// Whether [`super::Sent`] is wanted; refusals are always sent.
    pub confirm: bool,
    /// Whether the daemon keeps the event while a slow sink holds the channel up. Then the answer comes later.
    pub keep: bool,
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
    /// The time after which the event is of no use, CLOCK_MONOTONIC; 0: no limit.
    pub deadline_ns: u64,
    pub to: Destination<'a>,
    /// Q-attributes.
    pub attributes: Attributes<'a>,
    pub payload: &'a [u8],
}

/// An event for a sink. Times are CLOCK_MONOTONIC of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    pub sink: u32,
    /// Name of the source's host.
    pub host: &'a str,
    /// The source's number on that host.
    pub source: u32,
    /// The event's number among those of the source, from 1.
    pub number: u64,
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
    /// Time of submission.
    pub sent_ns: u64,
    /// The time after which the event is of no use; 0: no limit.
    pub deadline_ns: u64,
    /// Q-attributes.
    pub attributes: Attributes<'a>,
    pub payload: &'a [u8],
}

/// Q-attributes of an event: a list, or encoded bytes.
#[derive(Clone, Copy, Debug)]
pub enum Attributes<'a> {
    /// A list. Entries beyond [`MAX_ATTRIBUTES`] or [`MAX_KEY`] are not sent, so check before.
    Listed(&'a [(&'a str, i64)]),
    /// Encoded bytes that were checked.
    Read(&'a [u8]),
}

impl Default for Attributes<'_> {
    fn default() -> Self {
        Attributes::Listed(&[])
    }
}

impl PartialEq for Attributes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Attributes<'_> {}

impl<'a> Attributes<'a> {
    /// In the given order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, i64)> + use<'a> {
        let (listed, bytes) = match *self {
            Attributes::Listed(listed) => (listed, &[][..]),
            Attributes::Read(bytes) => (&[][..], bytes),
        };
        let mut reader = Reader(bytes);
        let read = std::iter::from_fn(move || attribute(&mut reader));
        listed.iter().copied().take(MAX_ATTRIBUTES).filter(|(key, _)| key.len() <= MAX_KEY).chain(read)
    }

    pub fn get(&self, key: &str) -> Option<i64> {
        self.iter().find(|(have, _)| *have == key).map(|(_, value)| value)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        for (key, value) in self.iter() {
            out[at] += 1;
            out.push(key.len() as u8);
            out.extend(key.as_bytes());
            out.extend(value.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Attributes<'a>> {
        let count = reader.byte().filter(|count| usize::from(*count) <= MAX_ATTRIBUTES)?;
        let from = reader.0;
        for _ in 0..count {
            attribute(reader)?;
        }
        Some(Attributes::Read(&from[..from.len() - reader.0.len()]))
    }
}

fn attribute<'a>(reader: &mut Reader<'a>) -> Option<(&'a str, i64)> {
    let length = usize::from(reader.byte()?);
    let key = reader.bytes(length).filter(|key| (1..=MAX_KEY).contains(&key.len()))?;
    Some((std::str::from_utf8(key).ok()?, reader.long()? as i64))
}

impl<'a> SubmitRequest<'a> {
    /// All but the payload.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        out.extend([2, u8::from(self.confirm) | u8::from(self.keep) << 1, self.priority]);
        word(out, self.source);
        word(out, self.tag);
        out.extend(self.event_type.to_le_bytes());
        out.extend(self.deadline_ns.to_le_bytes());
        self.to.encode(out);
        self.attributes.encode(out);
    }

    pub(super) fn decode(mut reader: Reader<'a>) -> Option<SubmitRequest<'a>> {
        let (flags, priority) = (reader.byte().filter(|flags| *flags < 4)?, reader.byte()?);
        let submit = SubmitRequest {
            confirm: flags & 1 != 0,
            keep: flags & 2 != 0,
            priority,
            source: reader.word()?,
            tag: reader.word()?,
            event_type: reader.half()?,
            deadline_ns: reader.long()?,
            to: Destination::decode(&mut reader)?,
            attributes: Attributes::decode(&mut reader)?,
            payload: reader.0,
        };
        (submit.payload.len() <= MAX_PAYLOAD).then_some(submit)
    }
}

impl<'a> Destination<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Destination::All => out.push(0),
            Destination::Host(host) => {
                out.push(1);
                text(out, host);
            }
            Destination::Sink(host, sink) => {
                out.push(2);
                text(out, host);
                word(out, *sink);
            }
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Destination<'a>> {
        Some(match reader.byte()? {
            0 => Destination::All,
            1 => Destination::Host(reader.text()?),
            2 => Destination::Sink(reader.text()?, reader.word()?),
            _ => return None,
        })
    }
}

impl<'a> Event<'a> {
    /// All but the payload.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        out.extend([130, self.priority]);
        word(out, self.sink);
        text(out, self.host);
        word(out, self.source);
        out.extend(self.number.to_le_bytes());
        out.extend(self.event_type.to_le_bytes());
        out.extend(self.sent_ns.to_le_bytes());
        out.extend(self.deadline_ns.to_le_bytes());
        self.attributes.encode(out);
    }

    pub(super) fn decode(mut reader: Reader<'a>) -> Option<Event<'a>> {
        let event = Event {
            priority: reader.byte()?,
            sink: reader.word()?,
            host: reader.text()?,
            source: reader.word()?,
            number: reader.long()?,
            event_type: reader.half()?,
            sent_ns: reader.long()?,
            deadline_ns: reader.long()?,
            attributes: Attributes::decode(&mut reader)?,
            payload: reader.0,
        };
        (event.payload.len() <= MAX_PAYLOAD).then_some(event)
    }
}
