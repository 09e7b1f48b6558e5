//! The map of holes of a message that was delivered at its deadline (§5.2.2, item 5).

use std::ops::Range;

use super::message::Incoming;
use crate::bitmap::RingBitmap;
use crate::blocks::BLOCK;

/// The parts of a message that did not arrive, as ranges of bytes in ascending order.
#[derive(Clone, Debug)]
pub struct Holes<'a> {
    message: Option<(&'a RingBitmap, Incoming)>,
    at: u64,
}

impl<'a> Holes<'a> {
    pub(super) fn of(map: &'a RingBitmap, message: Option<&Incoming>) -> Holes<'a> {
        let at = message.map_or(0, |message| message.start);
        Holes { message: message.map(|message| (map, *message)), at }
    }
}

impl Iterator for Holes<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let (map, message) = self.message.as_ref()?;
        let from = map.find(self.at..message.end(), false);
        self.at = map.find(from..message.end(), true);
        let byte = |at: u64| ((at - message.start) as usize * BLOCK as usize).min(message.size as usize);
        (from < message.end()).then(|| byte(from)..byte(self.at))
    }
}
