//! The positions of a session's handlers of deferred values. A place in the ring is free for a new value when all
//! handlers have taken the value there.
//!
//! ```text
//! 0 active handlers, one bit each │ 8 position of handler 0 │ 16 position of handler 1 │ …
//! ```
//! Each handler writes its own position. User space alone writes the bits, so a handler that ends while it still runs
//! cannot come back.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qfabric_sync::{Lock, rank};

use super::memory::DownMemory;
use crate::bpf::{Map, Mapping};

/// Largest number of handlers of deferred values in one session.
pub(super) const HANDLERS: usize = 8;
/// Offset of the position of handler `number`, in bytes.
pub(super) const fn position_of(number: usize) -> u32 {
    8 + 8 * number as u32
}
const BYTES: u32 = position_of(HANDLERS);

/// The positions of one session.
#[derive(Debug)]
pub(super) struct Positions {
    map: Map,
    mapping: Mapping,
    /// Held while a handler begins or ends.
    changes: Lock<(), { rank::DEFERRED_HANDLERS }>,
}

/// The place of one handler; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    positions: Arc<Positions>,
    pub number: usize,
    /// Number of the first value that the handler takes.
    pub start: u32,
    down: Arc<super::memory::DownArea>,
}

impl Positions {
    pub(super) fn new() -> io::Result<Positions> {
        let map = Map::array(BYTES, 1)?;
        let mapping = map.map(BYTES as usize)?;
        Ok(Positions { map, mapping, changes: Lock::default() })
    }

    fn active(&self) -> u64 {
        self.mapping.words(0)[0].load(Ordering::SeqCst)
    }

    /// The smallest position of the active handlers, measured from the values that were queued.
    fn slowest(&self, queued: u32) -> Option<u32> {
        let active = self.active();
        let places = (0..HANDLERS).filter(|number| active >> number & 1 == 1);
        let position = |number| self.mapping.words(position_of(number) as usize)[0].load(Ordering::SeqCst) as u32;
        places.map(position).max_by_key(|position| queued.wrapping_sub(*position))
    }
}

impl Place {
    /// A place for a handler of the session. The first handler takes the values that wait; a further one takes those
    /// that are deferred from now on. `None`: all places are taken.
    pub(super) fn in_session(down: &DownMemory) -> io::Result<Option<Place>> {
        let (positions, area) = (down.positions()?, down.area());
        let changing = positions.changes.lock();
        let active = positions.active();
        let Some(number) = (0..HANDLERS).find(|number| active >> number & 1 == 0) else { return Ok(None) };
        let start = if active == 0 { area.down().taken() } else { area.down().queued() };
        positions.mapping.words(position_of(number) as usize)[0].store(start.into(), Ordering::SeqCst);
        positions.mapping.words(0)[0].fetch_or(1 << number, Ordering::SeqCst);
        drop(changing);
        Ok(Some(Place { positions, number, start, down: area }))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.positions.map.fd()
    }
}

impl Drop for Place {
    /// Frees the values for which only this handler was waited.
    fn drop(&mut self) {
        let _alone = self.positions.changes.lock();
        self.positions.mapping.words(0)[0].fetch_and(!(1 << self.number), Ordering::SeqCst);
        let down = self.down.down();
        if let Some(upto) = self.positions.slowest(down.queued()) {
            down.take(upto);
        }
    }
}
