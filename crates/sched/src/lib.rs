//! Scheduling theory as values: constant bandwidth servers under earliest deadline first.
//!
//! [`dwcs`] is the other scheduler: windows of losses, CPU slices and packets, events.
//!
//! [`Server`] is one reservation: its budget, its deadline, and the four moments at which they change.
//! [`Machine`] runs many of them on some CPUs, with best-effort work beside them. [`EventQueue`] orders events
//! (not tasks) by their deadlines. Time comes in as an
//! argument; nothing here reads a clock. Times in nanoseconds.
//! Source: AQuoSA 2009, §2.2 and §3; Linux `kernel/sched/deadline.c` for what the papers leave open.
#![forbid(unsafe_code)]

mod admission;
pub mod dwcs;
mod event_queue;
mod machine;
mod server;
mod steal;

pub use admission::{OverCommitted, admit};
pub use event_queue::{EventQueue, Full};
pub use machine::{Finished, Machine, MachineConfig, TaskId, WEIGHT};
pub use server::{AHEAD_MAX, Server, State};
pub use steal::Steal;
