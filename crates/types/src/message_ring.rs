//! A ring of messages of any length from one process to another, in memory that both map.
//!
//! One writer and one reader. Every word is atomic, so either side may write garbage at any time, and the other
//! side still has defined behaviour: each side keeps its own position, accepts only possible positions of the other
//! side, and copies a message before it examines it.
//!
//! **Waking.** A reader that finds no message sets a flag that it sleeps; the writer of the next message clears the
//! flag and must wake the reader. **Room.** A writer that finds no room sets a flag that it waits; the reader that
//! has emptied half of the ring clears the flag and must wake the writer. After setting a flag, a side looks once
//! more, with a full fence in between; the other side has a full fence between writing its position and reading the
//! flag. So no side sleeps while there is something to do.

use crate::shared::{self, AtomicU64, Ordering, fence};

const WORDS: u64 = shared::WORDS as u64;
const MAGIC: u64 = u64::from_le_bytes(*b"qfmsgs\0\x01");

#[repr(C, align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

/// The shared memory. All zeros until [`MessageRing::initialize`].
#[repr(C, align(64))]
pub struct MessageRing {
    /// Written once at creation: magic, number of words.
    identity: Line,
    /// Written by the writer: number of words written, and whether it waits for room (the reader clears this flag).
    writer: Line,
    /// Written by the reader: number of words read, and whether it sleeps (the writer clears this flag).
    reader: Line,
    /// A message is its length in bytes, in one word, and then its bytes in whole words.
    words: [AtomicU64; shared::WORDS],
}

impl Default for MessageRing {
    /// All zeros, in memory that is not shared.
    fn default() -> MessageRing {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        MessageRing { identity: Line::default(), writer: Line::default(), reader: Line::default(), words }
    }
}

/// The two rings of one connection.
#[repr(C, align(64))]
#[derive(Default)]
pub struct MessageRings {
    /// From the application to the daemon.
    pub up: MessageRing,
    /// From the daemon to the application.
    pub down: MessageRing,
}

/// The result of writing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The message is in the ring, and its reader will look.
    Quiet,
    /// The message is in the ring, and its reader sleeps: wake it.
    Wake,
    /// The ring has no room for the message; the reader wakes the writer when there is room.
    Full,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// No message waits.
    Nothing,
    /// A message with this number of bytes.
    Message(usize),
    /// Invalid content; everything in the ring is skipped.
    Nonsense,
}

