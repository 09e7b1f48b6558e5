//! Models of scheduling without a clock: constant bandwidth servers under earliest deadline first, and DWCS.
//!
//! [`Server`] is one reservation: its budget, its deadline, and the four cases in which they change. [`Machine`]
//! runs many servers on some CPUs, with best-effort work beside them. [`dwcs`] is the other scheduler: windows of
//! losses, CPU slices, packets and events. [`dispatch`] is the third one: slots of a repeated table. [`EventQueue`]
//! orders events (not tasks) by their deadlines, and [`HeldQueue`] by the moments at which they are delivered. Time is an
//! argument of every call, in nanoseconds.
//!
//! Source: AQuoSA 2009, §2.2 and §3; Linux `kernel/sched/deadline.c` for cases that the papers leave open.
#![forbid(unsafe_code)]

mod admission;
pub mod dispatch;
pub mod dwcs;
mod event_queue;
mod fair_queue;
mod held_queue;
mod machine;
mod server;
mod steal;

pub use admission::{OverCommitted, admit};
pub use event_queue::{EventQueue, Full};
pub use fair_queue::FairQueue;
pub use held_queue::HeldQueue;
pub use machine::{Finished, Machine, MachineConfig, TaskId, WEIGHT};
pub use server::{AHEAD_MAX, Server, State};
pub use steal::Steal;
