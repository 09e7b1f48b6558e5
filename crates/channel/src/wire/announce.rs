//! Frames with a host's record: changes of it, or all of it.
//!
//! ```text
//! Changes:  before u64 | n u16 | n × change            a host's changes number before+1 … before+n
//! Full:     version u64 | part u16 | last u8 | meeting u64 | heard u64 | n u16 | n × change | abilities u8
//!           the changes from an empty record, in parts
//! Met:      heard u64
//! ```
//! `meeting` is the sender's number of its meeting with the receiver, `heard` the receiver's number as the sender knows it;
//! see `membership::neighbour`. Earlier versions neither write nor read `abilities`: what the sender can do beyond them.

use qfabric_types::channel::ChannelId;

use super::{Malformed, Reader, Writer};
use crate::change::Change;
use crate::group::{MAX_QOS, QosRange};
use crate::{Origin, Proof, Registration, RegistrationId, SinkId, SinkInfo, SourceId, SourceInfo};

#[derive(Debug)]
pub(crate) struct Changes {
    /// The record's version before the changes.
    pub before: u64,
    pub changes: Vec<Change>,
}

#[derive(Debug)]
pub(crate) struct Full {
    pub version: u64,
    pub part: u16,
    pub last: bool,
    pub meeting: u64,
    /// 0: the sender knows no number of the receiver.
    pub heard: u64,
    pub changes: Vec<Change>,
    /// 0: none, or a host of an earlier version.
    pub abilities: u8,
}

/// The sender has what the receiver said of this meeting.
#[derive(Debug)]
pub(crate) struct Met {
    pub heard: u64,
}

/// The largest number that a frame can state.
const MOST: usize = u16::MAX as usize;

impl Changes {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Changes, Malformed> {
        Ok(Changes { before: reader.u64()?, changes: reader.list(MOST, Change::read)? })
    }
}

impl Full {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Full, Malformed> {
        let (version, part, last) = (reader.u64()?, reader.u16()?, reader.flag()?);
        let (meeting, heard) = (reader.u64()?, reader.u64()?);
        let changes = reader.list(MOST, Change::read)?;
        let abilities = reader.u8().unwrap_or(0);
        Ok(Full { version, part, last, meeting, heard, changes, abilities })
    }
}

impl Met {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Met, Malformed> {
        Ok(Met { heard: reader.u64()? })
    }
}

/// Appends an encoded change.
pub(crate) fn encode_change(change: &Change, into: &mut Vec<u8>) {
    change.write(&mut Writer(into));
}

impl Change {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Change::Hold(channel, origin, spec, proof) => {
                writer.u8(1);
                writer.channel(channel);
                writer.u64(origin.created_unix_ns);
                writer.short(origin.creator.as_str());
                writer.spec(spec);
                writer.blob(proof.bytes());
            }
            Change::Release(channel) => {
                writer.u8(2);
                writer.channel(channel);
            }
            Change::Source(channel, id, info) => {
                writer.member_of(3, channel, id.0);
                writer.optional_name(info.application.as_ref());
                writer.attributes(&info.attributes);
            }
            Change::SourceGone(channel, id) => writer.member_of(4, channel, id.0),
            Change::Sink(channel, id, info) => {
                writer.member_of(5, channel, id.0);
                writer.sink(info);
            }
            Change::SinkGone(channel, id) => writer.member_of(6, channel, id.0),
            Change::Register(id, registration) => {
                writer.u8(7);
                writer.u32(id.0);
                writer.registration(registration);
            }
            Change::Unregister(id) => {
                writer.u8(8);
                writer.u32(id.0);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Change, Malformed> {
        Ok(match reader.u8()? {
            1 => Change::Hold(
                reader.channel()?,
                Origin { created_unix_ns: reader.u64()?, creator: reader.name()? },
                reader.spec()?,
                Proof::of(reader.blob()?).ok_or(Malformed)?,
            ),
            2 => Change::Release(reader.channel()?),
            3 => Change::Source(reader.channel()?, SourceId(reader.u32()?), reader.source()?),
            4 => Change::SourceGone(reader.channel()?, SourceId(reader.u32()?)),
            5 => Change::Sink(reader.channel()?, SinkId(reader.u32()?), reader.sink()?),
            6 => Change::SinkGone(reader.channel()?, SinkId(reader.u32()?)),
            7 => Change::Register(RegistrationId(reader.u32()?), reader.registration()?),
            8 => Change::Unregister(RegistrationId(reader.u32()?)),
            _ => return Err(Malformed),
        })
    }
}

impl Writer<'_> {
    fn member_of(&mut self, kind: u8, channel: &ChannelId, number: u32) {
        self.u8(kind);
        self.channel(channel);
        self.u32(number);
    }

    fn sink(&mut self, info: &SinkInfo) {
        self.optional_name(info.application.as_ref());
        self.u64(info.types);
        self.u32(info.capacity);
        self.attributes(&info.attributes);
    }

    fn registration(&mut self, registration: &Registration) {
        self.short(registration.application.as_str());
        self.short(registration.group.as_str());
        self.optional_name(registration.parent.as_ref());
        self.u8(registration.level);
        self.list(registration.qos.iter(), |writer, range| {
            writer.short(range.metric.as_str());
            writer.i64(range.min);
            writer.i64(range.max);
        });
    }
}

impl Reader<'_> {
    fn source(&mut self) -> Result<SourceInfo, Malformed> {
        Ok(SourceInfo { application: self.optional_name()?, attributes: self.attributes()? })
    }

    fn sink(&mut self) -> Result<SinkInfo, Malformed> {
        Ok(SinkInfo {
            application: self.optional_name()?,
            types: self.u64()?,
            capacity: self.u32()?,
            attributes: self.attributes()?,
        })
    }

    fn registration(&mut self) -> Result<Registration, Malformed> {
        Ok(Registration {
            application: self.name()?,
            group: self.name()?,
            parent: self.optional_name()?,
            level: self.u8()?,
            qos: self.list(MAX_QOS, |reader| {
                Ok(QosRange { metric: reader.key()?, min: reader.i64()?, max: reader.i64()? })
            })?,
        })
    }
}
