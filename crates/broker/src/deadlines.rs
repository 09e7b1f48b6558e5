//! The earliest of many times, each under a key, without a search through all of them.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::Instant;

/// One time per key, in the order of the times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines<K> {
    at: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Deadlines { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    /// Sets the time of a key; `None` and [`Instant::NEVER`] remove the key.
    pub fn set(&mut self, key: &K, at: Option<Instant>) {
        let at = at.filter(|at| *at != Instant::NEVER);
        let before = self.at.get(key).copied();
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key.clone()));
            self.at.remove(key);
        }
        if let Some(at) = at {
            self.order.insert((at, key.clone()));
            self.at.insert(key.clone(), at);
        }
    }

    /// The earliest time.
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The keys whose time is not after `now`, the earliest first. They stay.
    pub fn due(&self, now: Instant) -> Vec<K> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_a_search(steps in prop::collection::vec((0..8u8, prop::option::of(0..20u64)), 0..60)) {
            let (mut deadlines, mut all) = (Deadlines::default(), BTreeMap::new());
            for (key, at) in steps {
                let at = at.map(Instant::new);
                deadlines.set(&key, at);
                all.remove(&key);
                all.extend(at.map(|at| (key, at)));
                prop_assert_eq!(deadlines.next(), all.values().min().copied());
                let mut due: Vec<_> = all.iter().filter(|(_, at)| at.get() <= 10).map(|(key, at)| (*at, *key)).collect();
                due.sort_unstable();
                let due: Vec<u8> = due.into_iter().map(|(_, key)| key).collect();
                prop_assert_eq!(deadlines.due(Instant::new(10)), due);
            }
        }
    }

    #[test]
    fn a_key_without_an_end_is_never_due() {
        let mut deadlines = Deadlines::default();
        deadlines.set(&1, Some(Instant::NEVER));
        assert_eq!((deadlines.next(), deadlines), (None, Deadlines::default()));
    }
}
