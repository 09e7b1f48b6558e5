//! The memory that the kernel, the daemon and an application share: where each word lies, and how it is read and
//! written without a system call.
//!
//! | area | written by | read by | holds |
//! |---|---|---|---|
//! | [`Up`] (`memory_up`) | kernel, daemon | application | events, as a ring or as slots with a bit pattern |
//! | [`Down`] (`memory_down`) | application, handlers | both | attributes, and the values of deferred calls |
//! | [`SocketPage`] (I/O module) | both | both | which sockets are of interest, which are ready |
//!
//! Every word is atomic and either side may scribble at any time: a reader checks what it takes against the
//! geometry it was told when it mapped the area, keeps its own position, and copies. The kernel trusts nothing in
//! these areas: its positions, locks and counters lie in memory of its own, what is here are copies. Nothing in
//! this file maps memory; `shm` (application) and `linux` (owner) do.
//!
//! **Waking.** A reader that wants to sleep sets `waiting`, puts a full fence behind it and looks once more. A
//! writer publishes, puts a full fence behind that (an atomic exchange) and takes `waiting` back to 0; if it was 1, it makes the wake
//! descriptor readable. Whatever the order, one of the two sees what the other did: no event is left behind by a
//! reader that sleeps. The wake descriptor is a BPF ring buffer of one page: [`acknowledge`] after each poll.

mod writer;

pub use writer::UpWriter;

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// What makes a [`Up`] area one: "qf_up" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"qf_up\0\0\x01");
/// Bytes before the bit pattern or the first slot: the writer's line and the reader's.
pub const HEADER_BYTES: u32 = 128;
/// Bytes of a slot before its data: sequence, time, deadline.
pub const SLOT_HEADER_BYTES: u32 = 24;
/// Attributes of an application session.
pub const ATTRIBUTES: usize = 64;
/// Values of deferred calls that wait for the kernel at most; the next is refused.
pub const DEFERRED: usize = 64;
/// Values one deferred call hands to its handler at most.
pub const BATCH: usize = 16;
/// Sockets one I/O module serves: descriptors 0 to 65,535.
pub const SOCKETS: usize = 65_536;
/// Largest memory_up, in bytes.
pub const MAX_UP_BYTES: u32 = 16 << 20;

/// How events lie in a memory_up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// In order; a full ring drops the newest event.
    Ring,
    /// One slot per position, a bit for each that is new; the newest overwrites (position named at subscription),
    /// or the next free slot is taken.
    Bits,
}

impl Layout {
    /// The number that stands in the area.
    pub const fn number(self) -> u32 {
        match self {
            Layout::Ring => 1,
            Layout::Bits => 2,
        }
    }

    const fn from_number(number: u32) -> Option<Layout> {
        match number {
            1 => Some(Layout::Ring),
            2 => Some(Layout::Bits),
            _ => None,
        }
    }
}

/// Sizes of a memory_up, checked: whoever holds one need not check again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    layout: Layout,
    slots: u32,
    slot_bytes: u32,
    data_bytes: u32,
}

/// Sizes that make no memory_up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGeometry {
    /// Not a power of two, or too few or too many.
    #[error("memory_up of {0} slots; take a power of two from 2 to 65536")]
    Slots(u32),
    /// More data than an event has.
    #[error("memory_up for events of {0} bytes; at most {max} bytes are possible", max = crate::format::Format::MAX_SIZE)]
    Data(u32),
    /// The whole is too big.
    #[error("memory_up of {0} bytes; at most {MAX_UP_BYTES} are possible: take fewer slots")]
    Total(u64),
    /// The memory at hand is none, or one of another version.
    #[error("this memory is no memory_up of this version; use a daemon of the same version")]
    Foreign,
}

impl Geometry {
    /// `slots` (a power of two) for events of `data_bytes` each.
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

    /// Ring or bits.
    pub const fn layout(self) -> Layout {
        self.layout
    }

    /// Slots there are.
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

    /// Bytes from the area's beginning to its first slot.
    pub const fn slots_offset(self) -> u32 {
        HEADER_BYTES + (self.bit_words() * 8).next_multiple_of(64)
    }

    /// Bytes of the whole area.
    pub const fn total_bytes(self) -> u32 {
        self.slots_offset() + self.slots * self.slot_bytes
    }
}

