//! Which blocks of a window of the sequence space have arrived.

use std::ops::Range;

/// A bit for each position of a window, in a ring: the bits of two positions that are `capacity` apart share memory.
#[derive(Clone, Debug)]
pub(crate) struct RingBitmap {
    words: Box<[u64]>,
}

impl RingBitmap {
    /// A bitmap for at least `bits` positions.
    pub(crate) fn new(bits: u64) -> RingBitmap {
        RingBitmap { words: vec![0; bits.div_ceil(64) as usize].into() }
    }

    /// A multiple of 64.
    pub(crate) fn capacity(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// Sets a range; returns how many bits were clear before.
    pub(crate) fn set(&mut self, range: Range<u64>) -> u32 {
        let mut set = 0;
        for (word, mask) in pieces(self.capacity(), range) {
            set += (mask & !self.words[word]).count_ones();
            self.words[word] |= mask;
        }
        set
    }

    pub(crate) fn clear(&mut self, range: Range<u64>) {
        for (word, mask) in pieces(self.capacity(), range) {
            self.words[word] &= !mask;
        }
    }

    /// The first position in the range whose bit is set (or clear); its end if there is none.
    pub(crate) fn find(&self, range: Range<u64>, is_set: bool) -> u64 {
        let mut at = range.start;
        for (word, mask) in pieces(self.capacity(), range.clone()) {
            let found = mask & if is_set { self.words[word] } else { !self.words[word] };
            if found != 0 {
                return (at & !63) + u64::from(found.trailing_zeros());
            }
            at = (at & !63) + 64;
        }
        range.end
    }
}

/// The words and masks of a range, in ascending order.
fn pieces(capacity: u64, range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    debug_assert!(range.end.saturating_sub(range.start) <= capacity);
    let mut at = range.start;
    std::iter::from_fn(move || {
        (at < range.end).then(|| {
            let (bit, left) = (at % 64, range.end - at);
            let count = left.min(64 - bit);
            let mask = (u64::MAX >> (64 - count)) << bit;
            let word = (at % capacity / 64) as usize;
            at += count;
            (word, mask)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_ring_agrees_with_a_set(
            base in prop_oneof![Just(0u64), 0u64..1_000_000_000_000],
            steps in prop::collection::vec((0u64..192, 0u64..192, any::<bool>()), 1..40),
        ) {
            // Multiples of the capacity keep the words of equal positions apart from others.
            let (mut ring, mut model) = (RingBitmap::new(150), BTreeSet::new());
            prop_assert_eq!(ring.capacity(), 192);
            for (one, other, is_set) in steps {
                let range = base + one.min(other)..base + one.max(other);
                if is_set {
                    let new = range.clone().filter(|at| model.insert(*at)).count();
                    prop_assert_eq!(ring.set(range) as usize, new);
                } else {
                    range.clone().for_each(|at| { model.remove(&at); });
                    ring.clear(range);
                }
                let all = base..base + 192;
                for wanted in [true, false] {
                    let first = all.clone().find(|at| model.contains(at) == wanted).unwrap_or(all.end);
                    prop_assert_eq!(ring.find(all.clone(), wanted), first);
                }
            }
        }
    }
}
