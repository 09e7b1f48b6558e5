//! Frames with commands about filters, and their answers.

use super::codec::cut;
use super::{Malformed, Reader, Writer};
use crate::filter::{Direction, FilterCommand, FilterId, FilterSpec};
use crate::{Limits, RequestId};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shipped {
    /// The receiver's incarnation.
    pub to: u64,
    pub request: RequestId,
    pub order: FilterCommand,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub to: u64,
    pub request: RequestId,
    pub result: Result<(), String>,
}

/// The longest reason in an answer, in bytes; a longer one is cut.
const MOST_REASON: usize = 4096;
/// Largest number of parameters that a command can set initially.
const MOST_PARAMETERS: usize = 256;

impl Shipped {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.to);
        writer.u32(self.request.0);
        match &self.order {
            FilterCommand::Install(filter) => {
                writer.u8(1);
                writer.filter(filter);
            }
            FilterCommand::Remove(id) => {
                writer.u8(2);
                writer.filter_id(id);
            }
            FilterCommand::Parameter(id, key, value) => {
                writer.u8(3);
                writer.filter_id(id);
                writer.short(key.as_str());
                writer.i64(*value);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Shipped, Malformed> {
        let (to, request) = (reader.u64()?, RequestId(reader.u32()?));
        let order = match reader.u8()? {
            1 => FilterCommand::Install(reader.filter()?),
            2 => FilterCommand::Remove(reader.filter_id()?),
            3 => FilterCommand::Parameter(reader.filter_id()?, reader.key()?, reader.i64()?),
            _ => return Err(Malformed),
        };
        Ok(Shipped { to, request, order })
    }
}

impl Answer {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.to);
        writer.u32(self.request.0);
        let reason = self.result.as_ref().err().map_or("", String::as_str);
        writer.flag(self.result.is_ok());
        writer.text(cut(reason, MOST_REASON));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Answer, Malformed> {
        let (to, request, done, reason) = (reader.u64()?, RequestId(reader.u32()?), reader.flag()?, reader.text()?);
        if reason.len() > MOST_REASON {
            return Err(Malformed);
        }
        Ok(Answer { to, request, result: if done { Ok(()) } else { Err(reason.to_owned()) } })
    }
}

impl Writer<'_> {
    fn filter_id(&mut self, id: &FilterId) {
        self.channel(&id.channel);
        self.flag(id.direction == Direction::Out);
        self.short(id.name.as_str());
    }

    fn filter(&mut self, filter: &FilterSpec) {
        self.filter_id(&filter.id);
        self.flag(filter.sink.is_some());
        if let Some(sink) = &filter.sink {
            self.member(sink);
        }
        self.list(filter.types.iter(), |writer, name| writer.text(name));
        self.list(filter.parameters.iter(), |writer, (key, value)| {
            writer.short(key.as_str());
            writer.i64(*value);
        });
        self.text(&filter.text);
    }
}

impl Reader<'_> {
    fn filter_id(&mut self) -> Result<FilterId, Malformed> {
        let channel = self.channel()?;
        let direction = if self.flag()? { Direction::Out } else { Direction::In };
        Ok(FilterId { channel, direction, name: self.name()? })
    }

    fn filter(&mut self) -> Result<FilterSpec, Malformed> {
        Ok(FilterSpec {
            id: self.filter_id()?,
            sink: if self.flag()? { Some(self.member()?) } else { None },
            types: self.list(Limits::TYPES, |reader| Ok(reader.text()?.to_owned()))?,
            parameters: self.list(MOST_PARAMETERS, |reader| Ok((reader.key()?, reader.i64()?)))?,
            text: self.text()?.to_owned(),
        })
    }
}