/// The first two lines of a memory_up.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct UpHeader {
    flag: AtomicU32,
    layout: AtomicU32,
    back: AtomicU32,
    slots: AtomicU32,
    slot_bytes: AtomicU32,
    data_bytes: AtomicU32,
    dropped: AtomicU64,
    magic: AtomicU64,
    _unused: [AtomicU64; 3],
    front: AtomicU32,
    waiting: AtomicU32,
    _reader: [AtomicU64; 7],
}

const _: () = assert!(size_of::<UpHeader>() == HEADER_BYTES as usize && align_of::<UpHeader>() == 64);

impl UpHeader {
    /// Bytes from the area's beginning, for those who write it by address.
    pub const FLAG: u32 = 0;
    /// See [`UpHeader::FLAG`].
    pub const BACK: u32 = 8;
    /// See [`UpHeader::FLAG`].
    pub const DROPPED: u32 = 24;
    /// See [`UpHeader::FLAG`].
    pub const FRONT: u32 = 64;
    /// See [`UpHeader::FLAG`].
    pub const WAITING: u32 = 68;

    /// Makes fresh, zeroed memory a memory_up. Its owner does this before it hands the memory out.
    pub fn initialize(&self, geometry: Geometry) {
        self.layout.store(geometry.layout.number(), Ordering::Relaxed);
        self.slots.store(geometry.slots, Ordering::Relaxed);
        self.slot_bytes.store(geometry.slot_bytes, Ordering::Relaxed);
        self.data_bytes.store(geometry.data_bytes, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// What the area says of itself, checked.
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

/// What goes with an event's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it happened: nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Until when it is of use; 0: always.
    pub deadline_ns: u64,
}

/// A memory_up and where its reader stands. One reader per area.
#[derive(Debug)]
pub struct Up<'a> {
    header: &'a UpHeader,
    body: &'a [AtomicU64],
    geometry: Geometry,
    front: u32,
}

impl<'a> Up<'a> {
    /// `body` is everything behind the header. Refused unless it is a memory_up that fits.
    pub fn new(header: &'a UpHeader, body: &'a [AtomicU64]) -> Result<Up<'a>, InvalidGeometry> {
        let geometry = header.geometry()?;
        if ((geometry.total_bytes() - HEADER_BYTES) / 8) as usize > body.len() {
            return Err(InvalidGeometry::Foreign);
        }
        Ok(Up { header, body, geometry, front: header.front.load(Ordering::Relaxed) })
    }

    /// Its sizes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Grows by one with every event; wraps around. The cheapest question: did anything happen?
    pub fn flag(&self) -> u32 {
        self.header.flag.load(Ordering::Acquire)
    }

    /// Events that found no room.
    pub fn dropped(&self) -> u64 {
        self.header.dropped.load(Ordering::Relaxed)
    }

    /// Whether nothing waits to be taken.
    pub fn is_empty(&self) -> bool {
        match self.geometry.layout {
            Layout::Ring => self.header.back.load(Ordering::Acquire) == self.front,
            Layout::Bits => (0..self.geometry.bit_words()).all(|w| self.bits(w).load(Ordering::Acquire) == 0),
        }
    }

    /// The next event, copied into `data` (as much as fits): the oldest of a ring; of slots, the one at the
    /// lowest position, which is what makes the position a priority.
    pub fn take(&mut self, data: &mut [u8]) -> Option<Stamp> {
        match self.geometry.layout {
            Layout::Ring => self.take_oldest(data),
            Layout::Bits => self.take_lowest(data).map(|(_, stamp)| stamp),
        }
    }

    /// As [`Up::take`] for slots, with the position.
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

