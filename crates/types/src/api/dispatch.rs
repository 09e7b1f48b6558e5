//! The dispatch tables in force, and the cost of the threads that dispatch.

use serde::{Deserialize, Serialize};

use crate::{Nanos, Share};

/// The dispatch table of one CPU, and its dispatching thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchTableStatus {
    /// The number of the CPU.
    pub cpu: u32,
    /// Number of groups on the CPU.
    pub groups: u32,
    /// Length of a slot.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Number of slots after which the table repeats: the least common multiple of the periods.
    pub frame: u32,
    /// Slots of a frame that no group has.
    pub free: u32,
    /// Dispatches so far: boundaries at which a priority could change.
    pub dispatches: u64,
    /// Dispatches after which the threads of the next slot could run later than 50 µs after the boundary.
    pub late: u64,
    /// The times from each boundary until these threads could run: their sum, and the longest one.
    #[serde(rename = "late_total_ns")]
    pub late_total: Nanos,
    #[serde(rename = "late_most_ns")]
    pub late_most: Nanos,
    /// CPU time of the dispatching thread since the first group came.
    #[serde(rename = "used_ns")]
    pub used: Nanos,
    /// The same as a share of the CPU.
    pub cost: Share,
}
