//! Decides whether a group is whole or split, and which resources each part may divide.
//!
//! ```text
//!            a member vanished                             for LEASE: the resource of the vanished members is free
//!   Whole ─────────────────────> Share ── more than half ────────────────────────────────────────> Whole
//!     ^   divides everything       │ divides the resources of its own members
//!     │                            ├── half: stays so
//!     │                            └── less than half, for GIVE_UP ──> Nothing
//!     └── all are present again, and stay for SETTLE
//! ```
//!
//! A host cannot distinguish a dead host from one behind a cut cable. So a part of a group continues with the
//! resources of its own members, and the parts together never use more than exists. After [`LEASE`], the part with
//! more than half of the members takes over the rest. By then the smaller parts have given up their resources:
//! [`GIVE_UP`] is shorter by more than the largest difference between the times at which two sides notice the cut.
//! «Half» refers to the members that were last present together; this set changes only while no member is missing,
//! so that two parts can never both have more than half. A member that died for good counts as missing until it
//! returns or the group is created again. Source: majority voting (Thomas 1979). Assumptions: a member that sees
//! one host of a part sees all of it; a host that restarts behind a cut has lost its membership.

use std::collections::BTreeSet;

use qfabric_types::{Instant, Nanos};

/// A part that has had more than half of the group for this long may divide the resources of the other members.
pub const LEASE: Nanos = Nanos::from_millis(10_000);

/// A part that has had less than half of the group for this long may divide nothing.
pub const GIVE_UP: Nanos = Nanos::from_millis(6_000);

/// The set of present members must be unchanged for this long before more than their own resources are divided: by
/// then every member has announced its resources.
pub const SETTLE: Nanos = Nanos::from_millis(2_000);

/// The resources that a part of a group may divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitState {
    /// All resources of the group.
    Whole,
    /// The resources of its own members.
    Share,
    Nothing,
}

/// The state of the group as one member sees it.
#[derive(Clone, Debug)]
pub struct Split<T> {
    /// The members that were last present together.
    agreed: BTreeSet<T>,
    seen: BTreeSet<T>,
    /// The time since which `seen` is unchanged.
    same_since: Instant,
    /// The time since which less than half of the agreed members are seen.
    few_since: Option<Instant>,
    state: SplitState,
}

impl<T: Ord + Clone> Split<T> {
    /// A member that sees no others yet.
    pub fn new(now: Instant) -> Self {
        let (agreed, seen) = (BTreeSet::new(), BTreeSet::new());
        Split { agreed, seen, same_since: now, few_since: None, state: SplitState::Share }
    }

    /// A member left and announced it: it does not count as missing. Ignored while another agreed member is
    /// missing, because that member has not received the announcement.
    pub fn left(&mut self, one: &T) {
        if self.agreed.iter().all(|other| other == one || self.seen.contains(other)) {
            self.agreed.remove(one);
        }
    }

    /// Another member of this part reports the time at which its set of visible hosts last changed. The times of
    /// this part count from the latest such change: until then that member may have belonged to a smaller part,
    /// which gives up later.
    pub fn member_changed(&mut self, at: Instant) {
        self.same_since = self.same_since.max(at);
    }

    /// The time for which the set of visible hosts has been unchanged.
    pub fn same_for(&self, now: Instant) -> Nanos {
        now.since(self.same_since)
    }

    /// Updates the set of visible members, and returns the resources that may be divided.
    pub fn look(&mut self, seen: &BTreeSet<T>, now: Instant) -> SplitState {
        if *seen != self.seen {
            (self.seen, self.same_since) = (seen.clone(), now);
        }
        let there = self.agreed.intersection(seen).count();
        let (all, same_for) = (self.agreed.len(), now.since(self.same_since));
        self.few_since = if 2 * there < all { self.few_since.or(Some(now)) } else { None };
        let is_complete = there == all && same_for >= SETTLE;
        if is_complete {
            self.agreed.clone_from(seen);
        }
        let is_majority = 2 * there > all && there < all && same_for >= LEASE;
        let is_given_up = self.few_since.is_some_and(|since| now.since(since) >= GIVE_UP);
        self.state = if is_complete || is_majority {
            SplitState::Whole
        } else if is_given_up {
            SplitState::Nothing
        } else {
            SplitState::Share
        };
        self.state
    }

