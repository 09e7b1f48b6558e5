//! Memory that stays resident: reserves of applications, and the messages of `memory.sock`.
//!
//! An application under contract has a reserve if its contract names `memory_bytes`. A program that links the library
//! makes reserves itself, through a connection to `memory.sock` (SOCK_SEQPACKET): each message is one
//! [`MemoryRequest`] in JSON, and the daemon answers each with one [`MemoryAnswer`]. With [`MemoryAnswer::Placed`]
//! comes one descriptor: the sealed memfd of the segment. The connection is the lease: when it closes, the daemon frees
//! the allocations made through it, and every reserve that no other connection holds. Source: QualMan §4, §6.4.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Problem;
use super::contracts::JointId;
use crate::{Bytes, Owner};

/// The number of a reserve: QualMan's `rsv_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct ReserveId(pub u64);

impl fmt::Display for ReserveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an allocation; unique within its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllocationId(pub u64);

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The way in which the pages of a reserve are kept resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MemoryProtection {
    /// A control group of the program, with `memory.min` and without swap.
    Group,
    /// None: the promise is only counted, and `missing` gives the reason.
    None,
}

/// The reserve of an application under contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryStatus {
    pub reserve: ReserveId,
    /// The promised amount, in whole pages.
    #[serde(rename = "promised_bytes")]
    pub promised: Bytes,
    /// The resident memory of the process now.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// The part of the process that is swapped out now.
    #[serde(default, rename = "swapped_bytes")]
    pub swapped: Bytes,
    /// The part that the process has locked itself. Nobody can lock memory of another process.
    #[serde(default, rename = "locked_bytes")]
    pub locked: Bytes,
    /// Page faults of the process that waited for a device, since its start.
    #[serde(default)]
    pub major_faults: u64,
    /// Memory that the service has fetched before the process needed it.
    #[serde(default, rename = "prefaulted_bytes")]
    pub prefaulted: Bytes,
    /// Pressure on the control group; absent as long as there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<MemoryPressure>,
    /// The way in which the pages are kept resident.
    pub protection: MemoryProtection,
    /// What this host lacks to keep the promise, and the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Memory pressure in a protected group: its programs waited for memory, because they use more than their promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryPressure {
    /// Number of notices since the promise was made. The kernel gives one if programs of the group waited for 100 ms
    /// within 2 s.
    pub notices: u64,
    /// The working set of the group at the last notice: charged memory without page cache that was not used lately.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// A larger promise that the host can keep now: ask for it with a changed contract. Absent: the host has no more,
    /// or the promise is large enough.
    #[serde(default, rename = "offered_bytes", skip_serializing_if = "Option::is_none")]
    pub offered: Option<Bytes>,
}

impl MemoryPressure {
    /// The promise that leaves room for growth: a quarter more than the use.
    pub fn sufficient(used: Bytes) -> Bytes {
        used + Bytes::new(used.get() / 4)
    }
}

/// A reserve that a program made through `memory.sock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolStatus {
    pub reserve: ReserveId,
    /// The process that made it.
    pub pid: i32,
    pub owner: Owner,
    /// The promised amount, in whole pages.
    #[serde(rename = "promised_bytes")]
    pub promised: Bytes,
    /// The amount in locked segments and locked program text.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// Number of connections that hold it.
    pub members: usize,
}

/// The memory that this host promises.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostMemory {
    /// Mem_glob_resv: the largest amount that may be promised in total.
    #[serde(rename = "global_reserve_bytes")]
    pub global_reserve: Bytes,
    /// The sum of all promises.
    #[serde(rename = "promised_bytes")]
    pub promised: Bytes,
    /// The part of the promises that is in use; of each reserve at most its promise.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// Number of notices of memory pressure in protected groups, since the start of the service.
    #[serde(default)]
    pub pressure_notices: u64,
    /// Memory of programs that the service has fetched before they needed it, since the start of the service.
    #[serde(default, rename = "prefaulted_bytes")]
    pub prefaulted: Bytes,
    /// Reserves of programs that link the library.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
}

/// A request through `memory.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryRequest {
    /// Makes a reserve of this number of bytes: QualMan's `Mem::reserve`.
    Reserve(Bytes),
    /// Makes a reserve like `Reserve`, in huge pages where the host has free ones.
    ReserveHuge(Bytes),
    /// Makes a reserve like `Reserve`, from the memory of a joint contract. The part beyond the contract comes from the free
    /// memory.
    ReserveFrom { contract: JointId, bytes: Bytes },
    /// Makes a reserve like `ReserveFrom`, in huge pages where the host has free ones.
    ReserveHugeFrom { contract: JointId, bytes: Bytes },
    /// Takes part in a reserve that another process of the same user made.
    Join(ReserveId),
    /// Changes the amount of a reserve.
    Resize { reserve: ReserveId, bytes: Bytes },
    /// Locks the program text of the calling process: its executable pages of files.
    LockText(ReserveId),
    /// Allocates: QualMan's `Mem::alloc`.
    Allocate { reserve: ReserveId, bytes: Bytes },
    /// Asks for an allocation that a member of the same reserve made.
    Open { reserve: ReserveId, allocation: AllocationId },
    /// Frees an allocation of this connection.
    Free { reserve: ReserveId, allocation: AllocationId },
    /// Leaves a reserve; the last member ends it.
    FreeReserve(ReserveId),
}

impl MemoryRequest {
    /// Longest message of `memory.sock` in bytes, in both directions.
    pub const MAX_BYTES: usize = 8 << 10;
}

/// The answer to a [`MemoryRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryAnswer {
    /// The reserve was made, joined or changed.
    Reserved {
        reserve: ReserveId,
        bytes: Bytes,
    },
    /// The reserve was made in whole huge pages. `missing` is what the host lacks to have all of it in huge pages now,
    /// and the next step.
    HugeReserved {
        reserve: ReserveId,
        bytes: Bytes,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<String>,
    },
    /// The place of an allocation; its segment comes as a descriptor.
    Placed(AllocationPlace),
    /// This amount of program text is locked and counts against the reserve. Parts on file systems that may not answer
    /// (FUSE, network) are skipped.
    TextLocked {
        bytes: Bytes,
        skipped: Bytes,
    },
    Done,
    Refused(Box<Problem>),
}

/// The place of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationPlace {
    pub allocation: AllocationId,
    /// The number of the segment, unique within the reserve; several small allocations share one.
    pub segment: u64,
    /// Size of the segment, in whole pages.
    pub segment_bytes: u64,
    /// First byte of the allocation in the segment.
    pub offset: u64,
    /// Length of the allocation as it was asked for.
    pub bytes: u64,
    #[serde(default)]
    pub pages: PageKind,
}

/// The kind of the pages of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageKind {
    /// Pages of the smallest size.
    #[default]
    Base,
    /// Pages of the smallest size that the kernel may combine to huge ones (`MADV_HUGEPAGE`).
    Advised,
    /// Huge pages of the host (`MFD_HUGETLB`), 2 MiB each on x86-64.
    Huge,
}
