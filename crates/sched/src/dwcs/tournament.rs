//! The smallest of n keys, of which one changes at a time: a tree of winners. No allocation after its birth.

/// A leaf that takes no part.
pub(super) const ABSENT: u128 = u128::MAX;

/// Leaves are numbered; a key names its leaf, so that the winner says who it is.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// `nodes[1]` is the winner, `nodes[leaves + i]` the key of leaf i, a node the smaller of its two children.
    nodes: Vec<u128>,
    leaves: usize,
}

impl Tournament {
    pub fn new(leaves: usize) -> Self {
        let leaves = leaves.next_power_of_two();
        Tournament { nodes: vec![ABSENT; 2 * leaves], leaves }
    }

    pub fn first(&self) -> u128 {
        self.nodes[1]
    }

    /// Climbs until a winner stays the same: above it nothing changes.
    pub fn set(&mut self, leaf: usize, key: u128) {
        let mut node = self.leaves + leaf;
        self.nodes[node] = key;
        while node > 1 {
            let winner = self.nodes[node].min(self.nodes[node ^ 1]);
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
        fn the_winner_is_the_least(changes in prop::collection::vec((0usize..13, prop::option::of(0u128..50)), 1..200)) {
            let mut tree = Tournament::new(13);
            let mut plain = [ABSENT; 13];
            for (leaf, key) in changes {
                plain[leaf] = key.unwrap_or(ABSENT);
                tree.set(leaf, plain[leaf]);
                prop_assert_eq!(tree.first(), *plain.iter().min().unwrap());
            }
        }
    }
}