impl MessageRing {
    /// Initialises new, zeroed memory as a ring. The creator does this before it passes the memory on.
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

/// Number of words of a message of `bytes` bytes.
fn words_of(bytes: usize) -> u64 {
    1 + bytes.div_ceil(8) as u64
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The words from `position` to the end of the ring's memory, and the words before them: a message that reaches the end
/// goes on at the beginning.
fn runs(ring: &MessageRing, position: u64) -> (&[AtomicU64], &[AtomicU64]) {
    let (before, from) = ring.words.split_at((position % WORDS) as usize);
    (from, before)
}

/// Writes two slices, one directly behind the other, in whole words; returns the position behind them.
fn put(ring: &MessageRing, position: u64, head: &[u8], body: &[u8]) -> u64 {
    let (whole, rest) = head.split_at(head.len() / WORD * WORD);
    let at = put_whole(ring, position, whole);
    // The word that has the end of the first slice and the beginning of the second.
    let (joint, body) = body.split_at(body.len().min((WORD - rest.len()) % WORD));
    let at = put_rest(ring, at, rest, joint);
    let (whole, rest) = body.split_at(body.len() / WORD * WORD);
    let at = put_whole(ring, at, whole);
    put_rest(ring, at, rest, &[])
}

/// Writes whole words. A loop without a remainder or a wrap in it: the compiler makes one load and one store for each.
fn put_whole(ring: &MessageRing, position: u64, bytes: &[u8]) -> u64 {
    let (from, before) = runs(ring, position);
    let (first, second) = bytes.split_at(bytes.len().min(from.len() * WORD));
    for (words, bytes) in [(from, first), (before, second)] {
        for (word, chunk) in words.iter().zip(bytes.as_chunks::<WORD>().0) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }
    position.wrapping_add((bytes.len() / WORD) as u64)
}

/// Writes less than a word's bytes, from two slices, as one word; nothing if there are none.
fn put_rest(ring: &MessageRing, position: u64, one: &[u8], other: &[u8]) -> u64 {
    if one.is_empty() && other.is_empty() {
        return position;
    }
    let mut bytes = [0; WORD];
    for (to, from) in bytes.iter_mut().zip(one.iter().chain(other)) {
        *to = *from;
    }
    ring.word(position).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    position.wrapping_add(1)
}

/// Copies bytes out of the ring.
fn get(ring: &MessageRing, position: u64, bytes: &mut [u8]) {
    let (from, before) = runs(ring, position);
    let (whole, rest) = bytes.split_at_mut(bytes.len() / WORD * WORD);
    let last = position.wrapping_add((whole.len() / WORD) as u64);
    let (first, second) = whole.split_at_mut(whole.len().min(from.len() * WORD));
    for (words, bytes) in [(from, first), (before, second)] {
        for (word, chunk) in words.iter().zip(bytes.as_chunks_mut::<WORD>().0) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
    if !rest.is_empty() {
        let bytes = ring.word(last).load(Ordering::Relaxed).to_le_bytes();
        rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
}

/// Clears a flag of the other side; returns whether it was set.
fn clear_flag(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
}

/// The writing side. A ring has one writer.
#[derive(Debug, Default)]
pub struct Writer {
    at: u64,
}

impl Writer {
    /// Puts a message into the ring, or sets the flag that the writer waits for room. Wait-free, without a system
    /// call. A message longer than the ring never finds room.
    pub fn write(&mut self, ring: &MessageRing, message: &[u8]) -> WriteOutcome {
        self.write_joined(ring, message, &[])
    }

    /// Like [`Writer::write`], for a message that is `head` with `body` behind it, so that the caller need not copy
    /// both into one piece of memory.
    pub fn write_joined(&mut self, ring: &MessageRing, head: &[u8], body: &[u8]) -> WriteOutcome {
        let length = head.len() + body.len();
        let need = words_of(length);
        if !self.has_room(ring, need) {
            ring.waits_for_room().store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.has_room(ring, need) {
                return WriteOutcome::Full;
            }
            ring.waits_for_room().store(0, Ordering::Relaxed);
        }
        ring.word(self.at).store(length as u64, Ordering::Relaxed);
        let behind = put(ring, self.at.wrapping_add(1), head, body);
        debug_assert_eq!(behind, self.at.wrapping_add(need));
        self.at = behind;
        ring.written().store(self.at, Ordering::Release);
        fence(Ordering::SeqCst);
        if clear_flag(ring.sleeps()) { WriteOutcome::Wake } else { WriteOutcome::Quiet }
    }

    /// A reader whose position is impossible receives no further messages.
    fn has_room(&self, ring: &MessageRing, need: u64) -> bool {
        let used = self.at.wrapping_sub(ring.read().load(Ordering::Acquire));
        used <= WORDS && need <= WORDS - used
    }
}

/// The reading side. A ring has one reader.
#[derive(Debug, Default)]
pub struct Reader {
    at: u64,
}

impl Reader {
    /// Copies the next message into `buffer`. A message longer than `buffer` counts as invalid.
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
        get(ring, self.at.wrapping_add(1), &mut buffer[..length]);
        self.go_to(ring, self.at.wrapping_add(words_of(length)));
        TakeOutcome::Message(length)
    }

    fn go_to(&mut self, ring: &MessageRing, position: u64) {
        self.at = position;
        ring.read().store(position, Ordering::Release);
    }

    /// Whether the writer waits for room and half of the ring is empty: then wake it. Call this after each message.
    pub fn has_made_room(&self, ring: &MessageRing) -> bool {
        fence(Ordering::SeqCst);
        let used = ring.written().load(Ordering::Relaxed).wrapping_sub(self.at);
        used <= WORDS / 2 && clear_flag(ring.waits_for_room())
    }

    /// Sets the flag that the reader sleeps. Returns `false`, and clears the flag, if there is something to read.
    pub fn may_sleep(&self, ring: &MessageRing) -> bool {
        ring.sleeps().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = ring.written().load(Ordering::Relaxed) == self.at;
        if !is_empty {
            ring.sleeps().store(0, Ordering::Relaxed);
        }
        is_empty
    }

    /// Whether the flag is set, and no writer has cleared it.
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
        fn messages_of_any_length_are_read_as_written(
            lengths in prop::collection::vec((0..9_000usize, 0..4u8), 1..200),
        ) {
            let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
            let mut waiting = std::collections::VecDeque::new();
            for (at, (length, reads)) in lengths.into_iter().enumerate() {
                let message: Vec<u8> = (0..length).map(|byte| (byte + at) as u8).collect();
                if writer.write(&ring, &message) != WriteOutcome::Full {
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
        fn a_message_in_two_pieces_is_read_as_one(
            begin in 0..WORDS, head in prop::collection::vec(any::<u8>(), 0..40), body in 0..700usize,
        ) {
            let (ring, mut writer, mut reader) = (ring(), Writer { at: begin }, Reader { at: begin });
            [ring.read(), ring.written()].iter().for_each(|at| at.store(begin, Ordering::Relaxed));
            let body: Vec<u8> = (0..body).map(|byte| byte as u8).collect();
            prop_assert_ne!(writer.write_joined(&ring, &head, &body), WriteOutcome::Full);
            prop_assert_eq!(taken(&mut reader, &ring), Some([head, body].concat()));
            prop_assert_eq!(taken(&mut reader, &ring), None);
        }

        #[test]
        fn garbage_from_a_hostile_writer_is_bounded(words in prop::collection::vec(any::<u64>(), 8), to in any::<u64>()) {
            let (ring, mut reader) = (ring(), Reader::default());
            for (word, value) in ring.words.iter().zip(&words) {
                word.store(*value, Ordering::Relaxed);
            }
            ring.written().store(to, Ordering::Relaxed);
            let mut buffer = [0; 64];
            // At most one message for each word that can be in the ring, then none.
            let all = (0..=WORDS).take_while(|_| reader.take(&ring, &mut buffer) != TakeOutcome::Nothing).count();
            prop_assert!(all as u64 <= WORDS);
            prop_assert!(reader.may_sleep(&ring));
        }
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
        assert_eq!(writer.write(&ring, b"one"), WriteOutcome::Quiet);
        assert!(!reader.may_sleep(&ring) && !reader.is_asleep(&ring));
        assert_eq!(taken(&mut reader, &ring).unwrap(), b"one");
        assert!(reader.may_sleep(&ring) && reader.is_asleep(&ring));
        assert_eq!([writer.write(&ring, b"two"), writer.write(&ring, b"")], [WriteOutcome::Wake, WriteOutcome::Quiet]);
        assert!(!reader.is_asleep(&ring));
    }

    #[test]
    fn a_waiting_writer_is_woken_when_half_of_the_ring_is_empty() {
        let (ring, mut writer, mut reader) = (ring(), Writer::default(), Reader::default());
        let message = [7; 8_184];
        let written = (0..).take_while(|_| writer.write(&ring, &message) != WriteOutcome::Full).count();
        assert_eq!(written, 32, "each message takes 1/32 of the ring");
        let found = (1..=32).find(|_| taken(&mut reader, &ring).is_some() && reader.has_made_room(&ring));
        assert_eq!(found, Some(16));
        assert!(!reader.has_made_room(&ring), "the writer is woken once");
        assert_ne!(writer.write(&ring, &message), WriteOutcome::Full);
    }

    #[test]
    fn an_impossible_reader_position_gets_no_messages_and_other_memory_is_no_ring() {
        let (ring, mut writer) = (ring(), Writer::default());
        ring.read().store(5, Ordering::Relaxed);
        assert_eq!(writer.write(&ring, b"one"), WriteOutcome::Full);
        assert!(ring.is_valid() && !Box::<MessageRing>::default().is_valid());
    }

    #[test]
    fn a_message_longer_than_the_ring_never_finds_room() {
        assert_eq!(Writer::default().write(&ring(), &[0; 8 * shared::WORDS]), WriteOutcome::Full);
    }
}
