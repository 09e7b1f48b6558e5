//! The mechanism `dispatcher`: QualMan's CPU server (004 §3), in user space, with fixed priorities.
//!
//! | file | contents |
//! |---|---|
//! | `mechanism.rs` | [`DispatcherMechanism`]: applies settings |
//! | `mechanism/groups.rs` | groups and their CPUs |
//! | `mechanism/threads.rs` | threads that join and leave groups |
//! | `cpu.rs` | the table of one CPU: changes and readings by other threads |
//! | `cpu/dispatching.rs` | the thread of one CPU, which changes priorities at slot boundaries |
//! | `bell.rs` | what this thread sleeps on |
//! | `lead.rs` | how long before a boundary this thread wakes up |
//! | `latency.rs` | the times of each dispatch, and the CPU time of the thread |
//! | `member.rs` | one thread of a group: its attributes for each standing, its CPU time |
//! | `affinity.rs` | the CPUs on which a thread may run |
//! | `idle.rs` | short sleeps of idle CPUs while a table has groups, on request |
//! | `guardian.rs` | a process that puts all threads back if this one dies or a dispatcher thread hangs |
//! | `support.rs` | checks if this process may use the mechanism |
//!
//! Priorities, where the paper has those of Solaris (Table 3):
//!
//! | threads | policy |
//! |---|---|
//! | the thread that dispatches | SCHED_FIFO 48 |
//! | members of the group whose slot it is | SCHED_FIFO 47 |
//! | time-sharing work, and groups that overran | their own policy |
//! | members of waiting groups | SCHED_IDLE |
//!
//! Both real-time priorities are below 50, the priority of threaded interrupts, so that a running group does not stop
//! disks and networks. The reservations of SCHED_DEADLINE run before all of them.
//!
//! A member is bound to the CPU of its group while it is reserved. Its former policy and CPUs return when it leaves.

mod affinity;
mod bell;
mod cpu;
mod guardian;
mod idle;
mod latency;
mod lead;
mod mechanism;
mod member;
mod support;

pub use latency::{DispatchCost, DispatchTimes};
pub use mechanism::DispatcherMechanism;
pub(crate) use member::{is_changed, put_back};
pub use support::supported;

/// Priority of the thread that dispatches.
pub const DISPATCHING: u32 = 48;
/// Priority of the members of the running group.
pub const RUNNING: u32 = 47;
