//! Errors in files that a user writes, with their place.

use qfabric_types::InvalidQuantity;
use qfabric_types::api::Problem;

use crate::settings::SettingsError;

/// A fault at a place of a file. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct TextError {
    pub line: usize,
    pub column: usize,
    pub fault: Fault,
}

/// A fault in a schedule or a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{found:?} instead of {expected}")]
    Expected { found: String, expected: &'static str },
    #[error("{0} has no value")]
    NoValue(String),
    #[error("{0} is given twice")]
    Twice(String),
    #[error(transparent)]
    Quantity(#[from] InvalidQuantity),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{text:?} is not a time in milliseconds up to {most}")]
    Time { text: String, most: u64 },
    #[error("the time {time} is before {before}, the time of the line before")]
    Earlier { time: String, before: String },
    #[error("there is no time above zero, so the trace has no length")]
    NoLength,
    #[error("there are more than {most} lines")]
    TooLong { most: usize },
}

impl TextError {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self.fault {
            Fault::Earlier { .. } => ("wrong_order", "sort the lines by time"),
            Fault::TooLong { .. } => ("too_long", "split the file, or make its steps longer"),
            Fault::Settings(_) => ("out_of_range", "use a value within the bounds"),
            Fault::Time { .. } | Fault::NoLength => {
                ("invalid_trace", "write one time in milliseconds in each line, as for mahimahi's mm-link")
            }
            _ => ("invalid_schedule", "write lines such as: at 40s up rate 1M loss 2%"),
        };
        Problem { code: code.into(), message: self.to_string(), next_step: next_step.into(), ..Problem::default() }
    }
}
