//! Who comes first: Table 1, Table 5 and two rival policies, each as one number, lower first.
//!
//! The number is d in 64 bits, the probability of network activity in 8, the window's urgency in 34 and the rank
//! among equals in 22. Comparing two tasks is comparing two numbers: no division and no branch where it is frequent.

use super::task::Slot;
use super::tournament::Key;
use super::window::URGENCY_BITS;

/// Bits of the rank: four million tasks.
const RANK_BITS: u32 = 22;
/// How many tasks a machine can tell apart.
pub const MAX_TASKS: usize = (1 << RANK_BITS) - 1;

/// Who comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Table 1; with [`Network`], Table 5.
    #[default]
    Dwcs,
    /// Earliest deadline, whatever the windows say.
    Edf,
    /// Shortest period.
    Rm,
}

/// What Table 5 has to know of the network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// Nothing: Table 1.
    #[default]
    Unknown,
    /// Nothing waits for it: among equal deadlines the lowest probability of network activity first.
    Idle,
    /// Packets wait: the highest probability first, so that more join the burst.
    Busy,
}

/// The order of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    pub policy: Policy,
    pub network: Network,
}

impl Order {
    /// Place of `slot` among those that may run.
    #[inline]
    pub fn key(self, slot: &Slot) -> Key {
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

/// Place of `slot` among those that something happens to at `time`.
#[inline]
pub(super) fn timed(time: u64, slot: &Slot) -> Key {
    Key { time, rest: slot.rank.into() }
}

/// Whose key it is.
#[inline]
pub(super) fn rank_of(key: Key) -> usize {
    key.rest as usize & MAX_TASKS
}
