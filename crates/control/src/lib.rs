//! The control of reservations: their dynamics, the prediction of costs, the feedback law, and related analyses.
//!
//! ```text
//!   job ends ──cost, error──> predict ──[h, H]──> law ──Q──> next reservation
//!                                ^ hint known before the job
//! ```
//! Times are nanoseconds as `f64` in formulas, and [`qfabric_types::Nanos`] in interfaces. No code in this crate
//! does I/O or reads a clock. Source: AQuoSA 2009 (§3–4). Symbols are the paper's: `L = T/P` server periods per
//! job, `ε` the scheduling error, `Q` the budget.
#![forbid(unsafe_code)]

pub mod adapt;
pub mod bottleneck;
mod consumption;
pub mod fixed;
pub mod flow;
pub mod guarantee;
pub mod integrated;
pub mod ladder;
pub mod law;
pub mod model;
pub mod predict;
pub mod priority;
pub mod reach;
pub mod relief;
pub mod replay;
mod rhythm;
mod slowdown;
mod target;
mod task;
pub mod traces;
pub mod trial;
pub mod utility;

pub use consumption::ConsumptionController;
pub use predict::{Interval, Predictor, predictor};
pub use rhythm::{Rhythm, RhythmAnalyser};
pub use slowdown::Slowdown;
pub use target::Target;
pub use task::TaskController;
