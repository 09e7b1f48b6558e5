//! Who was promised what: admission and sharing of the processor.
//!
//! A [`Supervisor`] keeps the books of one host. Verbs: [`Supervisor::admit`], [`Supervisor::want`],
//! [`Supervisor::settle`], [`Supervisor::release`]; the answers are [`Supervisor::grants`], or a [`Refusal`]
//! that names what was asked, what is free and who holds the rest. Nothing here reads a clock.
//! Source: AQuoSA 2009, §3.2, §4.4, §5.3.2.
#![forbid(unsafe_code)]

mod filling;
mod limits;
mod partition;
mod refusal;
mod supervisor;

pub use limits::{LEVELS, Limits};
pub use partition::{Partition, PartitionRefusal, Promise};
pub use refusal::{Bound, Refusal};
pub use supervisor::Supervisor;
