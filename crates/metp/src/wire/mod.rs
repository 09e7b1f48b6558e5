//! The datagrams of METP. Numbers are in network byte order. The first byte holds the version (2 bits), the type (3
//! bits) and three flags; the next two bytes hold the session's tag.

mod data;
mod report;
mod status;

pub(crate) use data::{Data, Extent};
pub(crate) use report::{Echo, Report, Run};
pub(crate) use status::Status;

/// Bytes of the header of a data TPDU.
pub const HEADER_BYTES: u16 = 24;

pub(crate) const MIN_TPDU: u16 = 256;
pub(crate) const MAX_TPDU: u16 = 65_000;

/// Allowed sizes of a datagram, header included.
pub const TPDU_SIZES: std::ops::RangeInclusive<u16> = MIN_TPDU..=MAX_TPDU;

const VERSION: u8 = 1;

/// Types of a datagram.
const DATA: u8 = 1;
const REPORT: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 4;
/// A data TPDU with an earlier reliable message that has no outcome yet.
const DATA_BEHIND_RELIABLE: u8 = 5;

/// A datagram that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate for each report")]
pub(crate) enum Datagram<'a> {
    Data(Data, &'a [u8]),
    Report(Report),
    Status(Status),
    Close,
}

/// A datagram that cannot be read: it is too short or too long, or has another version, another type or a value out of
/// range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReadable;

/// Reads a datagram of the session with this tag.
pub(crate) fn read(bytes: &[u8], tag: u16) -> Result<Datagram<'_>, NotReadable> {
    let mut reader = Reader { bytes };
    let first = reader.take::<1>()?[0];
    if first >> 6 != VERSION || u16::from_be_bytes(reader.take()?) != tag {
        return Err(NotReadable);
    }
    let flags = Flags(first & 7);
    match (first >> 3) & 7 {
        kind @ (DATA | DATA_BEHIND_RELIABLE) => {
            let data = Data::read(flags, kind == DATA_BEHIND_RELIABLE, &mut reader)?;
            Ok(Datagram::Data(data, reader.bytes))
        }
        REPORT => Report::read(flags, &mut reader).map(Datagram::Report),
        STATUS => Status::read(flags, &mut reader).map(Datagram::Status),
        CLOSE if reader.bytes.is_empty() => Ok(Datagram::Close),
        _ => Err(NotReadable),
    }
}

/// Writes the datagram that ends the session.
pub(crate) fn write_close(tag: u16, out: &mut Vec<u8>) {
    begin(CLOSE, Flags::default(), tag, out);
}

fn begin(kind: u8, flags: Flags, tag: u16, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION << 6 | kind << 3 | flags.0);
    out.extend_from_slice(&tag.to_be_bytes());
}

/// The three flags of the first byte; each type gives them its own meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags(u8);

impl Flags {
    fn of(flags: [bool; 3]) -> Flags {
        Flags(flags.iter().enumerate().map(|(bit, is_set)| u8::from(*is_set) << bit).sum())
    }

    fn has(self, bit: u8) -> bool {
        self.0 & 1 << bit != 0
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NotReadable> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(NotReadable)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, NotReadable> {
        self.take().map(u16::from_be_bytes)
    }

    fn u24(&mut self) -> Result<u32, NotReadable> {
        let [high, middle, low] = self.take()?;
        Ok(u32::from_be_bytes([0, high, middle, low]))
    }

    fn u32(&mut self) -> Result<u32, NotReadable> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, NotReadable> {
        self.take().map(u64::from_be_bytes)
    }
}

/// The low 24 bits.
fn put_u24(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes()[1..]);
}
