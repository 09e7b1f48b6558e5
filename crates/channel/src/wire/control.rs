//! Frames for the accounts between two hosts: numbers of events sent, their outcomes, and the difference of the clocks.
//!
//! ```text
//! Digest:  version u64                                                    the version of the sender's record
//! Mark:    to u64 | meeting u64 | source u32 | last u64 | channel | n × (sink u32, from u64, sent u64)
//! Report:  to u64 | meeting u64 | source u32 | last u64 | n × (sink u32, from u64, 5 × u64)
//!          the five: delivered, filtered, dropped, late, lost
//! Ping:    t0 u64            Pong:  t0 u64 | t1 u64                        nanoseconds of each host's own clock
//! ```
//! `to` is the receiver's incarnation: numbers of sources and sinks are valid within one incarnation of a host. `meeting`
//! is the receiver's number of the meeting that the account belongs to: a frame of an earlier meeting may arrive late.

use qfabric_types::channel::ChannelId;

use super::{Malformed, Reader, Writer};
use crate::Limits;
use crate::counts::Fates;

#[derive(Debug)]
pub(crate) struct Digest {
    pub version: u64,
}

/// The number of events that a source has sent to each sink of the receiving host; also its welcome to new sinks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub to: u64,
    pub meeting: u64,
    pub source: u32,
    /// The number of the source's last event.
    pub last: u64,
    pub channel: ChannelId,
    pub sinks: Vec<Marked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    pub sink: u32,
    /// The source's last event before the account began.
    pub from: u64,
    pub sent: u64,
}

/// The outcomes of a source's events at the sinks of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub to: u64,
    pub meeting: u64,
    pub source: u32,
    /// The last event of the latest mark.
    pub last: u64,
    pub sinks: Vec<Reported>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub sink: u32,
    pub from: u64,
    pub fates: Fates,
    pub lost: u64,
}

#[derive(Debug)]
pub(crate) struct Ping {
    pub t0: u64,
}

#[derive(Debug)]
pub(crate) struct Pong {
    pub t0: u64,
    pub t1: u64,
}

impl Digest {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Digest, Malformed> {
        Ok(Digest { version: reader.u64()? })
    }
}

impl Mark {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.to);
        writer.u64(self.meeting);
        writer.u32(self.source);
        writer.u64(self.last);
        writer.channel(&self.channel);
        writer.list(self.sinks.iter(), |writer, marked| {
            writer.u32(marked.sink);
            writer.u64(marked.from);
            writer.u64(marked.sent);
        });
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Mark, Malformed> {
        Ok(Mark {
            to: reader.u64()?,
            meeting: reader.u64()?,
            source: reader.u32()?,
            last: reader.u64()?,
            channel: reader.channel()?,
            sinks: reader.list(Limits::MEMBERS, |reader| {
                Ok(Marked { sink: reader.u32()?, from: reader.u64()?, sent: reader.u64()? })
            })?,
        })
    }
}

impl Report {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.to);
        writer.u64(self.meeting);
        writer.u32(self.source);
        writer.u64(self.last);
        writer.list(self.sinks.iter(), |writer, reported| {
            writer.u32(reported.sink);
            let Fates { delivered, filtered, dropped, late } = reported.fates;
            for count in [reported.from, delivered, filtered, dropped, late, reported.lost] {
                writer.u64(count);
            }
        });
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        Ok(Report {
            to: reader.u64()?,
            meeting: reader.u64()?,
            source: reader.u32()?,
            last: reader.u64()?,
            sinks: reader.list(Limits::MEMBERS, |reader| {
                Ok(Reported {
                    sink: reader.u32()?,
                    from: reader.u64()?,
                    fates: Fates {
                        delivered: reader.u64()?,
                        filtered: reader.u64()?,
                        dropped: reader.u64()?,
                        late: reader.u64()?,
                    },
                    lost: reader.u64()?,
                })
            })?,
        })
    }
}

impl Ping {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Ping, Malformed> {
        Ok(Ping { t0: reader.u64()? })
    }
}

impl Pong {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Pong, Malformed> {
        Ok(Pong { t0: reader.u64()?, t1: reader.u64()? })
    }
}
