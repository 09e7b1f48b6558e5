//! Who was promised what.
#![forbid(unsafe_code)]

mod limits;

pub use limits::{LEVELS, Limits};
