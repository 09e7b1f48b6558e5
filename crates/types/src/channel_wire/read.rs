//! Reads and writes the fields of a message.

use super::MAX_TEXT;

/// The unread rest of a message.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// A byte that is 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|byte| *byte <= 1).map(|byte| byte == 1)
    }

    pub(crate) fn half(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A text after its length.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.half()?);
        let bytes = self.bytes(length).filter(|bytes| bytes.len() <= MAX_TEXT)?;
        std::str::from_utf8(bytes).ok()
    }
}

pub(super) fn word(out: &mut Vec<u8>, word: u32) {
    out.extend(word.to_le_bytes());
}

/// Writes a text after its length; cuts it if it is too long.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let cut = &text[..end];
    out.extend((cut.len() as u16).to_le_bytes());
    out.extend(cut.as_bytes());
}
