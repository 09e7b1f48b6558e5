//! Whether a group is whole, or split, and which of its parts may go on with what.
//!
//! ```text
//!            somebody vanished                             for LEASE: what the vanished had is free
//!   Whole ─────────────────────> Share ── more than half ────────────────────────────────────────> Whole
//!     ^   divides everything       │ divides what its own members have
//!     │                            ├── half: stays so
//!     │                            └── less than half, for GIVE_UP ──> Nothing
//!     └── all are there again, and stay for SETTLE
//! ```
//! Nobody can tell a host that died from one behind a cut cable. So a part of a group goes on with what its members had:
//! the parts together never have more than there is. After [`LEASE`] the part with more than half takes the rest, when
//! those with less have given up their own ([`GIVE_UP`] is sooner, by more than two sides may differ in when they see
//! the cut). «Half» is of those who were all there together last: it grows and shrinks only while nobody is missing, so
//! that two parts cannot both have more than half. Whoever died for good is missed until it comes back, or the group
//! is begun anew. Source: majority voting (Thomas 1979). Assumed: who sees one host of a part sees all of it; a host that
//! restarts behind a cut has forgotten whom it belonged to.

use std::collections::BTreeSet;

use qfabric_types::{Instant, Nanos};

/// After so long with more than half of the group, what the others had is free.
pub const LEASE: Nanos = Nanos::from_millis(10_000);

/// After so long with less than half of the group, a part has nothing.
pub const GIVE_UP: Nanos = Nanos::from_millis(6_000);

/// Who is there has to be the same for so long before more than the members have is handed out: until then everybody has
/// said what it has.
pub const SETTLE: Nanos = Nanos::from_millis(2_000);

/// What a part of a group may divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitState {
    /// All there is.
    Whole,
    /// What its members have.
    Share,
    /// Nothing.
    Nothing,
}

/// How one member sees it.
#[derive(Clone, Debug)]
pub struct Split<T> {
    /// Those who last agreed that they are all.
    agreed: BTreeSet<T>,
    seen: BTreeSet<T>,
    /// Since when `seen` is what it is.
    same_since: Instant,
    /// Since when less than half of the agreed are seen.
    few_since: Option<Instant>,
}

impl<T: Ord + Clone> Split<T> {
    /// Alone.
    pub fn new(now: Instant) -> Self {
        Split { agreed: BTreeSet::new(), seen: BTreeSet::new(), same_since: now, few_since: None }
    }

    /// One left and said so: it is not missed, unless somebody else is, who has not heard of it.
    pub fn left(&mut self, one: &T) {
        if self.agreed.iter().all(|other| other == one || self.seen.contains(other)) {
            self.agreed.remove(one);
        }
    }

    /// Another member of this part reports when the hosts that it sees last changed. The times of this part begin at the
    /// latest such change: that member may have been with a smaller part meanwhile, which then gives up later.
    pub fn member_changed(&mut self, at: Instant) {
        self.same_since = self.same_since.max(at);
    }

    /// How long the hosts that are seen have been the same.
    pub fn same_for(&self, now: Instant) -> Nanos {
        now.since(self.same_since)
    }

