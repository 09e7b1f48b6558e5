//! Frames: the messages between nodes. Numbers are little-endian. Everything that arrives is checked before it is used,
//! and no value in a frame decides how much memory is allocated.
//!
//! ```text
//! every frame:  version u8 | kind u8 | the sender's incarnation u64 | …
//! ```
//! A frame does not name its sender: the network states the sender and has authenticated it.

mod announce;
mod bundle;
mod codec;
mod control;
mod event;
mod format;
mod fragment;
mod order;
mod private;
#[cfg(test)]
mod tests;

pub(crate) use announce::{Changes, Full, Met, encode_change};
pub(crate) use bundle::{Item, Onward, write_item};
pub(crate) use codec::{Malformed, Reader, Writer};
pub(crate) use control::{Digest, Mark, Marked, Ping, Pong, Report, Reported};
pub(crate) use event::{EventFrame, Header, withdraw, write_attributes};
pub(crate) use fragment::Fragment;
pub(crate) use order::{Answer, Shipped};
pub(crate) use private::Private;

/// Version of the protocol; hosts with different versions cannot talk to each other.
pub const VERSION: u8 = 6;
/// Bytes before a frame's body.
pub(crate) const PREFIX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Event = 1,
    Changes,
    Full,
    Ask,
    Digest,
    Mark,
    Report,
    Ping,
    Pong,
    Shipped,
    Answer,
    Fragment,
    Met,
    Bundle,
    Private,
}

const KINDS: [Kind; 15] = [
    Kind::Event,
    Kind::Changes,
    Kind::Full,
    Kind::Ask,
    Kind::Digest,
    Kind::Mark,
    Kind::Report,
    Kind::Ping,
    Kind::Pong,
    Kind::Shipped,
    Kind::Answer,
    Kind::Fragment,
    Kind::Met,
    Kind::Bundle,
    Kind::Private,
];

/// The fields at the beginning of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub kind: Kind,
    pub incarnation: u64,
}

/// Why a frame is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Malformed,
    OtherVersion(u8),
}

impl From<Malformed> for Unreadable {
    fn from(_: Malformed) -> Unreadable {
        Unreadable::Malformed
    }
}

/// Reads the beginning of a frame; the reader continues at the body.
pub(crate) fn read_prefix(reader: &mut Reader<'_>) -> Result<Prefix, Unreadable> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(Unreadable::OtherVersion(version));
    }
    let kind = reader.u8()?;
    let kind = KINDS.into_iter().find(|known| *known as u8 == kind).ok_or(Malformed)?;
    Ok(Prefix { kind, incarnation: reader.u64()? })
}

/// Appends the beginning of a frame.
pub(crate) fn begin(frame: &mut Vec<u8>, kind: Kind, incarnation: u64) -> Writer<'_> {
    let mut writer = Writer(frame);
    writer.u8(VERSION);
    writer.u8(kind as u8);
    writer.u64(incarnation);
    writer
}

/// Reads any frame, for tests and fuzzing; returns whether it is valid and complete.
#[cfg(any(test, feature = "testing"))]
pub fn readable(frame: &[u8]) -> bool {
    let mut reader = Reader(frame);
    let Ok(prefix) = read_prefix(&mut reader) else { return false };
    match prefix.kind {
        Kind::Event => EventFrame::read(&mut reader).is_ok(),
        Kind::Changes => Changes::read(&mut reader).is_ok(),
        Kind::Full => Full::read(&mut reader).is_ok(),
        Kind::Ask => true,
        Kind::Digest => Digest::read(&mut reader).is_ok(),
        Kind::Mark => Mark::read(&mut reader).is_ok(),
        Kind::Report => Report::read(&mut reader).is_ok(),
        Kind::Ping => Ping::read(&mut reader).is_ok(),
        Kind::Pong => Pong::read(&mut reader).is_ok(),
        Kind::Shipped => Shipped::read(&mut reader).is_ok(),
        Kind::Answer => Answer::read(&mut reader).is_ok(),
        Kind::Fragment => Fragment::read(&mut reader).is_ok(),
        Kind::Met => Met::read(&mut reader).is_ok(),
        Kind::Private => Private::read(&mut reader).is_ok(),
        Kind::Bundle => loop {
            match Item::next(&mut reader) {
                Ok(Some(_)) => {}
                end => return end.is_ok(),
            }
        },
    }
}
