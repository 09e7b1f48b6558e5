//! A data TPDU: 24 bytes of header, then a part of a message.
//!
//! ```text
//!  0  version, type, flags     1   tag                 3   transmission number (24 bits)
//!  6  time of sending in µs   10   position of the message in blocks   14   message number (low 16 bits)
//! 16  kind (3 bits), offset in blocks (21 bits), size of the message in bytes (24 bits)
//! 22  remaining time to the deadline in ms, at the time of sending; 65 535: no deadline
//! ```

use super::{DATA, DATA_BEHIND_RELIABLE, Flags, HEADER_BYTES, NotReadable, Reader, begin, put_u24};
use crate::FrameKind;
use crate::blocks::BLOCK;

/// A message's place in the sequence space, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Position of the message's first block, low 32 bits.
    pub(crate) start: u32,
    /// Message number, low 16 bits.
    pub(crate) number: u16,
    /// Bytes of the message; 1 to 2^24 − 1.
    pub(crate) size: u32,
    pub(crate) kind: FrameKind,
    /// Whether the message is partially reliable.
    pub(crate) is_partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) extent: Extent,
    /// Number of this transmission, low 24 bits. Each data TPDU has a new one, retransmissions included.
    pub(crate) transmission: u32,
    /// Sender's clock in µs, low 32 bits.
    pub(crate) sent_us: u32,
    /// Position of the data in the message, in blocks.
    pub(crate) offset: u32,
    /// Remaining time to the deadline in ms, rounded up; `None`: no deadline.
    pub(crate) remaining_ms: Option<u16>,
    pub(crate) is_retransmission: bool,
    /// Every block of the message has been sent, so the receiver reports all that are missing at once.
    pub(crate) is_all_sent: bool,
    /// An earlier reliable message has no outcome yet: the receiver must not skip messages before this one.
    pub(crate) is_behind_reliable: bool,
}

impl Data {
    /// The longest remaining time that can be expressed, in ms.
    pub(crate) const MOST_REMAINING_MS: u16 = u16::MAX - 1;
    const NO_DEADLINE: u16 = u16::MAX;

    /// Writes the header; the caller appends the data.
    pub(crate) fn write(&self, tag: u16, out: &mut Vec<u8>) {
        let Data { extent, offset, .. } = *self;
        let kind = if self.is_behind_reliable { DATA_BEHIND_RELIABLE } else { DATA };
        begin(kind, Flags::of([self.is_retransmission, self.is_all_sent, extent.is_partial]), tag, out);
        put_u24(out, self.transmission);
        out.extend_from_slice(&self.sent_us.to_be_bytes());
        out.extend_from_slice(&extent.start.to_be_bytes());
        out.extend_from_slice(&extent.number.to_be_bytes());
        let packed = (extent.kind as u64) << 45 | u64::from(offset) << 24 | u64::from(extent.size);
        out.extend_from_slice(&packed.to_be_bytes()[2..]);
        out.extend_from_slice(&self.remaining_ms.unwrap_or(Data::NO_DEADLINE).to_be_bytes());
        debug_assert_eq!(out.len(), usize::from(HEADER_BYTES));
    }

    pub(super) fn read(flags: Flags, is_behind_reliable: bool, reader: &mut Reader<'_>) -> Result<Data, NotReadable> {
        let transmission = reader.u24()?;
        let sent_us = reader.u32()?;
        let (start, number) = (reader.u32()?, reader.u16()?);
        let packed = u64::from(reader.u16()?) << 32 | u64::from(reader.u32()?);
        let remaining = reader.u16()?;
        let kind = *FrameKind::ALL.get((packed >> 45) as usize).ok_or(NotReadable)?;
        let (offset, size) = (((packed >> 24) & 0x1f_ffff) as u32, (packed & 0xff_ffff) as u32);
        let data = Data {
            extent: Extent { start, number, size, kind, is_partial: flags.has(2) },
            transmission,
            sent_us,
            offset,
            remaining_ms: (remaining != Data::NO_DEADLINE).then_some(remaining),
            is_retransmission: flags.has(0),
            is_all_sent: flags.has(1),
            is_behind_reliable,
        };
        data.fits(reader.bytes.len()).then_some(data).ok_or(NotReadable)
    }

    /// Whether `bytes` of data are whole blocks inside the message, or end with it.
    fn fits(&self, bytes: usize) -> bool {
        let end = (u64::from(self.offset) * u64::from(BLOCK)).saturating_add(bytes as u64);
        let size = u64::from(self.extent.size);
        bytes > 0 && end <= size && (end == size || bytes.is_multiple_of(BLOCK as usize))
    }
}
