//! What to ask for next: the dynamics of a reservation, prediction, the feedback law, and what they need.
//!
//! ```text
//!   job ends ──cost, error──> predict ──[h, H]──> law ──Q──> next reservation
//!                                ^ hint known before the job
//! ```
//! Times in nanoseconds as `f64` where formulas run, [`qfabric_types::Nanos`] at the border. Nothing here
//! does I/O or reads a clock. Source: AQuoSA 2009 (§3–4); symbols are the paper's, in
//! the clear form of design.md §6. `L = T/P` server periods per job, `ε` the scheduling error, `Q` the budget.
#![forbid(unsafe_code)]

pub mod adapt;
mod consumption;
pub mod fixed;
pub mod guarantee;
pub mod law;
pub mod model;
pub mod predict;
pub mod reach;
pub mod replay;
mod rhythm;
mod target;
mod task;
pub mod traces;
pub mod trial;

pub use consumption::ConsumptionController;
pub use predict::{Interval, Predictor, predictor};
pub use rhythm::{Rhythm, RhythmAnalyser};
pub use target::Target;
pub use task::TaskController;
