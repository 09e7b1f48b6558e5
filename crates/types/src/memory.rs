//! The memory that the kernel, the daemon and an application share: its layout, and how it is read and written
//! without system calls.
//!
//! | area | written by | read by | holds |
//! |---|---|---|---|
//! | [`Up`] (`memory_up`) | kernel, daemon | application | events, as a ring or as slots with a bit pattern |
//! | [`Down`] (`memory_down`) | application, handlers | both | attributes, and the values of deferred calls |
//! | [`SocketPage`] (I/O module) | both | both | sockets of interest, and active sockets |
//!
//! Every word is atomic, and either side may write garbage at any time. A reader checks each value against the
//! geometry from the time when it mapped the area, keeps its own position, and copies. The kernel does not rely on
//! these areas: its positions, locks and counters are in memory of its own, and these areas contain copies. This
//! module does not map memory; `shm` (application) and `linux` (owner) do.
//!
//! **Waking.** A reader that wants to sleep sets `waiting`, executes a full fence and looks once more. A writer
//! publishes, executes a full fence (an atomic exchange) and resets `waiting` to 0; if it was 1, the writer makes
//! the wake descriptor readable. In any order, at least one side sees the other's write, so a sleeping reader
//! misses no event. The wake descriptor is a BPF ring buffer of one page: call [`acknowledge`] after each poll.

mod call;
mod down;
mod socket;
mod up;
mod writer;

pub use call::{CALL_SERVICE, CALL_VALUES, CallRecord, CallVerdict};
pub use down::{DeferredFull, Down, Moment};
pub use socket::{ReadySockets, SocketInterest, SocketPage};
pub use up::{Stamp, Up, UpHeader, UpParts, UpStorage};
pub use writer::UpWriter;

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::api::Problem;
use crate::format::Format;

/// First word of a valid [`Up`] area: "qf_up" and the version of the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"qf_up\0\0\x01");
/// Bytes before the bit pattern or the first slot: one cache line for the writer and one for the reader.
pub const HEADER_BYTES: u32 = 128;
/// Bytes of a slot before its data: sequence number, time, deadline.
pub const SLOT_HEADER_BYTES: u32 = 24;
/// Number of attributes of an application session.
pub const ATTRIBUTES: usize = 64;
/// Largest number of values of deferred calls that wait for the kernel; the next value is refused.
pub const DEFERRED: usize = 64;
/// Largest number of values that one deferred call passes to its handler.
pub const BATCH: usize = 16;
/// Number of sockets that one I/O module serves: descriptors 0 to 65,535.
pub const SOCKETS: usize = 65_536;
/// Largest memory_up, in bytes.
pub const MAX_UP_BYTES: u32 = 16 << 20;

const _: () = assert!(size_of::<UpHeader>() == HEADER_BYTES as usize && align_of::<UpHeader>() == 64);

/// The layout of the events in a memory_up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Events in order; a full ring drops the newest event.
    Ring,
    /// One slot per position, with a bit that marks a new event. A newer event overwrites the older one in its slot
    /// (if the subscription names a position field), or takes the next free slot.
    Bits,
}

impl Layout {
    /// The layout's number in the area.
    pub const fn number(self) -> u32 {
        match self {
            Layout::Ring => 1,
            Layout::Bits => 2,
        }
    }

    pub const fn from_number(number: u32) -> Option<Layout> {
        match number {
            1 => Some(Layout::Ring),
            2 => Some(Layout::Bits),
            _ => None,
        }
    }
}

/// The sizes of a memory_up, already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    layout: Layout,
    slots: u32,
    slot_bytes: u32,
    data_bytes: u32,
}

/// The sizes are not possible for a memory_up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidGeometry {
    /// Not a power of two, or outside 2 to 65,536.
    Slots(u32),
    /// More bytes than an event may have.
    Data(u32),
    /// The area would exceed [`MAX_UP_BYTES`].
    Total(u64),
    /// The memory is not a memory_up, or has another version.
    Foreign,
}

