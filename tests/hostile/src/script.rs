//! Interprets bytes as decisions. One changed byte changes one decision, which helps the fuzzer to explore.

/// The rest of an input. After its end, all numbers are 0.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// Whether the input has ended.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// A number below `end`, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Two bytes, little endian.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Eight bytes, little endian.
    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A piece: its length in two bytes, then its bytes. At the end of the input, the piece may be shorter.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.half()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// The bytes up to a zero byte, as text; `None` if they are not UTF-8.
    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest.get(1..).unwrap_or_default();
        std::str::from_utf8(text).ok()
    }
}
