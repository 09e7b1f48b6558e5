//! memory_up: the side of the reader, and the header that both sides share.

use super::{Geometry, HEADER_BYTES, InvalidGeometry, Layout, MAGIC};
use crate::shared::{AtomicU32, AtomicU64, Ordering, TRIES, fence};

/// The first two cache lines of a memory_up.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct UpHeader {
    pub(super) flag: AtomicU32,
    pub(super) layout: AtomicU32,
    pub(super) back: AtomicU32,
    pub(super) slots: AtomicU32,
    pub(super) slot_bytes: AtomicU32,
    pub(super) data_bytes: AtomicU32,
    pub(super) dropped: AtomicU64,
    magic: AtomicU64,
    _unused: [AtomicU64; 3],
    pub(super) front: AtomicU32,
    pub(super) waiting: AtomicU32,
    _reader: [AtomicU64; 7],
}

impl UpHeader {
    /// Offset in bytes from the begin of the area, for writers that use addresses.
    pub const FLAG: u32 = 0;
    pub const BACK: u32 = 8;
    pub const DROPPED: u32 = 24;
    pub const FRONT: u32 = 64;
    pub const WAITING: u32 = 68;

    /// Initialises new, zeroed memory as a memory_up. The owner does this before it passes the memory on.
    pub fn initialize(&self, geometry: Geometry) {
        self.layout.store(geometry.layout().number(), Ordering::Relaxed);
        self.slots.store(geometry.slots(), Ordering::Relaxed);
        self.slot_bytes.store(geometry.slot_bytes(), Ordering::Relaxed);
        self.data_bytes.store(geometry.data_bytes(), Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Reads the sizes from the header and checks them.
    pub fn geometry(&self) -> Result<Geometry, InvalidGeometry> {
        let layout = Layout::from_number(self.layout.load(Ordering::Relaxed));
        match layout {
            Some(layout) if self.magic.load(Ordering::Acquire) == MAGIC => {
                Geometry::new(layout, self.slots.load(Ordering::Relaxed), self.data_bytes.load(Ordering::Relaxed))
            }
            _ => Err(InvalidGeometry::Foreign),
        }
    }
}

/// Times of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The time of the event: nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The time until which the event is of use; 0: no limit.
    pub deadline_ns: u64,
}

/// The words of a memory_up. Each call returns the same words, so an owned mapping works as well as references.
pub trait UpStorage {
    fn header(&self) -> &UpHeader;
    /// All words behind the header.
    fn body(&self) -> &[AtomicU64];
}

/// Borrowed words.
pub type UpParts<'a> = (&'a UpHeader, &'a [AtomicU64]);

impl UpStorage for UpParts<'_> {
    fn header(&self) -> &UpHeader {
        self.0
    }
    fn body(&self) -> &[AtomicU64] {
        self.1
    }
}

/// A memory_up and the position of its reader. An area has one reader.
#[derive(Debug)]
pub struct Up<S> {
    storage: S,
    geometry: Geometry,
    front: u32,
}

