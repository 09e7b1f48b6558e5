//! What every engine is tested with: one table of programs with their answers, and a maker of random programs.

pub mod conformance;
mod table;
pub mod texts;
