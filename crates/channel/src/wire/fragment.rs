//! Fragments: parts of an event that is longer than a frame.
//!
//! ```text
//! source u32 | number u64 | total u32 | at u32 | bytes
//! ```
//! An event has `total` bytes: its frame without the frame's prefix. The fragment has the bytes from `at` on. A host
//! sends the fragments in order, and all fragments of one event before those of the next event.

use super::{EventFrame, Malformed, Reader, Writer};
use crate::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment<'a> {
    pub source: u32,
    pub number: u64,
    pub total: u32,
    pub at: u32,
    pub bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.source);
        writer.u64(self.number);
        writer.u32(self.total);
        writer.u32(self.at);
        writer.bytes(self.bytes);
    }

    /// Refuses an empty fragment, and one that does not lie within the total.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Fragment<'a>, Malformed> {
        let (source, number, total, at) = (reader.u32()?, reader.u64()?, reader.u32()?, reader.u32()?);
        let fragment = Fragment { source, number, total, at, bytes: reader.0 };
        let (length, total, at) = (fragment.bytes.len(), total as usize, at as usize);
        let fits = (1..=Limits::FRAGMENT).contains(&length) && total <= EventFrame::MOST && at + length <= total;
        if fits { Ok(fragment) } else { Err(Malformed) }
    }
}
