//! Admission and sharing of the processor: records the share that each application was promised and holds.
//!
//! A [`Supervisor`] keeps the accounts of one host. Its verbs are [`Supervisor::admit`], [`Supervisor::want`],
//! [`Supervisor::settle`] and [`Supervisor::release`]. The answers are [`Supervisor::grants`], or a [`Refusal`]
//! that names the requested share, the free share and the holders of the rest. A [`LinkBroker`] keeps the accounts of
//! one direction of a link, with the same verbs. A [`Holds`] keeps the accounts of joint contracts over all resources
//! of a host. No code in this crate reads a clock.
//! Source: AQuoSA 2009, §3.2, §4.4, §5.3.2.
//!
//! A [`MemoryBroker`] keeps the accounts of resident memory with the same verbs (QualMan §4). A [`Pool`] divides one
//! reserve into segments and allocations.
#![forbid(unsafe_code)]

mod deadlines;
mod filling;
mod fit;
mod holds;
mod limits;
mod link_refusal;
mod memory;
mod memory_refusal;
mod network;
mod partition;
mod pool;
mod refusal;
mod supervisor;
mod utility;

pub use deadlines::Deadlines;
pub use fit::as_much_as_fits;
pub use holds::{
    CountedBrokers, CountedHolder, HeldContract, HoldBound, HoldError, HoldHolder, HoldRefusal, HoldRequest, Holds,
    JointBrokers, Lack, NotHeld, UserCaps,
};
pub use limits::{LEVELS, Limits};
pub use link_refusal::{LinkBound, LinkHolder, LinkRefusal, LinkUse};
pub use memory::{MemoryBroker, MemoryLimits, MemoryRequester};
pub use memory_refusal::{MemoryBound, MemoryHolder, MemoryRefusal, ReserveBelowPromises};
pub use network::{LinkBroker, LinkDemand, LinkLimits, LinkOffer};
pub use partition::{Partition, PartitionRefusal, Promise};
pub use pool::{Member, Pool, PoolRefusal};
pub use refusal::{Bound, Refusal};
pub use supervisor::Supervisor;
pub use utility::{Steps, UtilityStep};
