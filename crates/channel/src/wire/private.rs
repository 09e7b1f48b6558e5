//! Bytes for the program that runs another host's node: no channel carries them, and no member gets them.
//!
//! ```text
//! to u64 | bytes
//! ```

use super::{Malformed, Reader, Writer};
use crate::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Private<'a> {
    /// The receiver's incarnation.
    pub to: u64,
    pub bytes: &'a [u8],
}

impl<'a> Private<'a> {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.to);
        writer.bytes(self.bytes);
    }

    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Private<'a>, Malformed> {
        let (to, bytes) = (reader.u64()?, reader.0);
        if bytes.len() <= Limits::PRIVATE { Ok(Private { to, bytes }) } else { Err(Malformed) }
    }
}
