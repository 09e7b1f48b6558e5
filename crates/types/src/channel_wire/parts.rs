//! Messages that are longer than one ring entry, in parts.
//!
//! ```text
//! 200 | left u32 | bytes          `left` bytes of the message follow in later parts
//! ```

use super::{MAX_MESSAGE, MAX_WHOLE};

/// First byte of a part; no message begins with this byte.
pub(super) const PART: u8 = 200;
/// Bytes of a part before those of the message.
const BEFORE: usize = 5;
/// Memory that is kept for the next message, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Splits a message into parts; a short message is returned as it is.
pub fn parts(message: &[u8]) -> Parts<'_> {
    Parts { rest: message, is_whole: message.len() <= MAX_MESSAGE, is_over: false }
}

/// See [`parts`].
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
    is_whole: bool,
    is_over: bool,
}

impl Parts<'_> {
    /// Writes the next part into `out`, after clearing it. Returns `false` if there is none.
    pub fn next(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.is_over {
            return false;
        }
        let most = if self.is_whole { self.rest.len() } else { MAX_MESSAGE - BEFORE };
        let (part, rest) = self.rest.split_at(most.min(self.rest.len()));
        if !self.is_whole {
            out.push(PART);
            out.extend((rest.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(part);
        (self.rest, self.is_over) = (rest, rest.is_empty());
        true
    }
}

/// Joins parts to messages. Stores at most one incomplete message.
#[derive(Debug, Default)]
pub struct Reassembler {
    bytes: Vec<u8>,
    /// Number of missing bytes.
    left: usize,
}

/// The result of receiving a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum ReassemblyOutcome<'a> {
    /// A complete message, in one piece or after its last part.
    Message(&'a [u8]),
    /// A part was stored; further parts must follow.
    More,
    /// An invalid part, or another message between two parts. The stored parts are dropped.
    Nonsense,
}

impl Reassembler {
    /// Takes the next piece.
    pub fn add<'a>(&'a mut self, piece: &'a [u8]) -> ReassemblyOutcome<'a> {
        let begins = self.left == 0;
        if piece.first() != Some(&PART) {
            self.forget();
            return if begins { ReassemblyOutcome::Message(piece) } else { ReassemblyOutcome::Nonsense };
        }
        let Some((left, part)) = piece[1..].split_first_chunk().filter(|(_, part)| !part.is_empty()) else {
            self.forget();
            return ReassemblyOutcome::Nonsense;
        };
        if begins {
            self.forget();
        }
        let left = u32::from_le_bytes(*left) as usize;
        let all = left.saturating_add(part.len());
        if if begins { all > MAX_WHOLE } else { all != self.left } {
            self.forget();
            return ReassemblyOutcome::Nonsense;
        }
        self.bytes.extend_from_slice(part);
        self.left = left;
        if left > 0 { ReassemblyOutcome::More } else { ReassemblyOutcome::Message(&self.bytes) }
    }

    fn forget(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.left = 0;
    }
}
