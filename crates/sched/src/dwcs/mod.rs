//! DWCS, the dynamic window-constrained scheduler, without a clock: chooses the task or the packet that runs next.
//!
//! A task wants C units of time in every period T and may lose x of any y periods. [`Machine`] decides for one
//! processor; [`admit`] tells in advance whether no window can be violated; [`Packets`] applies the same order to
//! the packets of a link, and [`Pair`] couples both with a phase Θ. Time is a bare `u64`: ticks in a simulation,
//! nanoseconds in a kernel. Source: 000 §2.4.1 (rules a and b, Table 1), §2.4.2 (Figure 10), §3.3.1 (rules 1–5,
//! Figure 15), §7.1.2 (Table 5); 003 §4. `docs/design/0010-dwcs.md` settles the cases that the sources leave open.

mod admission;
mod events;
mod machine;
mod order;
mod packets;
mod pair;
mod task;
mod tournament;
mod utilization;
mod window;

pub use qfabric_types::Window;

pub use admission::{Guarantee, Refusal, RefusalReason, Shared, Wording, admit, admit_with_task_server};
pub use events::{Event, Rule};
pub use machine::{Choice, Decision, Machine};
pub use order::{Network, Policy};
pub use packets::{Next, Packets, Rate, Sending, Stream, StreamStatistics};
pub use pair::{Pair, Source};
pub use task::{BadTask, MAX_TIME, Statistics, Task, TaskIndex, Wake};
pub use utilization::Utilization;
pub use window::Progress;
