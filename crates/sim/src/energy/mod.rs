//! The figures of chapters 6 and 7 of the thesis (000): one device, a ladder of techniques, joules by a model.
//!
//! `fig61`, `fig69`, `fig69-double`, `fig73` and `fig73-load` print the whole ladder, so that no technique is compared with a
//! weak rival alone. The other scenarios show one technique, as their figures do: `fig53` bursts and timeouts of the card
//! at the highest clock, `fig54` clocks without the card. The phases of the streams come from a seed; a seed repeats a run.

mod chart;
mod checkpoints;
mod device;
mod report;
mod scenarios;
mod sweeps;
mod transcoders;

pub use chart::svg;
pub use device::{CardRule, Source, Techniques, Usage, run};
pub use report::{ModelInfo, Report, Row};
pub use scenarios::{SCENARIOS, simulate};
