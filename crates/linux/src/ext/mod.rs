//! The mechanism `ext`: Q-Fabric's own scheduler in the kernel (sched_ext) schedules the whole machine.
//!
//! | file | contents |
//! |---|---|
//! | `server.rs` | parameters and statistics of a server |
//! | `error.rs` | errors, and the next step for each |
//! | `support.rs` | checks if this kernel can load the scheduler |
//! | `control.rs` | controllers that choose budgets in the kernel |
//! | `kernel.rs` | the loaded BPF object: commands and memory |
//! | `clock.rs` | [`SchedulerClock`]: the clock that the scheduler asks for |
//! | `refusal.rs` | checks of parameters, and the kernel's refusals as errors |
//! | `scheduler.rs` | [`Ext`]: loading, servers, threads, events, statistics |
//! | `mechanism.rs` | [`ExtMechanism`]: applies settings through [`Ext`] |
//!
//! A *server* has an amount of service in every period on one CPU, for any number of threads. DWCS orders the servers
//! (the thesis, §2.4.1), and events favour their sinks (§3.3.1). Threads without a server share the remaining time
//! under a fair policy, and have at least the part that [`ExtConfig`] guarantees. A change by a command is in force
//! when the command returns. When the owner ends, for whatever reason, all threads are back under the kernel's default
//! scheduler.

mod clock;
mod control;
mod error;
mod kernel;
mod mechanism;
mod refusal;
mod scheduler;
mod server;
mod support;

pub use clock::SchedulerClock;
pub use error::ExtError;
pub use mechanism::ExtMechanism;
pub(crate) use mechanism::features;
pub use scheduler::{Ext, ExtConfig};
pub use server::{Change, CpuStatistics, ServerId, ServerSpec, ServerStatistics};
