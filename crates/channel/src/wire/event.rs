//! Frames with events.
//!
//! ```text
//! flags u8 (1 deadline, 2 list of sinks, 4 attributes, 8 withdrawn) | priority u8 | type u16 | source u32 | number u64 | sent u64
//! | left u64, if there is a deadline | to u64, n u16, n × sink u32, if there is a list
//! | n u8, n × (length u8, name, value i64), if there are attributes | payload
//! ```
//! Without a list the event is for all sinks of the receiving host that receive the type. `sent` is the time of the source's
//! clock, `left` the time from then to the deadline, both in nanoseconds. A *withdrawn* event has neither attributes nor
//! payload: its deadline passed while it waited at its source, so it is late at all its sinks.

use super::{Kind, Malformed, PREFIX, Reader, Writer, begin};
use crate::attributes::{Attributes, AttributesRef, Key};
use crate::{InvalidKey, Limits, SubmitError};

const DEADLINE: u8 = 1;
const LIST: u8 = 2;
const ATTRIBUTES: u8 = 4;
const WITHDRAWN: u8 = 8;
/// Bytes of the longest header, with its list and its attributes.
const MOST_HEADER: usize = 64 + 4 * Limits::MEMBERS + Attributes::MAX_ON_EVENT * (9 + Key::MAX);

/// The fields before attributes and payload, except the list of sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub source: u32,
    pub number: u64,
    pub event_type: u16,
    pub priority: u8,
    /// By the source's clock.
    pub sent_ns: u64,
    /// From `sent_ns` to the deadline.
    pub left_ns: Option<u64>,
}

/// An event's frame, read without allocating memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFrame<'a> {
    pub header: Header,
    /// The receiver's incarnation, and the numbers of its sinks for which the event is, as four bytes each.
    pub list: Option<(u64, &'a [u8])>,
    pub attributes: AttributesRef<'a>,
    pub payload: &'a [u8],
    /// The event's deadline passed while it waited at its source.
    pub is_withdrawn: bool,
}

impl Header {
    /// Appends the whole frame; returns the number of its bytes that [`withdraw`] keeps. `attributes` are in the encoding of
    /// [`write_attributes`].
    pub(crate) fn write<'s>(
        &self,
        frame: &mut Vec<u8>,
        incarnation: u64,
        list: Option<(u64, impl ExactSizeIterator<Item = &'s u32>)>,
        attributes: &[u8],
        payload: &[u8],
    ) -> usize {
        let from = frame.len();
        let mut writer = begin(frame, Kind::Event, incarnation);
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(self.left_ns.is_some(), DEADLINE) | flag(list.is_some(), LIST);
        writer.u8(flags | flag(!attributes.is_empty(), ATTRIBUTES));
        writer.u8(self.priority);
        writer.u16(self.event_type);
        writer.u32(self.source);
        writer.u64(self.number);
        writer.u64(self.sent_ns);
        if let Some(left) = self.left_ns {
            writer.u64(left);
        }
        if let Some((to, sinks)) = list {
            writer.u64(to);
            writer.list(sinks, |writer, sink| writer.u32(*sink));
        }
        let head = writer.0.len() - from;
        if !attributes.is_empty() {
            writer.u8(AttributesRef::checked(attributes).iter().count() as u8);
        }
        writer.bytes(attributes);
        writer.bytes(payload);
        head
    }
}

/// Turns an event's frame, or its first `head` bytes, into the frame of a withdrawn event.
pub(crate) fn withdraw(frame: &mut Vec<u8>, head: usize) {
    frame.truncate(head);
    if let Some(flags) = frame.get_mut(PREFIX) {
        *flags = *flags & !ATTRIBUTES | WITHDRAWN;
    }
}

impl<'a> EventFrame<'a> {
    /// The longest event, without a frame's prefix, in bytes.
    pub(crate) const MOST: usize = MOST_HEADER + Limits::EVENT;

    /// Reads an event that came in one frame.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<EventFrame<'a>, Malformed> {
        EventFrame::read_up_to(Limits::FRAGMENT, reader)
    }

    /// Reads an event that came in fragments.
    pub(crate) fn read_large(reader: &mut Reader<'a>) -> Result<EventFrame<'a>, Malformed> {
        EventFrame::read_up_to(Limits::EVENT, reader)
    }

    fn read_up_to(most: usize, reader: &mut Reader<'a>) -> Result<EventFrame<'a>, Malformed> {
        let (flags, priority) = (reader.u8()?, reader.u8()?);
        if flags > 15 || priority > 7 {
            return Err(Malformed);
        }
        let event_type = reader.u16()?;
        let (source, number, sent_ns) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let left_ns = if flags & DEADLINE != 0 { Some(reader.u64()?) } else { None };
        let list = if flags & LIST != 0 { Some(read_list(reader)?) } else { None };
        let attributes = if flags & ATTRIBUTES != 0 { read_attributes(reader)? } else { AttributesRef::default() };
        let payload = reader.0;
        let is_withdrawn = flags & WITHDRAWN != 0;
        let has_content = !payload.is_empty() || flags & ATTRIBUTES != 0;
        if payload.len() > most || is_withdrawn && has_content {
            return Err(Malformed);
        }
        let header = Header { source, number, event_type, priority, sent_ns, left_ns };
        Ok(EventFrame { header, list, attributes, payload, is_withdrawn })
    }

    /// Whether the event is for this sink of this host.
    pub(crate) fn is_for(&self, sink: u32) -> bool {
        match self.list {
            None => true,
            Some((_, sinks)) => sinks.chunks_exact(4).any(|listed| listed == sink.to_le_bytes()),
        }
    }
}

fn read_list<'a>(reader: &mut Reader<'a>) -> Result<(u64, &'a [u8]), Malformed> {
    let to = reader.u64()?;
    let count = usize::from(reader.u16()?);
    if count > Limits::MEMBERS {
        return Err(Malformed);
    }
    Ok((to, reader.bytes(4 * count)?))
}

/// Checks all attributes, so that reading them later cannot fail.
fn read_attributes<'a>(reader: &mut Reader<'a>) -> Result<AttributesRef<'a>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count == 0 || count > Attributes::MAX_ON_EVENT {
        return Err(Malformed);
    }
    let whole = reader.0;
    for _ in 0..count {
        let length = reader.u8()?;
        let key = std::str::from_utf8(reader.bytes(usize::from(length))?).map_err(|_| Malformed)?;
        if !Key::fits(key) {
            return Err(Malformed);
        }
        reader.i64()?;
    }
    Ok(AttributesRef::checked(&whole[..whole.len() - reader.0.len()]))
}

/// Encodes an event's attributes, without their number.
pub(crate) fn write_attributes(attributes: &[(&str, i64)], into: &mut Vec<u8>) -> Result<(), SubmitError> {
    into.clear();
    if attributes.len() > Attributes::MAX_ON_EVENT {
        return Err(SubmitError::Attributes(attributes.len()));
    }
    let mut writer = Writer(into);
    for (key, value) in attributes {
        if !Key::fits(key) {
            return Err(InvalidKey { given: key.chars().take(2 * Key::MAX).collect() }.into());
        }
        writer.short(key);
        writer.i64(*value);
    }
    Ok(())
}