    /// Who is there now; what may be divided.
    pub fn look(&mut self, seen: &BTreeSet<T>, now: Instant) -> SplitState {
        if *seen != self.seen {
            (self.seen, self.same_since) = (seen.clone(), now);
        }
        let there = self.agreed.intersection(seen).count();
        let (all, same_for) = (self.agreed.len(), now.since(self.same_since));
        self.few_since = if 2 * there < all { self.few_since.or(Some(now)) } else { None };
        if there == all && same_for >= SETTLE {
            self.agreed.clone_from(seen);
            return SplitState::Whole;
        }
        if 2 * there > all && there < all && same_for >= LEASE {
            return SplitState::Whole;
        }
        let gone = self.few_since.is_some_and(|since| now.since(since) >= GIVE_UP);
        if gone { SplitState::Nothing } else { SplitState::Share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: fn(u64) -> Instant = |ms| Instant::new(ms * 1_000_000);

    fn set(members: &[u32]) -> BTreeSet<u32> {
        members.iter().copied().collect()
    }

    fn whole(members: &[u32]) -> Split<u32> {
        let mut split = Split::new(AT(0));
        split.look(&set(members), AT(0));
        assert_eq!(split.look(&set(members), AT(2_000)), SplitState::Whole);
        split
    }

    #[test]
    fn the_greater_part_takes_all_after_the_smaller_has_given_up() {
        let (mut great, mut small) = (whole(&[1, 2, 3]), whole(&[1, 2, 3]));
        let see = |split: &mut Split<u32>, members: &[u32], at| split.look(&set(members), AT(at));
        assert_eq!([see(&mut great, &[1, 2], 3_000), see(&mut small, &[3], 3_000)], [SplitState::Share; 2]);
        assert_eq!(see(&mut small, &[3], 8_999), SplitState::Share);
        assert_eq!(
            [see(&mut great, &[1, 2], 9_000), see(&mut small, &[3], 9_000)],
            [SplitState::Share, SplitState::Nothing]
        );
        assert_eq!(see(&mut great, &[1, 2], 13_000), SplitState::Whole);
        assert_eq!(see(&mut small, &[3], 1_000_000), SplitState::Nothing);
    }

    #[test]
    fn halves_keep_what_they_have() {
        let mut half = whole(&[1, 2]);
        half.look(&set(&[1]), AT(3_000));
        assert_eq!(half.look(&set(&[1]), AT(1_000_000)), SplitState::Share);
        half.look(&set(&[1, 2]), AT(1_000_001));
        assert_eq!(half.look(&set(&[1, 2]), AT(1_002_001)), SplitState::Whole);
    }

    #[test]
    fn who_left_and_said_so_is_not_missed() {
        let mut split = whole(&[1, 2]);
        split.left(&2);
        split.look(&set(&[1]), AT(3_000));
        assert_eq!(split.look(&set(&[1]), AT(5_000)), SplitState::Whole);
    }

    #[test]
    fn a_majority_waits_for_as_long_as_its_members_have_been_without_the_others() {
        let mut great = whole(&[1, 2, 3]);
        great.look(&set(&[1, 2]), AT(3_000));
        great.member_changed(AT(8_000)); // 2 was with 3 until then
        assert_eq!(great.look(&set(&[1, 2]), AT(17_999)), SplitState::Share);
        assert_eq!(great.look(&set(&[1, 2]), AT(18_000)), SplitState::Whole);
    }

    #[test]
    fn who_comes_to_a_small_part_does_not_make_it_great() {
        let mut small = whole(&[1, 2, 3]);
        small.look(&set(&[3, 4, 5, 6]), AT(3_000));
        assert_eq!(small.look(&set(&[3, 4, 5, 6]), AT(60_000)), SplitState::Nothing);
    }

    proptest! {
        /// Hosts see who is in their part, up to 2 s after it changed.
        #[test]
        fn never_do_two_parts_divide_everything(
            steps in proptest::collection::vec((proptest::collection::vec(0u8..3, 6), 1u64..40), 1..12),
            delays in proptest::collection::vec(0u64..2_000, 6),
        ) {
            let all: Vec<u32> = (0..6).collect();
            let mut splits: Vec<_> = all.iter().map(|_| whole(&all)).collect();
            let mut at = 10_000;
            let mut before = vec![0u8; 6];
            for (parts, seconds) in steps {
                for tick in 0..seconds * 4 {
                    let standing: Vec<_> = (0..6).map(|host| {
                        let parts = if tick * 250 < delays[host] { &before } else { &parts };
                        let part: Vec<u32> = all.iter().copied().filter(|other| parts[*other as usize] == parts[host]).collect();
                        splits[host].look(&set(&part), AT(at + tick * 250))
                    }).collect();
                    // While hosts of one part have not seen it yet they may stand otherwise.
                    if tick * 250 >= 2_000 {
                        let whole = (0..6).filter(|host| standing[*host] == SplitState::Whole).map(|host| parts[host]);
                        let whole: BTreeSet<u8> = whole.collect();
                        prop_assert!(whole.len() <= 1, "{parts:?} {standing:?}");
                        let given_up = |host: usize| standing[host] == SplitState::Nothing || parts[host] == *whole.first().unwrap();
                        prop_assert!(whole.is_empty() || (0..6).all(given_up), "{parts:?} {standing:?}");
                    }
                }
                at += seconds * 1_000;
                before = parts;
            }
        }
    }
}
