//! A ring of messages of any length from one process to another, in memory that both have mapped.
//!
//! One writer and one reader. Every word is atomic, so either side may scribble at any time and the other still runs
//! defined code: each keeps its own position, believes of the other's only what is possible, and copies a message out before
//! it looks at it.
//!
//! **Waking.** A reader that finds nothing says that it sleeps; the writer of the next message takes that word back and has
//! to wake it. **Room.** A writer that finds no room says that it waits; the reader that has emptied half of the ring takes
//! that word back and has to wake it. Whoever says so looks once more afterwards, with a full fence between, as the other side
//! has between its position and its look at the word: nobody sleeps on what is there.

use crate::shared::{self, AtomicU64, Ordering, fence};

const WORDS: u64 = shared::WORDS as u64;
const MAGIC: u64 = u64::from_le_bytes(*b"qfmsgs\0\x01");

#[repr(C, align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

/// The shared memory. All zeros until [`MessageRing::initialize`].
#[repr(C, align(64))]
pub struct MessageRing {
    /// Written once: magic, words.
    identity: Line,
    /// Written by the writer: words written so far, and whether it waits for room (which the reader takes back).
    writer: Line,
    /// Written by the reader: words read so far, and whether it sleeps (which the writer takes back).
    reader: Line,
    /// A message is its length in bytes, one word, and its bytes in whole words.
    words: [AtomicU64; shared::WORDS],
}

impl Default for MessageRing {
    /// All zeros, in memory that nobody shares.
    fn default() -> MessageRing {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        MessageRing { identity: Line::default(), writer: Line::default(), reader: Line::default(), words }
    }
}

/// The rings of one connection.
#[repr(C, align(64))]
#[derive(Default)]
pub struct MessageRings {
    /// From the application to the daemon.
    pub up: MessageRing,
    /// From the daemon to the application.
    pub down: MessageRing,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the ring, and its reader will look.
    Quiet,
    /// It is in the ring, and its reader sleeps: wake it.
    Wake,
    /// There is no room for it; the reader wakes the writer when there is.
    Full,
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// Nothing.
    Nothing,
    /// A message of so many bytes.
    Message(usize),
    /// What no writer of messages writes; all that was in the ring is skipped.
    Nonsense,
}

impl MessageRing {
    /// Makes fresh, zeroed memory a ring. Its maker does this before it hands the memory out.
    pub fn initialize(&self) {
        self.identity.0[1].store(WORDS, Ordering::Relaxed);
        self.identity.0[0].store(MAGIC, Ordering::Release);
    }

    /// Whether this memory is a ring of this version.
    pub fn is_valid(&self) -> bool {
        self.identity.0[0].load(Ordering::Acquire) == MAGIC && self.identity.0[1].load(Ordering::Relaxed) == WORDS
    }

    fn written(&self) -> &AtomicU64 {
        &self.writer.0[0]
    }

    fn waits_for_room(&self) -> &AtomicU64 {
        &self.writer.0[1]
    }

    fn read(&self) -> &AtomicU64 {
        &self.reader.0[0]
    }

    fn sleeps(&self) -> &AtomicU64 {
        &self.reader.0[1]
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position % WORDS) as usize]
    }
}

/// Words that a message of so many bytes takes.
fn words_of(bytes: usize) -> u64 {
    1 + bytes.div_ceil(8) as u64
}

/// Takes a word back that the other side has said, if it has.
fn take_back(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
}

/// The side that writes. One per ring.
#[derive(Debug, Default)]
pub struct Writer {
    at: u64,
}