    /// What is new at one position. While somebody writes there, it is tried again, a bounded number of times.
    pub fn take_at(&mut self, position: u32, data: &mut [u8]) -> Option<Stamp> {
        if self.geometry.layout != Layout::Bits || position >= self.geometry.slots {
            return None;
        }
        let mask = 1 << (position % 64);
        // The bit goes first: what is written from now on sets it again and is seen by the next call.
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

    /// Announces that the reader is about to sleep. `true`: it may, the writer will wake it. `false`: something
    /// came meanwhile, look again. After waking, call [`acknowledge`].
    pub fn may_sleep(&self) -> bool {
        self.header.waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let empty = self.is_empty();
        if !empty {
            self.header.waiting.store(0, Ordering::Relaxed);
        }
        empty
    }

    fn take_oldest(&mut self, data: &mut [u8]) -> Option<Stamp> {
        let back = self.header.back.load(Ordering::Acquire);
        let waiting = back.wrapping_sub(self.front);
        if waiting == 0 {
            return None;
        }
        if waiting > self.geometry.slots {
            // Somebody scribbled, or this reader was replaced: go on from the newest.
            self.front = back.wrapping_sub(1);
        }
        let stamp = self.copy(self.front & (self.geometry.slots - 1), data);
        self.front = self.front.wrapping_add(1);
        self.header.front.store(self.front, Ordering::Release);
        Some(stamp)
    }

    fn bits(&self, word: u32) -> &AtomicU64 {
        &self.body[word as usize]
    }

    fn slot(&self, index: u32) -> &[AtomicU64] {
        let first = ((self.geometry.slots_offset() - HEADER_BYTES + index * self.geometry.slot_bytes) / 8) as usize;
        &self.body[first..first + (self.geometry.slot_bytes / 8) as usize]
    }

    /// The slot's contents if nobody wrote there meanwhile.
    fn copy_whole(&self, index: u32, data: &mut [u8]) -> Option<Stamp> {
        let before = self.slot(index)[0].load(Ordering::Acquire);
        let stamp = self.copy(index, data);
        fence(Ordering::Acquire);
        let after = self.slot(index)[0].load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(stamp)
    }

    fn copy(&self, index: u32, data: &mut [u8]) -> Stamp {
        let slot = self.slot(index);
        let length = data.len().min(self.geometry.data_bytes as usize);
        for (part, word) in data[..length].chunks_mut(8).zip(&slot[3..]) {
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..part.len()]);
        }
        Stamp { time_ns: slot[1].load(Ordering::Relaxed), deadline_ns: slot[2].load(Ordering::Relaxed) }
    }
}

/// Looks at a slot that is being written, before its reader gives up until the next call.
const TRIES: u32 = 64;

/// memory_down: the application's attributes and the values of its deferred calls. All zeros at first.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Down {
    attribute: [AtomicI64; ATTRIBUTES],
    head: AtomicU32,
    _unused: AtomicU32,
    tail: AtomicU32,
    _pad: [AtomicU32; 13],
    value: [AtomicI64; DEFERRED],
}

const _: () = assert!(size_of::<Down>() == 1088 && DEFERRED.is_power_of_two());

/// Deferred values are queued faster than their moment comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{DEFERRED} deferred values wait already; the kernel takes them at the moment chosen with `when`")]
pub struct DeferredFull;

impl Down {
    /// Bytes from the area's beginning to the number of values queued.
    pub const HEAD: u32 = 512;
    /// To the number of values taken, as last told by the kernel.
    pub const TAIL: u32 = 520;
    /// To the values.
    pub const VALUES: u32 = 576;

    /// An attribute's value; 0 beyond the last one.
    pub fn attribute(&self, number: usize) -> i64 {
        self.attribute.get(number).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// A fast user-ECall: handlers in the kernel see the value from now on. `false`: there is no such number.
    pub fn set_attribute(&self, number: usize, value: i64) -> bool {
        self.attribute.get(number).map(|word| word.store(value, Ordering::Release)).is_some()
    }

    /// Adds to an attribute in one step; the new value.
    pub fn add_attribute(&self, number: usize, by: i64) -> Option<i64> {
        Some(self.attribute.get(number)?.fetch_add(by, Ordering::AcqRel).wrapping_add(by))
    }

    /// A deferred user-ECall: the value waits for the next chosen moment, together with others. One thread at a
    /// time may queue.
    pub fn defer(&self, value: i64) -> Result<(), DeferredFull> {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize >= DEFERRED {
            return Err(DeferredFull);
        }
        self.value[head as usize % DEFERRED].store(value, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Deferred values that wait.
    pub fn deferred(&self) -> u32 {
        self.head.load(Ordering::Relaxed).wrapping_sub(self.tail.load(Ordering::Acquire))
    }
}

const SOCKET_WORDS: usize = SOCKETS / 64;

/// What an application wants to hear of (`socket_interest` of the papers). Written by the application.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketInterest {
    flag: AtomicU32,
    waiting: AtomicU32,
    _pad: [AtomicU64; 7],
    fd_list: [AtomicU64; SOCKET_WORDS],
    updated_fd_list: [AtomicU64; SOCKET_WORDS],
}

/// Which sockets were active (`socket_ready` of the papers). Written by the kernel; taken by the application.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketReady {
    flag: AtomicU32,
    _pad: [AtomicU32; 15],
    fd_active: [AtomicU64; SOCKET_WORDS],
}

/// The page of the I/O module: in place of `select()`.
///
/// **Meaning of a bit in `fd_active`.** Since it was last taken, data arrived at the socket, its peer closed, or
/// a connection arrived (listening socket). It is an edge that is remembered, not a level: whoever takes a bit
/// reads (or accepts) until `EAGAIN`, or puts the bit back with [`SocketPage::keep`]. Taking comes before
/// reading, so what arrives in between sets the bit again.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SocketPage {
    interest: SocketInterest,
    ready: SocketReady,
}

