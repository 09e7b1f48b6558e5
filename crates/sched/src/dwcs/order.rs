//! The order of tasks: Table 1, Table 5 and two other policies, each as one number; the lowest number comes first.
//!
//! The number consists of d in 64 bits, the probability of network activity in 8, the window's urgency in 34 and
//! the rank among equals in 22. So the frequent comparison of two tasks is a comparison of two numbers, without
//! division or branch.

use super::task::Slot;
use super::tournament::Key;
use super::window::URGENCY_BITS;

/// Bits of the rank; they suffice for four million tasks.
const RANK_BITS: u32 = 22;
/// The number of tasks in a machine must be below this.
pub(crate) const MAX_TASKS: usize = (1 << RANK_BITS) - 1;

/// The rule that decides which task comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Table 1; with [`Network`], Table 5.
    #[default]
    Dwcs,
    /// Earliest deadline first, without regard to windows.
    Edf,
    /// Rate monotonic: shortest period first.
    Rm,
}

/// The state of the network device, for Table 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// No information: Table 1 applies.
    #[default]
    Unknown,
    /// No packet waits for the device: among equal deadlines, the lowest probability of network activity comes
    /// first.
    Idle,
    /// Packets wait: the highest probability comes first, so that more packets join the burst.
    Busy,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    pub policy: Policy,
    pub network: Network,
}

impl Order {
    /// The place of `slot` among the tasks that may run.
    #[inline]
    pub(crate) fn key(self, slot: &Slot) -> Key {
        let (first, second) = match self.policy {
            Policy::Dwcs => (slot.deadline, (self.network_key(slot) << URGENCY_BITS) | slot.progress.urgency()),
            Policy::Edf => (slot.deadline, 0),
            Policy::Rm => (slot.task.period, 0),
        };
        Key { time: first, rest: (second << RANK_BITS) | u64::from(slot.rank) }
    }

    fn network_key(self, slot: &Slot) -> u64 {
        match self.network {
            Network::Unknown => 0,
            Network::Idle => slot.task.network.into(),
            Network::Busy => u64::from(100 - slot.task.network),
        }
    }
}

/// The place of `slot` among tasks that are ordered by a time.
#[inline]
pub(super) fn timed(time: u64, slot: &Slot) -> Key {
    Key { time, rest: slot.rank.into() }
}

/// The rank that is stored in a key.
#[inline]
pub(super) fn rank_of(key: Key) -> usize {
    key.rest as usize & MAX_TASKS
}
