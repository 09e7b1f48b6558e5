//! The mapping from an event and the sinks' attributes to a filter's `struct input`, and from its `struct output` to a
//! choice.
//!
//! ```text
//! struct input  { …members of the event, by name and type…; struct { long type, priority, size, …attributes…; } event;
//!                 int sinks; struct { …attributes of a sink… } sink[N]; int tail_size; unsigned char tail[N]; }
//! struct output { unsigned char chosen[N]; …members of the event that are changed…; int tail_size; unsigned char tail[N]; }
//! ```
//! The *tail* is the part behind the event's own structure: `tail_size` bytes, of which the input has the first N. An
//! output with a `tail` replaces these bytes; an output with `tail_size` alone keeps the first `tail_size` of them. A
//! member of the event's own format takes precedence over a built-in name. All numbers are truncated to their members'
//! types.

use qfabric_types::format::{Field, Format, Kind, Scalar};

use super::Draft;
use crate::{Event, Limits};

/// A range of bytes that is copied unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub from: u32,
    pub to: u32,
    pub bytes: u32,
}

/// The position of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub offset: u32,
    pub ty: Scalar,
}

impl At {
    pub(super) fn put(self, value: i64, into: &mut [u8]) {
        let bytes = self.ty.bytes() as usize;
        into[self.offset as usize..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    fn get(self, from: &[u8]) -> Option<i64> {
        let bytes = self.ty.bytes() as usize;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(from.get(self.offset as usize..)?.get(..bytes)?);
        Some(self.ty.wrap(i64::from_le_bytes(word)))
    }
}

/// The built-in numbers of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Type,
    Priority,
    Size,
    Attribute(String),
}

impl Word {
    fn of(name: &str) -> Word {
        match name {
            "type" => Word::Type,
            "priority" => Word::Priority,
            "size" => Word::Size,
            _ => Word::Attribute(name.to_owned()),
        }
    }

    pub(super) fn of_event(&self, event: &Event<'_>) -> i64 {
        match self {
            Word::Type => i64::from(event.event_type),
            Word::Priority => i64::from(event.priority),
            Word::Size => event.payload.len() as i64,
            Word::Attribute(name) => event.attributes.get(name).unwrap_or(0),
        }
    }
}

/// The copies for events of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub copies: Vec<Copied>,
    pub words: Vec<(Word, At)>,
    /// From the output back to the payload.
    pub writes: Vec<Copied>,
    pub tail: Tail,
}

/// The tail behind the event's structure, which has `head` bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub head: u32,
    /// Offset and length in bytes of the array.
    pub input: Option<(u32, u32)>,
    pub output: Option<(u32, u32)>,
    pub input_size: Option<At>,
    pub output_size: Option<At>,
}

/// A filter requested a tail of an impossible length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`output.tail_size` is {asked}, but must be between 0 and {most} for this event")]
pub(crate) struct BadTail {
    pub asked: i64,
    pub most: usize,
}

impl Tail {
    /// Copies the payload's tail and its size into the input.
    pub(super) fn read(&self, payload: &[u8], input: &mut [u8]) {
        let tail = payload.get(self.head as usize..).unwrap_or_default();
        if let Some(at) = self.input_size {
            at.put(tail.len() as i64, input);
        }
        if let Some((offset, room)) = self.input {
            let place = &mut input[offset as usize..][..room as usize];
            let (filled, rest) = place.split_at_mut(tail.len().min(room as usize));
            filled.copy_from_slice(&tail[..filled.len()]);
            rest.fill(0);
        }
    }

    /// Applies the output's tail to the payload; on an error nothing changes.
    pub(super) fn write(&self, output: &[u8], draft: &mut Draft<'_, '_>) -> Result<(), BadTail> {
        let Some(size) = self.output_size else { return Ok(()) };
        let (head, have) = (self.head as usize, draft.event().payload.len());
        let most = match self.output {
            Some((_, room)) => (room as usize).min(Limits::WHOLE - head),
            None => have - head,
        };
        let asked = size.get(output).unwrap_or(-1);
        let tail = usize::try_from(asked).ok().filter(|tail| *tail <= most).ok_or(BadTail { asked, most })?;
        match self.output {
            Some((offset, _)) => {
                let payload = draft.edit();
                payload.truncate(head);
                payload.extend_from_slice(&output[offset as usize..][..tail]);
            }
            None if head + tail < have => draft.edit().truncate(head + tail),
            None => {}
        }
        Ok(())
    }
}