const _: () = assert!(size_of::<SocketPage>() == SocketPage::READY as usize + 64 + 8 * SOCKET_WORDS);

impl SocketPage {
    /// Bytes from the page's beginning to `socket_interest.waiting`.
    pub const WAITING: u32 = 4;
    /// To `socket_interest.fd_list`.
    pub const FD_LIST: u32 = 64;
    /// To `socket_ready`, whose first word is its flag.
    pub const READY: u32 = 64 + 16 * SOCKET_WORDS as u32;
    /// To `socket_ready.fd_active`.
    pub const FD_ACTIVE: u32 = Self::READY + 64;

    /// Events of this socket are wanted, or not any more. `false`: the descriptor is beyond [`SOCKETS`].
    pub fn set_interest(&self, fd: u32, wanted: bool) -> bool {
        let Some(word) = self.interest.fd_list.get(fd as usize / 64) else { return false };
        let mask = 1 << (fd % 64);
        match wanted {
            true => word.fetch_or(mask, Ordering::AcqRel),
            false => word.fetch_and(!mask, Ordering::AcqRel),
        };
        self.interest.updated_fd_list[fd as usize / 64].fetch_or(mask, Ordering::AcqRel);
        self.interest.flag.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Whether events of this socket are wanted.
    pub fn is_interested(&self, fd: u32) -> bool {
        let word = self.interest.fd_list.get(fd as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (fd % 64) & 1 == 1)
    }

    /// Changes of interest so far; wraps around.
    pub fn interest_flag(&self) -> u32 {
        self.interest.flag.load(Ordering::Acquire)
    }

    /// Grows by one with every event of a socket of interest; wraps around.
    pub fn ready_flag(&self) -> u32 {
        self.ready.flag.load(Ordering::Acquire)
    }

    /// Takes the active sockets among descriptors `64·word` to `64·word + 63`, a bit for each.
    pub fn take_active(&self, word: usize) -> u64 {
        match self.ready.fd_active.get(word) {
            Some(bits) if bits.load(Ordering::Relaxed) != 0 => bits.swap(0, Ordering::AcqRel),
            _ => 0,
        }
    }

    /// Calls `each` with every active socket up to descriptor `highest`, taking its bit; their number.
    pub fn for_each_active(&self, highest: u32, mut each: impl FnMut(u32)) -> usize {
        let words = (highest as usize / 64 + 1).min(SOCKET_WORDS);
        (0..words).map(|word| for_each_bit(self.take_active(word), |bit| each(word as u32 * 64 + bit))).sum()
    }

    /// Puts the bit back: there is more to read, it will be done later; and after a socket was bound, since
    /// what arrived before is not told.
    pub fn keep(&self, fd: u32) {
        if let Some(word) = self.ready.fd_active.get(fd as usize / 64) {
            word.fetch_or(1 << (fd % 64), Ordering::AcqRel);
        }
    }

    /// Whether a socket up to descriptor `highest` is active.
    pub fn any_active(&self, highest: u32) -> bool {
        let words = (highest as usize / 64 + 1).min(SOCKET_WORDS);
        self.ready.fd_active[..words].iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// As [`Up::may_sleep`], for sockets up to descriptor `highest`.
    pub fn may_sleep(&self, highest: u32) -> bool {
        self.interest.waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let active = self.any_active(highest);
        if active {
            self.interest.waiting.store(0, Ordering::Relaxed);
        }
        !active
    }
}

fn for_each_bit(mut bits: u64, mut each: impl FnMut(u32)) -> usize {
    let count = bits.count_ones() as usize;
    while bits != 0 {
        each(bits.trailing_zeros());
        bits &= bits - 1;
    }
    count
}

/// Makes a wake descriptor unreadable again, so that the next poll waits. `consumer` is the first word of the BPF
/// ring buffer's first page (mapped for writing), `producer` that of its second (for reading). Call it after
/// each poll that answered, before looking at the area.
pub fn acknowledge(consumer: &AtomicU64, producer: &AtomicU64) {
    consumer.store(producer.load(Ordering::Acquire), Ordering::Release);
    fence(Ordering::SeqCst);
}
