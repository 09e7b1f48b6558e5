//! The smallest of n keys, one of which changes at a time: a tree of winners. Allocates only at its creation.

/// The key of a leaf that takes no part.
pub(super) const ABSENT: Key = Key { time: u64::MAX, rest: u64::MAX };

/// A place in an order, lower first: a time, then the rest. Two halves instead of one `u128`, because processors
/// stall when a value that was written in halves is read as a whole.
#[derive(Clone, Copy, Debug, PartialOrd, Ord, Eq)]
pub(super) struct Key {
    pub time: u64,
    pub rest: u64,
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        (self.time ^ other.time) | (self.rest ^ other.rest) == 0
    }
}

impl Key {
    #[inline]
    fn precedes(&self, other: &Key) -> bool {
        let whole = |key: &Key| u128::from(key.time) << 64 | u128::from(key.rest);
        whole(self) < whole(other)
    }
}

/// Leaves are numbered; a key contains the number of its leaf, so that the winner identifies itself.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// `nodes[1]` is the winner, `nodes[leaves + i]` the key of leaf i; every other node is the lesser of its two
    /// children.
    nodes: Vec<Key>,
    leaves: usize,
}

impl Tournament {
    pub(crate) fn new(leaves: usize) -> Self {
        let leaves = leaves.next_power_of_two();
        Tournament { nodes: vec![ABSENT; 2 * leaves], leaves }
    }

    #[inline]
    pub(crate) fn first(&self) -> Key {
        self.nodes[1]
    }

    /// Sets the key of `leaf`. Stops at the first node whose winner stays the same.
    ///
    /// A branch predictor cannot guess which of two keys is less, so the winner is found by arithmetic on its index
    /// (the two indices differ in the last bit), not by a branch.
    pub(crate) fn set(&mut self, leaf: usize, key: Key) {
        let mut node = self.leaves + leaf;
        if std::mem::replace(&mut self.nodes[node], key) == key {
            return;
        }
        while node > 1 {
            let other_wins = self.nodes[node ^ 1].precedes(&self.nodes[node]);
            let winner = self.nodes[node ^ usize::from(other_wins)];
            node /= 2;
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_winner_is_the_least_key(changes in prop::collection::vec((0usize..13, prop::option::of((0u64..9, 0u64..9))), 1..200)) {
            let mut tree = Tournament::new(13);
            let mut plain = [ABSENT; 13];
            for (leaf, key) in changes {
                plain[leaf] = key.map_or(ABSENT, |(time, rest)| Key { time, rest });
                tree.set(leaf, plain[leaf]);
                prop_assert_eq!(tree.first(), *plain.iter().min().unwrap());
            }
        }
    }
}