impl<S: UpStorage> Up<S> {
    /// Takes the area's words.
    ///
    /// # Errors
    /// [`InvalidGeometry`] unless the header is that of a memory_up, and the body is large enough.
    pub fn new(storage: S) -> Result<Up<S>, InvalidGeometry> {
        let geometry = storage.header().geometry()?;
        if ((geometry.total_bytes() - HEADER_BYTES) / 8) as usize > storage.body().len() {
            return Err(InvalidGeometry::Foreign);
        }
        let front = storage.header().front.load(Ordering::Relaxed);
        Ok(Up { storage, geometry, front })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of events; wraps around. The cheapest way to check for new events.
    pub fn flag(&self) -> u32 {
        self.header().flag.load(Ordering::Acquire)
    }

    /// Number of events that found no room.
    pub fn dropped(&self) -> u64 {
        self.header().dropped.load(Ordering::Relaxed)
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        match self.geometry.layout() {
            Layout::Ring => self.header().back.load(Ordering::Acquire) == self.front,
            Layout::Bits => (0..self.geometry.bit_words()).all(|w| self.bits(w).load(Ordering::Acquire) == 0),
        }
    }

    /// Takes the next event and copies it into `data` (as much as fits). In a ring it is the oldest event; with
    /// slots it is the one at the lowest position, so that a position acts as a priority.
    pub fn take(&mut self, data: &mut [u8]) -> Option<Stamp> {
        match self.geometry.layout() {
            Layout::Ring => self.take_oldest(data),
            Layout::Bits => self.take_lowest(data).map(|(_, stamp)| stamp),
        }
    }

    /// Like [`Up::take`] for slots; also returns the position.
    pub fn take_lowest(&mut self, data: &mut [u8]) -> Option<(u32, Stamp)> {
        for w in 0..self.geometry.bit_words() {
            let bits = self.bits(w).load(Ordering::Acquire);
            if bits != 0 {
                let position = w * 64 + bits.trailing_zeros();
                return self.take_at(position, data).map(|stamp| (position, stamp));
            }
        }
        None
    }

    /// Takes the new event at one position. While a writer is writing there, the copy is tried again, a bounded
    /// number of times.
    pub fn take_at(&mut self, position: u32, data: &mut [u8]) -> Option<Stamp> {
        if self.geometry.layout() != Layout::Bits || position >= self.geometry.slots() {
            return None;
        }
        let mask = 1 << (position % 64);
        // Clear the bit first: a later write sets it again and is seen by the next call.
        if self.bits(position / 64).fetch_and(!mask, Ordering::AcqRel) & mask == 0 {
            return None;
        }
        for _ in 0..TRIES {
            if let Some(stamp) = self.copy_whole(position, data) {
                return Some(stamp);
            }
            std::hint::spin_loop();
        }
        self.bits(position / 64).fetch_or(mask, Ordering::AcqRel);
        None
    }

    /// Announces that the reader is about to sleep. Returns `true` if it may sleep and the writer will wake it.
    /// Returns `false` if an event came meanwhile; then look again. After waking, call [`super::acknowledge`].
    pub fn may_sleep(&self) -> bool {
        self.header().waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let empty = self.is_empty();
        if !empty {
            self.header().waiting.store(0, Ordering::Relaxed);
        }
        empty
    }

    fn take_oldest(&mut self, data: &mut [u8]) -> Option<Stamp> {
        let back = self.header().back.load(Ordering::Acquire);
        let waiting = back.wrapping_sub(self.front);
        if waiting == 0 {
            return None;
        }
        if waiting > self.geometry.slots() {
            // The other side wrote garbage, or this reader was replaced: continue at the newest event.
            self.front = back.wrapping_sub(1);
        }
        let stamp = self.copy(self.front & (self.geometry.slots() - 1), data);
        self.front = self.front.wrapping_add(1);
        self.header().front.store(self.front, Ordering::Release);
        Some(stamp)
    }

    fn header(&self) -> &UpHeader {
        self.storage.header()
    }

    fn bits(&self, word: u32) -> &AtomicU64 {
        &self.storage.body()[word as usize]
    }

    fn slot(&self, index: u32) -> &[AtomicU64] {
        let first = ((self.geometry.slots_offset() - HEADER_BYTES + index * self.geometry.slot_bytes()) / 8) as usize;
        &self.storage.body()[first..first + (self.geometry.slot_bytes() / 8) as usize]
    }

    /// Copies the slot; `None` if a writer changed it meanwhile.
    fn copy_whole(&self, index: u32, data: &mut [u8]) -> Option<Stamp> {
        let before = self.slot(index)[0].load(Ordering::Acquire);
        let stamp = self.copy(index, data);
        fence(Ordering::Acquire);
        let after = self.slot(index)[0].load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(stamp)
    }

    fn copy(&self, index: u32, data: &mut [u8]) -> Stamp {
        let slot = self.slot(index);
        let length = data.len().min(self.geometry.data_bytes() as usize);
        for (part, word) in data[..length].chunks_mut(8).zip(&slot[3..]) {
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..part.len()]);
        }
        Stamp { time_ns: slot[1].load(Ordering::Relaxed), deadline_ns: slot[2].load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::UpWriter;

    /// An area in ordinary memory.
    struct Area {
        header: UpHeader,
        body: Vec<AtomicU64>,
        geometry: Geometry,
    }

    fn area(layout: Layout, slots: u32, data_bytes: u32) -> Area {
        let geometry = Geometry::new(layout, slots, data_bytes).unwrap();
        let header = UpHeader::default();
        header.initialize(geometry);
        let words = (geometry.total_bytes() - HEADER_BYTES) / 8;
        Area { header, body: (0..words).map(|_| AtomicU64::new(0)).collect(), geometry }
    }

    impl Area {
        fn reader(&self) -> Up<UpParts<'_>> {
            Up::new((&self.header, &self.body[..])).unwrap()
        }

        fn writer(&self) -> UpWriter<UpParts<'_>> {
            UpWriter::new((&self.header, &self.body[..]), self.geometry)
        }
    }

    const STAMP: Stamp = Stamp { time_ns: 5, deadline_ns: 9 };

    #[test]
    fn a_ring_delivers_in_order_and_drops_events_without_room() {
        let area = area(Layout::Ring, 4, 12);
        let (mut reader, mut writer) = (area.reader(), area.writer());
        for number in 0..6u8 {
            assert_eq!(writer.write(&[number; 12], STAMP, None), number < 4);
        }
        let mut data = [0; 12];
        for number in 0..4 {
            assert_eq!(reader.take(&mut data), Some(STAMP));
            assert_eq!(data, [number; 12]);
        }
        assert_eq!((reader.take(&mut data), reader.dropped(), reader.flag()), (None, 2, 4));
        assert!(reader.is_empty());
    }

    #[test]
    fn slots_are_delivered_by_position_lowest_first() {
        let area = area(Layout::Bits, 128, 8);
        let (mut reader, mut writer) = (area.reader(), area.writer());
        for (position, value) in [(90, 1u8), (3, 2), (90, 3)] {
            assert!(writer.write(&[value; 8], STAMP, Some(position)));
        }
        let mut data = [0; 8];
        assert_eq!((reader.take_lowest(&mut data), data), (Some((3, STAMP)), [2; 8]));
        assert_eq!((reader.take_at(90, &mut data), data), (Some(STAMP), [3; 8]));
        assert_eq!((reader.take(&mut data), reader.take_at(128, &mut data)), (None, None));
    }

    #[test]
    fn a_slot_during_a_write_is_left_for_the_next_call() {
        let area = area(Layout::Bits, 2, 8);
        let (mut reader, mut writer) = (area.reader(), area.writer());
        assert!(writer.write(&[1; 8], STAMP, Some(0)));
        let sequence = &area.body[((area.geometry.slots_offset() - HEADER_BYTES) / 8) as usize];
        sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(reader.take(&mut [0; 8]), None);
        assert!(!reader.is_empty(), "the bit of the slot is still set");
        sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(reader.take(&mut [0; 8]), Some(STAMP));
    }

    #[test]
    fn the_reader_survives_garbage_in_the_area() {
        let area = area(Layout::Ring, 4, 8);
        let mut reader = area.reader();
        area.header.slots.store(1 << 30, Ordering::Relaxed);
        area.header.slot_bytes.store(u32::MAX, Ordering::Relaxed);
        for back in [7, u32::MAX, 1 << 31] {
            area.header.back.store(back, Ordering::Relaxed);
            assert!(reader.take(&mut [0; 64]).is_some());
            assert!(reader.take(&mut [0; 64]).is_none(), "one failed call, then in step again");
        }
    }

    #[test]
    fn memory_that_is_no_area_is_refused() {
        let header = UpHeader::default();
        assert_eq!(header.geometry(), Err(InvalidGeometry::Foreign));
        header.initialize(Geometry::new(Layout::Ring, 64, 64).unwrap());
        let short: Vec<AtomicU64> = (0..10).map(|_| AtomicU64::new(0)).collect();
        assert!(matches!(Up::new((&header, &short[..])), Err(InvalidGeometry::Foreign)));
        header.slots.store(5, Ordering::Relaxed);
        assert_eq!(header.geometry(), Err(InvalidGeometry::Slots(5)));
    }

    #[test]
    fn a_reader_may_sleep_only_if_no_event_waits() {
        let area = area(Layout::Ring, 4, 8);
        let (mut reader, mut writer) = (area.reader(), area.writer());
        assert!(reader.may_sleep());
        assert!(writer.write(&[], STAMP, None) && writer.must_wake() && !writer.must_wake());
        assert!(!reader.may_sleep() && !writer.must_wake());
        assert!(reader.take(&mut []).is_some() && reader.may_sleep());
    }

    #[test]
    fn concurrent_writer_and_reader_never_mix_two_events() {
        for layout in [Layout::Ring, Layout::Bits] {
            let area = area(layout, 4, 64);
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let mut writer = area.writer();
                    for n in 0..20_000u32 {
                        let _ = writer.write(&[n as u8; 64], STAMP, Some(u64::from(n % 4)));
                    }
                });
                let (mut reader, mut data) = (area.reader(), [0; 64]);
                while !writing.is_finished() {
                    if reader.take(&mut data).is_some() {
                        assert!(data.iter().all(|&byte| byte == data[0]), "{layout:?}: {data:?}");
                    }
                }
                writing.join().unwrap();
            });
        }
    }
}
