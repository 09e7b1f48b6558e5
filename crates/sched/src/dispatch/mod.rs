//! QualMan's CPU server as values: a *dispatch table* per CPU, whose slots belong to groups of threads or are free,
//! and the rules at the boundary of a slot (004 §3).
//!
//! | file | contents |
//! |---|---|
//! | `demand.rs` | the demand of a group, in time and in slots |
//! | `admission.rs` | tests: the sum, rate-monotonic (bound and exact), and the length of the frame |
//! | `table.rs` | [`Table`]: one frame of slots under rate-monotonic order or EDF |
//! | `harmonise.rs` | periods that give a shorter frame, if the demanded periods give one that is too long |
//! | `runner.rs` | [`Runner`]: the table in force, and the steps at each slot boundary |
//! | `standing.rs` | the state of a group between two boundaries |
//!
//! Times in nanoseconds; C and T of the tests in whole slots. All groups begin their first period together, at the
//! beginning of a frame, so the table of one frame repeats.
//!
//! Departure: the text of the paper computes the length of the frame as the GCD of the periods; its Table 2 has the
//! LCM (20 ms and 40 ms give 40 ms), which is what repeats. This module uses the LCM.

mod admission;
mod demand;
mod harmonise;
mod runner;
mod standing;
mod table;

pub use admission::{FRAME_LIMIT, GROUP_LIMIT, Refusal, admit, liu_layland_bound, response_time};
pub use demand::{Demand, GroupId, Slotted};
pub use harmonise::Offer;
pub use runner::{Move, Plan, Runner};
pub use standing::{GroupUsage, Standing};
pub use table::Table;
