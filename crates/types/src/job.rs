//! One finished job.

use serde::{Deserialize, Serialize};

use crate::{Instant, Nanos};

/// One finished job, as its application or an observer reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Number of the job, from 0.
    pub k: u64,
    /// r_k: when it could start.
    #[serde(rename = "release_ns")]
    pub release: Instant,
    /// f_k: when it ended.
    #[serde(rename = "finish_ns")]
    pub finish: Instant,
    /// c_k: the CPU time it took.
    #[serde(rename = "c_ns")]
    pub cost: Nanos,
    /// What the application says of its next job.
    #[serde(default, skip_serializing_if = "Foresight::is_nothing")]
    pub next: Foresight,
}

/// What an application says of a job before it runs. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Foresight {
    /// Nothing.
    #[default]
    Nothing,
    /// Something that goes with the computation time, such as the bytes of a frame; always finite.
    Hint(f64),
    /// The computation time itself, from the application's own predictor; `0 <= low <= high`.
    Interval {
        /// h_k.
        low: Nanos,
        /// H_k.
        high: Nanos,
    },
    /// The budget wanted for it, from the application's own controller.
    Budget(Nanos),
}

impl Foresight {
    /// Whether nothing is said.
    pub fn is_nothing(&self) -> bool {
        *self == Foresight::Nothing
    }
    /// The hint, if it is one.
    pub fn hint(self) -> Option<f64> {
        match self {
            Foresight::Hint(hint) => Some(hint),
            _ => None,
        }
    }
}