impl Writer {
    /// Puts a message in, or says that it waits for room. Wait-free, no system call. A message that is longer than the ring
    /// never finds room.
    pub fn write(&mut self, ring: &MessageRing, message: &[u8]) -> Written {
        let need = words_of(message.len());
        if !self.has_room(ring, need) {
            ring.waits_for_room().store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.has_room(ring, need) {
                return Written::Full;
            }
            ring.waits_for_room().store(0, Ordering::Relaxed);
        }
        ring.word(self.at).store(message.len() as u64, Ordering::Relaxed);
        for (behind, part) in (1..).zip(message.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            ring.word(self.at.wrapping_add(behind)).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.at = self.at.wrapping_add(need);
        ring.written().store(self.at, Ordering::Release);
        fence(Ordering::SeqCst);
        if take_back(ring.sleeps()) { Written::Wake } else { Written::Quiet }
    }

    /// A reader whose position is impossible gets nothing more.
    fn has_room(&self, ring: &MessageRing, need: u64) -> bool {
        let used = self.at.wrapping_sub(ring.read().load(Ordering::Acquire));
        used <= WORDS && need <= WORDS - used
    }
}

/// The side that reads. One per ring.
#[derive(Debug, Default)]
pub struct Reader {
    at: u64,
}

impl Reader {
    /// Copies the next message into `buffer`. One that is longer than that is nonsense.
    pub fn take(&mut self, ring: &MessageRing, buffer: &mut [u8]) -> TakeOutcome {
        let written = ring.written().load(Ordering::Acquire);
        let ready = written.wrapping_sub(self.at);
        if ready == 0 {
            return TakeOutcome::Nothing;
        }
        let length = ring.word(self.at).load(Ordering::Relaxed);
        let fits = usize::try_from(length).ok().filter(|length| *length <= buffer.len());
        let Some(length) = fits.filter(|length| ready <= WORDS && words_of(*length) <= ready) else {
            self.go_to(ring, written);
            return TakeOutcome::Nonsense;
        };
        for (behind, part) in (1..).zip(buffer[..length].chunks_mut(8)) {
            let bytes = ring.word(self.at.wrapping_add(behind)).load(Ordering::Relaxed).to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
        self.go_to(ring, self.at.wrapping_add(words_of(length)));
        TakeOutcome::Message(length)
    }

    fn go_to(&mut self, ring: &MessageRing, position: u64) {
        self.at = position;
        ring.read().store(position, Ordering::Release);
    }

    /// Whether the writer waited for room, and half of the ring is empty by now: wake it. Asked after each message.
    pub fn has_made_room(&self, ring: &MessageRing) -> bool {
        fence(Ordering::SeqCst);
        let used = ring.written().load(Ordering::Relaxed).wrapping_sub(self.at);
        used <= WORDS / 2 && take_back(ring.waits_for_room())
    }

    /// Says that the reader sleeps. False: there is something to read, and it does not.
    pub fn may_sleep(&self, ring: &MessageRing) -> bool {
        ring.sleeps().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = ring.written().load(Ordering::Relaxed) == self.at;
        if !is_empty {
            ring.sleeps().store(0, Ordering::Relaxed);
        }
        is_empty
    }

    /// Whether it has said so, and no writer has taken it back.
    pub fn is_asleep(&self, ring: &MessageRing) -> bool {
        ring.sleeps().load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring() -> Box<MessageRing> {
        let ring = Box::<MessageRing>::default();
        ring.initialize();
        ring
    }

    fn taken(reader: &mut Reader, ring: &MessageRing) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 20_000];
        match reader.take(ring, &mut buffer) {
            TakeOutcome::Nothing => None,
            TakeOutcome::Message(length) => Some(buffer[..length].to_vec()),
            TakeOutcome::Nonsense => panic!("nonsense"),
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_whatever_their_lengths(
            lengths in prop::collection::vec((0..9_000usize, 0..4u8), 1..200),
        ) {
            let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
            let mut waiting = std::collections::VecDeque::new();
            for (at, (length, reads)) in lengths.into_iter().enumerate() {
                let message: Vec<u8> = (0..length).map(|byte| (byte + at) as u8).collect();
                if writer.write(&ring, &message) != Written::Full {
                    waiting.push_back(message);
                }
                for _ in 0..reads {
                    prop_assert_eq!(taken(&mut reader, &ring), waiting.pop_front());
                }
            }
            while let Some(message) = taken(&mut reader, &ring) {
                prop_assert_eq!(Some(message), waiting.pop_front());
            }
            prop_assert!(waiting.is_empty());
        }

        #[test]
        fn a_hostile_writer_gets_no_more_than_nonsense(words in prop::collection::vec(any::<u64>(), 8), to in any::<u64>()) {
            let (ring, mut reader) = (ring(), Reader::default());
            for (word, value) in ring.words.iter().zip(&words) {
                word.store(*value, Ordering::Relaxed);
            }
            ring.written().store(to, Ordering::Relaxed);
            let mut buffer = [0; 64];
            // At most one message for each word that can be in the ring, then nothing.
            let all = (0..=WORDS).take_while(|_| reader.take(&ring, &mut buffer) != TakeOutcome::Nothing).count();
            prop_assert!(all as u64 <= WORDS);
            prop_assert!(reader.may_sleep(&ring));
        }
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
        assert_eq!(writer.write(&ring, b"one"), Written::Quiet);
        assert!(!reader.may_sleep(&ring) && !reader.is_asleep(&ring));
        assert_eq!(taken(&mut reader, &ring).unwrap(), b"one");
        assert!(reader.may_sleep(&ring) && reader.is_asleep(&ring));
        assert_eq!([writer.write(&ring, b"two"), writer.write(&ring, b"")], [Written::Wake, Written::Quiet]);
        assert!(!reader.is_asleep(&ring));
    }

    #[test]
    fn a_writer_that_waits_for_room_is_woken_when_half_of_the_ring_is_empty() {
        let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
        let message = [7; 8_184];
        let written = (0..).take_while(|_| writer.write(&ring, &message) != Written::Full).count();
        assert_eq!(written, 32, "each takes an eighth of a quarter of the ring");
        let told = (1..=32).find(|_| taken(&mut reader, &ring).is_some() && reader.has_made_room(&ring));
        assert_eq!(told, Some(16));
        assert!(!reader.has_made_room(&ring), "it is told once");
        assert_ne!(writer.write(&ring, &message), Written::Full);
    }

    #[test]
    fn a_reader_at_an_impossible_place_gets_nothing_more_and_other_memory_is_no_ring() {
        let (ring, mut writer) = (ring(), Writer::default());
        ring.read().store(5, Ordering::Relaxed);
        assert_eq!(writer.write(&ring, b"one"), Written::Full);
        assert!(ring.is_valid() && !Box::<MessageRing>::default().is_valid());
    }

    #[test]
    fn a_message_that_is_longer_than_the_ring_never_finds_room() {
        assert_eq!(Writer::default().write(&ring(), &[0; 8 * shared::WORDS]), Written::Full);
    }
}
