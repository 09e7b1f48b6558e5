//! The mechanism `ext`: the whole machine under Q-Fabric's own scheduler in the kernel (sched_ext).
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | what is asked of a server, what it did |
//! | `error.rs` | what can go wrong, and the way out |
//! | `support.rs` | whether this kernel has what it takes |
//! | `control.rs` | budgets chosen in the kernel |
//! | `kernel.rs` | the kernel's side: loaded, its commands, its memory |
//! | `refusal.rs` | what cannot be, in sentences |
//! | `scheduler.rs` | [`Ext`]: loading, servers, threads, events, statistics |
//! | `mechanism.rs` | [`ExtMechanism`]: settings carried out on it |
//!
//! *Servers* hold so much service in every period on one CPU, for any number of threads; the order among them is
//! DWCS's (the thesis, §2.4.1), events favour their sinks (§3.3.1). Threads without a server share the rest and at
//! least the part that [`ExtConfig`] guarantees them, under a fair policy. What a command changes is in force when
//! it returns. When the owner ends, in whatever way, all threads are back under the kernel's default scheduler.

mod control;
mod error;
mod kernel;
mod mechanism;
mod refusal;
mod scheduler;
mod server;
mod support;

pub use error::ExtError;
pub use mechanism::ExtMechanism;
pub use scheduler::{Ext, ExtConfig};
pub use server::{Change, CpuStatistics, ServerId, ServerSpec, ServerStatistics};