/// The columns of the sinks' attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub at: u32,
    pub stride: u32,
    pub rows: u32,
    pub columns: Vec<(String, At)>,
}

/// The part of the mapping that does not depend on the event's type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub sinks: Option<At>,
    pub table: Option<Table>,
    /// Offset of the first byte in the output, and the number of bytes.
    pub chosen: Option<(u32, u32)>,
}

/// The structure's name, and what is wrong with it.
pub(crate) type Misfit = (&'static str, String);

impl Plan {
    pub(super) fn new(input: &Format, output: Option<&Format>, event: &Format) -> Result<Plan, Misfit> {
        let mut plan = Plan { tail: Tail { head: event.size, ..Tail::default() }, ..Plan::default() };
        for field in &input.fields {
            plan.take(field, event).map_err(|what| ("input", what))?;
        }
        for field in output.map_or(&[][..], |output| &output.fields) {
            plan.give(field, event).map_err(|what| ("output", what))?;
        }
        if plan.tail.output.is_some() && plan.tail.output_size.is_none() {
            return Err((
                "output",
                "`tail` needs a number `tail_size` beside it, the number of bytes in use".to_owned(),
            ));
        }
        Ok(plan)
    }

    fn take(&mut self, field: &Field, event: &Format) -> Result<(), String> {
        if let Some(there) = event.field(&field.name) {
            let bytes = same(field, there)?;
            self.copies.push(Copied { from: there.offset, to: field.offset, bytes });
            self.copies = merged(std::mem::take(&mut self.copies));
            return Ok(());
        }
        match (field.name.as_str(), &field.kind) {
            ("sinks" | "sink", _) => Ok(()),
            ("tail", _) => bytes(field).map(|place| self.tail.input = Some(place)),
            ("tail_size", _) => number(field, 0).map(|at| self.tail.input_size = Some(at)),
            ("event", Kind::Struct(words)) if field.dims.is_empty() => {
                for (name, at) in numbers(words, field.offset)? {
                    self.words.push((Word::of(&name), at));
                }
                Ok(())
            }
            (name, _) => Err(unknown(name, event)),
        }
    }

    fn give(&mut self, field: &Field, event: &Format) -> Result<(), String> {
        if let Some(there) = event.field(&field.name) {
            let bytes = same(field, there)?;
            self.writes.push(Copied { from: field.offset, to: there.offset, bytes });
            return Ok(());
        }
        match field.name.as_str() {
            "chosen" | "sinks" | "sink" | "event" => Ok(()),
            "tail" => bytes(field).map(|place| self.tail.output = Some(place)),
            "tail_size" => number(field, 0).map(|at| self.tail.output_size = Some(at)),
            name => Err(unknown(name, event)),
        }
    }
}

impl Shape {
    pub(super) fn new(input: &Format, output: Option<&Format>, event: Option<&Format>) -> Result<Shape, Misfit> {
        let ours = |field: &&Field| event.is_none_or(|event| event.field(&field.name).is_none());
        let word = |format: &Format, name: &str| format.field(name).filter(ours).cloned();
        let mut shape = Shape::default();
        if let Some(field) = word(input, "sinks") {
            shape.sinks = Some(number(&field, 0).map_err(|what| ("input", what))?);
        }
        if let Some(field) = word(input, "sink") {
            shape.table = Some(table(&field).map_err(|what| ("input", what))?);
        }
        if let Some(field) = output.and_then(|output| word(output, "chosen")) {
            shape.chosen = Some(bytes(&field).map_err(|what| ("output", what))?);
        }
        Ok(shape)
    }
}

fn table(field: &Field) -> Result<Table, String> {
    let (Kind::Struct(row), [rows]) = (&field.kind, &field.dims[..]) else {
        return Err(format!("`sink` is {}, but must be an array of structures of numbers", field.type_text()));
    };
    Ok(Table { at: field.offset, stride: row.size, rows: *rows, columns: numbers(row, 0)? })
}

/// Offset and length of an array of bytes.
fn bytes(field: &Field) -> Result<(u32, u32), String> {
    match (&field.kind, &field.dims[..]) {
        (Kind::Scalar(Scalar { bits: 8, .. }), [count]) => Ok((field.offset, *count)),
        _ => Err(format!("`{}` is {}, but must be an array of `unsigned char`", field.name, field.type_text())),
    }
}

/// The members of a structure of numbers.
fn numbers(format: &Format, base: u32) -> Result<Vec<(String, At)>, String> {
    format.fields.iter().map(|field| Ok((field.name.clone(), number(field, base)?))).collect()
}

fn number(field: &Field, base: u32) -> Result<At, String> {
    match (&field.kind, &field.dims[..]) {
        (Kind::Scalar(ty), []) if !ty.float => Ok(At { offset: base + field.offset, ty: *ty }),
        _ => Err(format!("`{}` is {}, but must be one number", field.name, field.type_text())),
    }
}

/// The size of a member in bytes, if both sides have the same type.
fn same(field: &Field, there: &Field) -> Result<u32, String> {
    let alone = |field: &Field| {
        let field = Field { offset: 0, ..field.clone() };
        Format { name: String::new(), size: 0, align: 8, fields: vec![field] }
    };
    if alone(field).first_difference(&alone(there)).is_some() {
        let (name, here, there) = (&field.name, field.type_text(), there.type_text());
        return Err(format!("`{name}` is {here} here, {there} in the event"));
    }
    Ok(field.kind.size() * field.dims.iter().product::<u32>())
}

fn unknown(name: &str, event: &Format) -> String {
    let known: Vec<&str> = event.fields.iter().map(|field| field.name.as_str()).collect();
    format!("there is no `{name}` in the event; it has {}", known.join(", "))
}

/// Joins copies that are adjacent on both sides.
fn merged(copies: Vec<Copied>) -> Vec<Copied> {
    let mut merged: Vec<Copied> = Vec::with_capacity(copies.len());
    for copy in copies {
        match merged.last_mut() {
            Some(last) if last.from + last.bytes == copy.from && last.to + last.bytes == copy.to => {
                last.bytes += copy.bytes;
            }
            _ => merged.push(copy),
        }
    }
    merged
}

/// The position of a number in events of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldAt {
    pub event_type: u16,
    at: At,
}

