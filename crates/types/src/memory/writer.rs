//! The writer of a [`super::Up`] in user space: the daemon, for events that do not come from a handler in the
//! kernel. The kernel's writers use the same order of stores.

use super::{Geometry, HEADER_BYTES, Layout, Stamp, UpStorage};
use crate::shared::{AtomicU64, Ordering, fence};

/// Writes events into a memory_up. An area has one writer. The writer keeps its positions in private memory, so
/// that a reader that writes garbage can only lose its own events.
#[derive(Debug)]
pub struct UpWriter<S> {
    storage: S,
    geometry: Geometry,
    back: u32,
    /// The slot at which the search for a free slot begins.
    next: u32,
    dropped: u64,
}

impl<S: UpStorage> UpWriter<S> {
    /// A writer of a new area, whose header was initialised with `geometry`.
    pub fn new(storage: S, geometry: Geometry) -> Self {
        let words = (geometry.total_bytes() - HEADER_BYTES) / 8;
        assert!(storage.body().len() >= words as usize, "the area is smaller than its geometry");
        UpWriter { storage, geometry, back: 0, next: 0, dropped: 0 }
    }

    fn body(&self) -> &[AtomicU64] {
        self.storage.body()
    }

    /// Writes one event; `position` is its slot, if the subscription names a position field. Returns `false` if
    /// there was no room or no such position; the event is then dropped and counted.
    pub fn write(&mut self, data: &[u8], stamp: Stamp, position: Option<u64>) -> bool {
        let written = match self.geometry.layout() {
            Layout::Ring => self.append(data, stamp),
            Layout::Bits => self.set(data, stamp, position),
        };
        if !written {
            self.dropped += 1;
            self.storage.header().dropped.store(self.dropped, Ordering::Relaxed);
            return false;
        }
        self.storage.header().flag.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether the reader sleeps and must be woken. Call it after writing; it returns `true` once per sleep.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let waiting = &self.storage.header().waiting;
        waiting.load(Ordering::Relaxed) != 0 && waiting.swap(0, Ordering::AcqRel) != 0
    }

    fn append(&mut self, data: &[u8], stamp: Stamp) -> bool {
        let front = self.storage.header().front.load(Ordering::Acquire);
        if self.back.wrapping_sub(front) >= self.geometry.slots() {
            return false;
        }
        self.store(self.back & (self.geometry.slots() - 1), data, stamp);
        self.back = self.back.wrapping_add(1);
        self.storage.header().back.store(self.back, Ordering::Release);
        true
    }

    fn set(&mut self, data: &[u8], stamp: Stamp, position: Option<u64>) -> bool {
        let slot = match position {
            Some(position) => Some(position).filter(|p| *p < u64::from(self.geometry.slots())).map(|p| p as u32),
            None => self.free_slot(),
        };
        let Some(slot) = slot else { return false };
        self.store(slot, data, stamp);
        self.body()[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel);
        true
    }

    fn free_slot(&mut self) -> Option<u32> {
        let slots = self.geometry.slots();
        let is_free = |slot: &u32| self.body()[*slot as usize / 64].load(Ordering::Acquire) >> (slot % 64) & 1 == 0;
        let found = (0..slots).map(|i| (self.next + i) & (slots - 1)).find(is_free)?;
        self.next = found + 1;
        Some(found)
    }

    fn store(&self, index: u32, data: &[u8], stamp: Stamp) {
        let first = (self.geometry.slots_offset() - HEADER_BYTES + index * self.geometry.slot_bytes()) / 8;
        let slot = &self.body()[first as usize..][..self.geometry.slot_bytes() as usize / 8];
        let sequence = slot[0].load(Ordering::Relaxed) & !1;
        slot[0].store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        slot[1].store(stamp.time_ns, Ordering::Relaxed);
        slot[2].store(stamp.deadline_ns, Ordering::Relaxed);
        let data = &data[..data.len().min(self.geometry.data_bytes() as usize)];
        for (word, part) in slot[3..].iter().zip(data.chunks(8).chain(std::iter::repeat(&[][..]))) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        slot[0].store(sequence.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Up, UpHeader, UpParts};
    use super::*;

    fn stamp(time_ns: u64) -> Stamp {
        Stamp { time_ns, deadline_ns: 0 }
    }

    /// Runs `test` on a fresh area of 4 slots of 12 bytes.
    fn with(layout: Layout, test: impl FnOnce(&mut UpWriter<UpParts<'_>>, &mut Up<UpParts<'_>>)) {
        let geometry = Geometry::new(layout, 4, 12).unwrap();
        let header = UpHeader::default();
        header.initialize(geometry);
        let words = (geometry.total_bytes() - HEADER_BYTES) / 8;
        let body: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mut up = Up::new((&header, &body[..])).unwrap();
        test(&mut UpWriter::new((&header, &body[..]), geometry), &mut up);
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_counts() {
        with(Layout::Ring, |writer, up| {
            let written: Vec<_> = (0..5).map(|i| writer.write(&[i; 12], stamp(i.into()), None)).collect();
            assert_eq!((written, up.dropped(), up.flag()), (vec![true, true, true, true, false], 1, 4));
            let mut data = [0; 12];
            for i in 0..4 {
                assert_eq!((up.take(&mut data), data), (Some(stamp(i.into())), [i; 12]));
            }
            assert!(up.take(&mut data).is_none() && writer.write(&[9; 3], stamp(9), None));
            assert_eq!((up.take(&mut data), &data[..4]), (Some(stamp(9)), &[9, 9, 9, 0][..]));
        });
    }

    #[test]
    fn a_position_is_overwritten_by_the_newest_and_read_first_if_it_is_lowest() {
        with(Layout::Bits, |writer, up| {
            for (i, position) in [(1, 3), (2, 0), (3, 3)] {
                assert!(writer.write(&[i; 12], stamp(i.into()), Some(position)));
            }
            assert!(!writer.write(&[4; 12], stamp(4), Some(4)), "position 4 does not exist");
            let mut data = [0; 12];
            assert_eq!((up.take_lowest(&mut data), data[0]), (Some((0, stamp(2))), 2));
            assert_eq!((up.take_lowest(&mut data), data[0]), (Some((3, stamp(3))), 3));
            assert!(up.is_empty() && up.dropped() == 1);
        });
    }

    #[test]
    fn without_a_position_events_take_free_slots_until_all_are_used() {
        with(Layout::Bits, |writer, up| {
            assert!((0..4).all(|i| writer.write(&[i; 12], stamp(0), None)));
            assert!(!writer.write(&[9; 12], stamp(0), None));
            assert!(up.take_at(2, &mut [0; 12]).is_some());
            assert!(writer.write(&[7; 12], stamp(0), None) && !writer.write(&[8; 12], stamp(0), None));
        });
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        with(Layout::Ring, |writer, up| {
            assert!(!writer.must_wake() && up.may_sleep());
            assert!(writer.write(&[1; 12], stamp(0), None) && writer.must_wake() && !writer.must_wake());
            assert!(!up.may_sleep(), "an event waits");
        });
    }
}