    /// The answer of the last [`Split::look`]; before the first, [`SplitState::Share`].
    pub fn state(&self) -> SplitState {
        self.state
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
        assert_eq!(split.state(), SplitState::Share);
        split.look(&set(members), AT(0));
        assert_eq!(split.look(&set(members), AT(2_000)), SplitState::Whole);
        assert_eq!(split.state(), SplitState::Whole);
        split
    }

    #[test]
    fn the_larger_part_takes_all_after_the_smaller_has_given_up() {
        let (mut large, mut small) = (whole(&[1, 2, 3]), whole(&[1, 2, 3]));
        let see = |split: &mut Split<u32>, members: &[u32], at| split.look(&set(members), AT(at));
        assert_eq!([see(&mut large, &[1, 2], 3_000), see(&mut small, &[3], 3_000)], [SplitState::Share; 2]);
        assert_eq!(see(&mut small, &[3], 8_999), SplitState::Share);
        assert_eq!(
            [see(&mut large, &[1, 2], 9_000), see(&mut small, &[3], 9_000)],
            [SplitState::Share, SplitState::Nothing]
        );
        assert_eq!(see(&mut large, &[1, 2], 13_000), SplitState::Whole);
        assert_eq!(see(&mut small, &[3], 1_000_000), SplitState::Nothing);
    }

    #[test]
    fn halves_keep_their_own_resources() {
        let mut half = whole(&[1, 2]);
        half.look(&set(&[1]), AT(3_000));
        assert_eq!(half.look(&set(&[1]), AT(1_000_000)), SplitState::Share);
        half.look(&set(&[1, 2]), AT(1_000_001));
        assert_eq!(half.look(&set(&[1, 2]), AT(1_002_001)), SplitState::Whole);
    }

    #[test]
    fn a_member_that_announced_its_leaving_is_not_missing() {
        let mut split = whole(&[1, 2]);
        split.left(&2);
        split.look(&set(&[1]), AT(3_000));
        assert_eq!(split.look(&set(&[1]), AT(5_000)), SplitState::Whole);
    }

    #[test]
    fn a_majority_waits_for_as_long_as_its_members_have_been_without_the_others() {
        let mut large = whole(&[1, 2, 3]);
        large.look(&set(&[1, 2]), AT(3_000));
        large.member_changed(AT(8_000)); // 2 was with 3 until then
        assert_eq!(large.look(&set(&[1, 2]), AT(17_999)), SplitState::Share);
        assert_eq!(large.look(&set(&[1, 2]), AT(18_000)), SplitState::Whole);
    }

    #[test]
    fn a_new_member_does_not_make_a_small_part_a_majority() {
        let mut small = whole(&[1, 2, 3]);
        small.look(&set(&[3, 4, 5, 6]), AT(3_000));
        assert_eq!(small.look(&set(&[3, 4, 5, 6]), AT(60_000)), SplitState::Nothing);
    }

    proptest! {
        /// Hosts notice the members of their part up to 2 s after a change.
        #[test]
        fn two_parts_never_both_divide_everything(
            steps in proptest::collection::vec((proptest::collection::vec(0u8..3, 6), 1u64..40), 1..12),
            delays in proptest::collection::vec(0u64..2_000, 6),
        ) {
            let all: Vec<u32> = (0..6).collect();
            let mut splits: Vec<_> = all.iter().map(|_| whole(&all)).collect();
            let mut at = 10_000;
            let mut before = vec![0u8; 6];
            for (parts, seconds) in steps {
                for tick in 0..seconds * 4 {
                    let states: Vec<_> = (0..6).map(|host| {
                        let parts = if tick * 250 < delays[host] { &before } else { &parts };
                        let part: Vec<u32> = all.iter().copied().filter(|other| parts[*other as usize] == parts[host]).collect();
                        splits[host].look(&set(&part), AT(at + tick * 250))
                    }).collect();
                    // Before 2 s, hosts of one part may still disagree about their members.
                    if tick * 250 >= 2_000 {
                        let whole = (0..6).filter(|host| states[*host] == SplitState::Whole).map(|host| parts[host]);
                        let whole: BTreeSet<u8> = whole.collect();
                        prop_assert!(whole.len() <= 1, "{parts:?} {states:?}");
                        let given_up = |host: usize| states[host] == SplitState::Nothing || parts[host] == *whole.first().unwrap();
                        prop_assert!(whole.is_empty() || (0..6).all(given_up), "{parts:?} {states:?}");
                    }
                }
                at += seconds * 1_000;
                before = parts;
            }
        }
    }
}
