//! A fast call of an application (000 §3.2.1): the words that it passes to its handlers in the kernel, and their
//! verdict.

/// Number of values that a fast call passes.
pub const CALL_VALUES: usize = 8;

/// Name of the service whose handlers run for fast calls.
pub const CALL_SERVICE: &str = "app.call";

/// The words of a fast call, as handlers in the kernel read and write them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// The values of the caller.
    pub values: [i64; CALL_VALUES],
    /// The verdict of the last handler.
    pub verdict: CallVerdict,
}

/// What a fast call decides: bits for what follows, and an answer above them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallVerdict(pub i64);

impl CallRecord {
    /// Offset of the verdict, in bytes.
    pub const VERDICT: u32 = 8 * CALL_VALUES as u32;
    /// Number of bytes of all words.
    pub const BYTES: usize = 8 * (CALL_VALUES + 1);

    /// A call that no handler has answered.
    pub const fn new(values: [i64; CALL_VALUES]) -> CallRecord {
        CallRecord { values, verdict: CallVerdict::BLOCK }
    }

    /// The words in the kernel's order, as one buffer.
    pub fn to_bytes(self) -> [u8; CallRecord::BYTES] {
        let mut bytes = [0; CallRecord::BYTES];
        let words = self.values.iter().chain([&self.verdict.0]);
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    /// The verdict in a buffer of these words.
    pub fn verdict_in(bytes: &[u8; CallRecord::BYTES]) -> CallVerdict {
        let word = bytes.last_chunk().expect("the buffer ends with a word");
        CallVerdict(i64::from_ne_bytes(*word))
    }
}

impl CallVerdict {
    /// No handler has answered: the blocking call is needed.
    pub const BLOCK: CallVerdict = CallVerdict(8);
    /// The call is done.
    pub const DONE: CallVerdict = CallVerdict(1);

    /// The bit of a verdict after which the caller gets a signal.
    pub const SIGNAL: i32 = 4;

    /// Whether the caller gives its CPU to other threads before the call returns.
    pub const fn schedules(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether the signal of the option `signal` is sent before the call returns.
    pub const fn signals(self) -> bool {
        self.0 & CallVerdict::SIGNAL as i64 != 0
    }

    /// Whether the fast call was not enough, so that the blocking call follows.
    pub const fn blocks(self) -> bool {
        self.0 & CallVerdict::BLOCK.0 != 0
    }

    /// The number that the handler returned above the lowest four bits.
    pub const fn answer(self) -> i64 {
        self.0 >> 4
    }
}

const _: () = assert!(size_of::<CallRecord>() == CallRecord::BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_have_the_offsets_that_handlers_use() {
        assert_eq!(std::mem::offset_of!(CallRecord, verdict), CallRecord::VERDICT as usize);
        let mut bytes = CallRecord::new([1, 2, 3, 4, 5, 6, 7, -8]).to_bytes();
        assert_eq!(
            (bytes[..8].to_vec(), bytes[56..64].to_vec()),
            (1_i64.to_ne_bytes().to_vec(), (-8_i64).to_ne_bytes().to_vec())
        );
        assert!(CallRecord::verdict_in(&bytes).blocks(), "until a handler has answered");
        bytes[64..].copy_from_slice(&33_i64.to_ne_bytes());
        assert_eq!(CallRecord::verdict_in(&bytes), CallVerdict(33));
    }

    #[test]
    fn a_verdict_has_bits_for_what_follows_and_an_answer() {
        let of = |verdict: i64| {
            let verdict = CallVerdict(verdict);
            (verdict.schedules(), verdict.signals(), verdict.blocks(), verdict.answer())
        };
        assert_eq!([of(0), of(1)], [(false, false, false, 0); 2]);
        assert_eq!(of(2 + 4 + 16 * 7), (true, true, false, 7));
        assert_eq!(of(8), (false, false, true, 0));
        assert_eq!(of(-16 + 1), (false, false, false, -1));
    }
}
