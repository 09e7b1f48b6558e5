//! The table of one reserve: its segments and the allocations in them. Lengths in bytes.
//!
//! An allocation of a page or more has its own segment of whole pages. Smaller ones share segments of one page
//! (QualMan §4.2: `MIN_ALLOC_SEGMENT`), each in the first hole that is large enough (first fit). The table is a value
//! of the daemon; no part of it lies in a segment, so a program that writes over a segment harms only its contents.

use std::collections::BTreeMap;

use qfabric_types::Bytes;
use qfabric_types::api::Problem;
use qfabric_types::api::memory::{AllocationId, AllocationPlace, PageKind};

/// A connection that holds a reserve.
pub type Member = u64;

/// Small allocations begin at multiples of this: enough for any scalar type and for SIMD registers of 16 bytes.
const ALIGN: u64 = 16;

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    length: u64,
}

#[derive(Clone, Debug)]
struct Segment {
    bytes: u64,
    /// Unused parts, ascending, never adjacent.
    holes: Vec<Span>,
    allocations: usize,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    member: Member,
    segment: u64,
    /// As reserved in the segment.
    span: Span,
    /// As asked for.
    bytes: u64,
}

/// The table of one reserve.
#[derive(Clone, Debug)]
pub struct Pool {
    page: u64,
    reserved: u64,
    /// Bytes of all segments.
    in_segments: u64,
    /// Bytes of locked program text, by member.
    texts: BTreeMap<Member, u64>,
    segments: BTreeMap<u64, Segment>,
    allocations: BTreeMap<AllocationId, Allocation>,
    last_segment: u64,
    last_allocation: u64,
}

/// An operation on a reserve is refused; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    #[error("asked for {asked}, the reserve has {free} of {reserved} left")]
    Exhausted { asked: Bytes, free: Bytes, reserved: Bytes },
    #[error("an allocation of 0 bytes has no place")]
    Empty,
    #[error("the reserve has {most} {what}, which is the limit")]
    TooMany { what: &'static str, most: usize },
    #[error("the reserve has no allocation {allocation} of this connection")]
    NoAllocation { allocation: AllocationId },
    #[error("{used} of the reserve are in use, more than the new amount of {asked}")]
    InUse { used: Bytes, asked: Bytes },
}

impl PoolRefusal {
    /// The refusal of a request.
    pub fn problem(&self) -> Problem {
        let (code, next) = match self {
            PoolRefusal::Exhausted { .. } => ("over_reserve", "free an allocation first, or let the reserve grow"),
            PoolRefusal::Empty => ("invalid", "ask for at least 1 byte"),
            PoolRefusal::TooMany { .. } => ("too_many_allocations", "free some first, or make a second reserve"),
            PoolRefusal::NoAllocation { .. } => ("no_such_allocation", "use the number that the allocation returned"),
            PoolRefusal::InUse { .. } => ("over_reserve", "free allocations first, then let the reserve shrink"),
        };
        Problem::new(code, self.to_string(), next)
    }
}

impl Pool {
    /// Most segments of one reserve; each is a locked mapping of the daemon.
    pub const MOST_SEGMENTS: usize = 128;
    /// Most allocations of one reserve.
    pub const MOST_ALLOCATIONS: usize = 16_384;

    /// An empty table; `page` is the size of a page (of a huge one, for a reserve in huge pages), `reserved` the amount of the reserve.
    pub fn new(page: u64, reserved: Bytes) -> Self {
        Pool {
            page,
            reserved: reserved.get(),
            in_segments: 0,
            texts: BTreeMap::new(),
            segments: BTreeMap::new(),
            allocations: BTreeMap::new(),
            last_segment: 0,
            last_allocation: 0,
        }
    }

    /// The size of a page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// The amount in segments and locked text.
    pub fn used(&self) -> Bytes {
        Bytes::new(self.in_segments + self.texts.values().sum::<u64>())
    }

    pub fn reserved(&self) -> Bytes {
        Bytes::new(self.reserved)
    }

    /// Whether the table has the segment.
    pub fn has_segment(&self, segment: u64) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Checks that the reserve may have `bytes`.
    ///
    /// # Errors
    /// More is in use.
    pub fn check_size(&self, bytes: Bytes) -> Result<(), PoolRefusal> {
        match self.used() > bytes {
            true => Err(PoolRefusal::InUse { used: self.used(), asked: bytes }),
            false => Ok(()),
        }
    }

    /// The reserve has this amount now.
    pub fn resize(&mut self, bytes: Bytes) {
        self.reserved = bytes.get();
    }

    /// Finds a place for `bytes`. The caller makes the segment if it is new.
    ///
    /// # Errors
    /// The reserve or one of its tables is full.
    pub fn allocate(&mut self, member: Member, bytes: u64) -> Result<AllocationPlace, PoolRefusal> {
        if bytes == 0 {
            return Err(PoolRefusal::Empty);
        }
        if self.allocations.len() >= Self::MOST_ALLOCATIONS {
            return Err(PoolRefusal::TooMany { what: "allocations", most: Self::MOST_ALLOCATIONS });
        }
        let length = if bytes < self.page { bytes.next_multiple_of(ALIGN) } else { self.whole_pages(bytes) };
        let (segment, start) = match self.first_fit(length) {
            Some(found) => found,
            None => (self.add_segment(self.whole_pages(bytes))?, 0),
        };
        let span = Span { start, length };
        self.segments.get_mut(&segment).expect("found or added above").take(span);
        self.last_allocation += 1;
        let id = AllocationId(self.last_allocation);
        self.allocations.insert(id, Allocation { member, segment, span, bytes });
        Ok(self.place(id).expect("inserted above"))
    }