impl FieldAt {
    /// `None` if the format has no single number of this name.
    pub(crate) fn new(event_type: u16, format: &Format, name: &str) -> Option<FieldAt> {
        Some(FieldAt { event_type, at: number(format.field(name)?, 0).ok()? })
    }

    pub(crate) fn read(&self, event: &Event<'_>) -> Option<i64> {
        if event.event_type == self.event_type { self.at.get(event.payload) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qfabric_types::Instant;
    use qfabric_types::channel::{ChannelId, Name};

    use super::super::{Changed, Sender};
    use super::*;
    use crate::{AttributesRef, SourceId};

    const LONG: Scalar = Scalar::I64;

    proptest! {
        /// For every requested tail the event keeps its structure and stays within the limit, and a refusal changes
        /// nothing.
        #[test]
        fn a_tail_has_room_behind_the_structure_and_below_the_limit(
            head in 0..64_usize,
            have in 0..Limits::EVENT - 64,
            room in prop::option::of(0..16_384_u32),
            asked in prop_oneof![any::<i64>(), -1..17_000_i64],
        ) {
            let payload = vec![1; head + have];
            let output = [&asked.to_le_bytes()[..], &[2; 16_384]].concat();
            let tail = Tail {
                head: head as u32,
                output: room.map(|room| (8, room)),
                output_size: Some(At { offset: 0, ty: LONG }),
                ..Tail::default()
            };
            let (channel, host): (_, Name) = (ChannelId::data("c".parse().unwrap()), "h".parse().unwrap());
            let event = Event {
                channel: &channel,
                host: &host,
                source: SourceId(1),
                number: 1,
                event_type: 0,
                priority: 0,
                sent: Instant::ZERO,
                deadline: None,
                attributes: AttributesRef::default(),
                payload: &payload,
            };
            let mut changed = Changed::default();
            let mut draft = Draft { event, changed: &mut changed, now: Instant::ZERO, sender: Sender::Host(&host) };
            let written = tail.write(&output, &mut draft);
            let most = room.map_or(have, |room| (room as usize).min(Limits::WHOLE - head));
            let expected = match usize::try_from(asked).ok().filter(|tail| *tail <= most) {
                Some(tail) if room.is_some() => [vec![1; head], vec![2; tail]].concat(),
                Some(tail) => vec![1; head + tail],
                None => payload.clone(),
            };
            prop_assert_eq!(written.is_ok(), (0..=most as i64).contains(&asked));
            prop_assert_eq!(changed.payload(&payload), &expected[..]);
            prop_assert!(expected.len() >= head && expected.len() <= Limits::EVENT);
        }
    }
}
