//! One frame of slots.

use qfabric_types::{DispatchOrder, DispatchRules};

use super::{GroupId, Slotted};

/// A slot that no group has.
const FREE: u16 = u16::MAX;

/// The slots of one frame, which repeats. Each slot belongs to one group or is free (004 §3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    groups: Vec<Slotted>,
    /// Index in `groups`, or [`FREE`].
    slots: Vec<u16>,
}

impl Table {
    /// The table of admitted groups: simulates one frame in whole slots. All groups begin at slot 0.
    pub(super) fn build(groups: Vec<Slotted>, frame: u32, order: DispatchOrder) -> Table {
        let mut left = vec![0; groups.len()];
        let slots = (0..frame).map(|slot| next(&groups, &mut left, slot, order)).collect();
        debug_assert!(left.iter().all(|left| *left == 0), "an admitted group lacks slots");
        Table { groups, slots }
    }

    /// Length of the frame in slots; 0 for the table of a CPU without groups.
    pub fn frame(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The group that has a slot; `None`: the slot is free.
    pub fn owner(&self, slot: u32) -> Option<GroupId> {
        let at = *self.slots.get(slot as usize)?;
        self.groups.get(usize::from(at)).map(|group| group.group)
    }

    pub fn groups(&self) -> &[Slotted] {
        &self.groups
    }

    /// Number of free slots in a frame.
    pub fn free(&self) -> u32 {
        self.slots.iter().filter(|at| **at == FREE).count() as u32
    }

    /// Removes a group. Its slots are free at once; the slots of the other groups do not change.
    pub fn withdraw(&mut self, group: GroupId) {
        let Some(gone) = self.groups.iter().position(|g| g.group == group) else { return };
        self.groups.remove(gone);
        for at in &mut self.slots {
            match usize::from(*at) {
                old if *at == FREE || old < gone => {}
                old if old == gone => *at = FREE,
                _ => *at -= 1,
            }
        }
    }

    /// Lends free slots from `from` to the end of the frame to a group whose own table is not in force yet: the first
    /// ones of each of its periods, counted from `from`. The free minimum stays free.
    pub(super) fn lend(&mut self, group: Slotted, from: u32, rules: &DispatchRules) {
        let kept = (u64::from(self.frame()) * u64::from(rules.free.ppm())).div_ceil(1_000_000) as u32;
        let (mut spare, index) = (self.free().saturating_sub(kept), self.groups.len() as u16);
        self.groups.push(group);
        let mut left = 0;
        for slot in from..self.frame() {
            if (slot - from).is_multiple_of(group.period) {
                left = group.service;
            }
            let at = &mut self.slots[slot as usize];
            if *at == FREE && left > 0 && spare > 0 {
                *at = index;
                (left, spare) = (left - 1, spare - 1);
            }
        }
    }
}

/// Gives slot number `slot` to the first group in `order` that has service left in its period.
fn next(groups: &[Slotted], left: &mut [u32], slot: u32, order: DispatchOrder) -> u16 {
    for (group, left) in groups.iter().zip(&mut *left) {
        if slot.is_multiple_of(group.period) {
            debug_assert!(*left == 0, "an admitted group missed its period");
            *left = group.service;
        }
    }
    let key = |group: &Slotted| match order {
        DispatchOrder::RateMonotonic => group.period,
        DispatchOrder::EarliestDeadline => (slot / group.period + 1) * group.period,
    };
    let first = (0..groups.len()).filter(|&at| left[at] > 0).min_by_key(|&at| (key(&groups[at]), at));
    first.map_or(FREE, |at| {
        left[at] -= 1;
        at as u16
    })
}

#[cfg(test)]
mod tests {
    use qfabric_types::{Nanos, Share};

    use super::*;
    use crate::dispatch::{Demand, admit};

    /// 004, Table 2: pid 721 has 10 ms of every 20 ms; the group of 773, 774 and 775 has 10 ms of every 40 ms.
    fn table_2(order: DispatchOrder) -> Table {
        let (ms, free) = (Nanos::from_millis, Share::from_ppm(250_000));
        let demands = [
            Demand { group: GroupId(721), service: ms(10), period: ms(20) },
            Demand { group: GroupId(773), service: ms(10), period: ms(40) },
        ];
        admit(&DispatchRules { slot: ms(10), free, order }, &demands).unwrap()
    }

    #[test]
    fn table_2_of_the_paper() {
        for order in [DispatchOrder::RateMonotonic, DispatchOrder::EarliestDeadline] {
            let table = table_2(order);
            let slots: Vec<_> = (0..table.frame()).map(|slot| table.owner(slot).map(|group| group.0)).collect();
            assert_eq!(slots, [Some(721), Some(773), Some(721), None], "{order}");
            assert_eq!(table.free(), 1, "a quarter of the CPU is for time-sharing work");
        }
    }

    #[test]
    fn a_withdrawn_group_leaves_the_slots_of_the_others() {
        let mut table = table_2(DispatchOrder::RateMonotonic);
        table.withdraw(GroupId(721));
        let owners: Vec<_> = (0..4).map(|slot| table.owner(slot).map(|group| group.0)).collect();
        assert_eq!(owners, [None, Some(773), None, None]);
        table.withdraw(GroupId(9));
        assert_eq!(table.free(), 3);
    }

    #[test]
    fn lent_slots_leave_the_free_minimum_and_the_slots_of_others() {
        let mut table = table_2(DispatchOrder::RateMonotonic);
        table.withdraw(GroupId(721));
        let rules = DispatchRules { free: Share::from_ppm(250_000), ..DispatchRules::default() };
        table.lend(Slotted { group: GroupId(5), service: 1, period: 1 }, 0, &rules);
        let owners: Vec<_> = (0..4).map(|slot| table.owner(slot).map(|group| group.0)).collect();
        assert_eq!(owners, [Some(5), Some(773), Some(5), None]);
    }
}