    /// The place of an allocation of any member.
    ///
    /// # Errors
    /// There is no such allocation.
    pub fn place(&self, allocation: AllocationId) -> Result<AllocationPlace, PoolRefusal> {
        let found = self.allocations.get(&allocation).ok_or(PoolRefusal::NoAllocation { allocation })?;
        let Allocation { segment, span, bytes, .. } = *found;
        Ok(AllocationPlace {
            allocation,
            segment,
            segment_bytes: self.segments[&segment].bytes,
            offset: span.start,
            bytes,
            pages: PageKind::Base,
        })
    }

    /// Frees an allocation. Returns its segment if that is empty now and therefore no longer in the table.
    ///
    /// # Errors
    /// The member has no such allocation.
    pub fn free(&mut self, member: Member, allocation: AllocationId) -> Result<Option<u64>, PoolRefusal> {
        match self.allocations.get(&allocation) {
            Some(found) if found.member == member => Ok(self.remove(allocation)),
            _ => Err(PoolRefusal::NoAllocation { allocation }),
        }
    }

    /// Counts `bytes` of locked program text of a member instead of its former text.
    ///
    /// # Errors
    /// The reserve is too small.
    pub fn lock_text(&mut self, member: Member, bytes: Bytes) -> Result<(), PoolRefusal> {
        let former = self.texts.remove(&member).unwrap_or(0);
        match self.check_room(self.whole_pages(bytes.get())) {
            Ok(()) => {
                self.texts.insert(member, self.whole_pages(bytes.get()));
                Ok(())
            }
            Err(refusal) => {
                self.texts.extend((former > 0).then_some((member, former)));
                Err(refusal)
            }
        }
    }

    /// Frees everything of a member. Returns the segments that are empty now.
    pub fn leave(&mut self, member: Member) -> Vec<u64> {
        self.texts.remove(&member);
        let of_member = |(id, found): (&AllocationId, &Allocation)| (found.member == member).then_some(*id);
        let ids: Vec<AllocationId> = self.allocations.iter().filter_map(of_member).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    fn whole_pages(&self, bytes: u64) -> u64 {
        Bytes::new(bytes).round_up(self.page).get()
    }

    fn check_room(&self, asked: u64) -> Result<(), PoolRefusal> {
        let (asked, reserved) = (Bytes::new(asked), self.reserved());
        let free = reserved - self.used();
        if asked > free { Err(PoolRefusal::Exhausted { asked, free, reserved }) } else { Ok(()) }
    }

    /// The first hole, by segment and place, that holds `length` bytes.
    fn first_fit(&self, length: u64) -> Option<(u64, u64)> {
        let hole = |segment: &Segment| segment.holes.iter().find(|hole| hole.length >= length).map(|hole| hole.start);
        self.segments.iter().find_map(|(id, segment)| Some((*id, hole(segment)?)))
    }

    fn add_segment(&mut self, bytes: u64) -> Result<u64, PoolRefusal> {
        self.check_room(bytes)?;
        if self.segments.len() >= Self::MOST_SEGMENTS {
            return Err(PoolRefusal::TooMany { what: "segments", most: Self::MOST_SEGMENTS });
        }
        self.in_segments += bytes;
        self.last_segment += 1;
        let holes = vec![Span { start: 0, length: bytes }];
        self.segments.insert(self.last_segment, Segment { bytes, holes, allocations: 0 });
        Ok(self.last_segment)
    }

    fn remove(&mut self, id: AllocationId) -> Option<u64> {
        let Allocation { segment, span, .. } = self.allocations.remove(&id)?;
        let found = self.segments.get_mut(&segment)?;
        found.give_back(span);
        if found.allocations > 0 {
            return None;
        }
        self.in_segments -= found.bytes;
        self.segments.remove(&segment);
        Some(segment)
    }
}

impl Segment {
    fn take(&mut self, span: Span) {
        let at = self.holes.iter().position(|hole| hole.start == span.start).expect("an allocation begins at a hole");
        let hole = &mut self.holes[at];
        (hole.start, hole.length) = (hole.start + span.length, hole.length - span.length);
        if hole.length == 0 {
            self.holes.remove(at);
        }
        self.allocations += 1;
    }

    /// Makes the span a hole and joins it with its neighbours.
    fn give_back(&mut self, span: Span) {
        self.allocations -= 1;
        let at = self.holes.partition_point(|hole| hole.start < span.start);
        self.holes.insert(at, span);
        for left in [at, at.saturating_sub(1)] {
            let Some(&next) = self.holes.get(left + 1) else { continue };
            let hole = &mut self.holes[left];
            if hole.start + hole.length == next.start {
                hole.length += next.length;
                self.holes.remove(left + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
