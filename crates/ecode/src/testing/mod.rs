//! What every engine is tested with: one table of programs with their answers, and a maker of random programs.

pub mod conformance;
pub mod heavy;
mod table;
pub mod texts;