impl InvalidGeometry {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            InvalidGeometry::Slots(slots) => {
                (format!("memory_up of {slots} slots"), "take a power of two from 2 to 65536".to_owned())
            }
            InvalidGeometry::Data(bytes) => (
                format!("memory_up for events of {bytes} bytes"),
                format!("at most {} bytes are possible", Format::MAX_SIZE),
            ),
            InvalidGeometry::Total(bytes) => {
                let most = format!("at most {MAX_UP_BYTES} are possible: take fewer slots");
                (format!("memory_up of {bytes} bytes"), most)
            }
            InvalidGeometry::Foreign => (
                "this memory is not a memory_up of this version".to_owned(),
                "use a daemon of the same version".to_owned(),
            ),
        };
        Problem::new("chain", message, next_step)
    }
}

impl Geometry {
    /// `slots` slots (a power of two) for events of `data_bytes` bytes.
    pub fn new(layout: Layout, slots: u32, data_bytes: u32) -> Result<Geometry, InvalidGeometry> {
        if !slots.is_power_of_two() || !(2..=65_536).contains(&slots) {
            return Err(InvalidGeometry::Slots(slots));
        }
        if data_bytes > crate::format::Format::MAX_SIZE {
            return Err(InvalidGeometry::Data(data_bytes));
        }
        let slot_bytes = SLOT_HEADER_BYTES + data_bytes.next_multiple_of(8);
        let geometry = Geometry { layout, slots, slot_bytes, data_bytes };
        let total = u64::from(geometry.slots_offset()) + u64::from(slots) * u64::from(slot_bytes);
        if total > u64::from(MAX_UP_BYTES) { Err(InvalidGeometry::Total(total)) } else { Ok(geometry) }
    }

    pub const fn layout(self) -> Layout {
        self.layout
    }

    pub const fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes from one slot to the next.
    pub const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Bytes of an event.
    pub const fn data_bytes(self) -> u32 {
        self.data_bytes
    }

    /// Words of the bit pattern; 0 in a ring.
    pub const fn bit_words(self) -> u32 {
        match self.layout {
            Layout::Ring => 0,
            Layout::Bits => self.slots.div_ceil(64),
        }
    }

    /// Bytes from the begin of the area to its first slot.
    pub const fn slots_offset(self) -> u32 {
        HEADER_BYTES + (self.bit_words() * 8).next_multiple_of(64)
    }

    /// Bytes of the whole area.
    pub const fn total_bytes(self) -> u32 {
        self.slots_offset() + self.slots * self.slot_bytes
    }
}

/// Makes a wake descriptor unreadable again, so that the next poll waits. `consumer` is the first word of the BPF
/// ring buffer's first page (mapped for writing), `producer` that of its second page (for reading). Call it after
/// each poll that reported the descriptor as readable, before reading the area.
pub fn acknowledge(consumer: &AtomicU64, producer: &AtomicU64) {
    consumer.store(producer.load(Ordering::Acquire), Ordering::Release);
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused_with_possible_ones() {
        assert_eq!(Geometry::new(Layout::Ring, 3, 8), Err(InvalidGeometry::Slots(3)));
        assert_eq!(Geometry::new(Layout::Ring, 1, 8), Err(InvalidGeometry::Slots(1)));
        assert_eq!(Geometry::new(Layout::Bits, 1 << 17, 8), Err(InvalidGeometry::Slots(1 << 17)));
        assert_eq!(Geometry::new(Layout::Ring, 4, 16_385), Err(InvalidGeometry::Data(16_385)));
        let refusal = Geometry::new(Layout::Ring, 65_536, 16_384).unwrap_err();
        assert!(refusal.to_string().contains("take fewer slots"), "{refusal}");
    }

    #[test]
    fn slots_begin_behind_the_bits_on_a_separate_cache_line() {
        let ring = Geometry::new(Layout::Ring, 64, 20).unwrap();
        assert_eq!((ring.slots_offset(), ring.slot_bytes(), ring.total_bytes()), (128, 48, 128 + 64 * 48));
        let bits = Geometry::new(Layout::Bits, 1024, 8).unwrap();
        assert_eq!((bits.bit_words(), bits.slots_offset(), bits.slot_bytes()), (16, 256, 32));
        assert_eq!(Geometry::new(Layout::Bits, 2, 0).unwrap().slots_offset(), 192);
    }

    #[test]
    fn acknowledging_marks_everything_as_read() {
        let (consumer, producer) = (AtomicU64::new(3), AtomicU64::new(40));
        acknowledge(&consumer, &producer);
        assert_eq!(consumer.into_inner(), 40);
    }
}
