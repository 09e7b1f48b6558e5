//! Records of finished jobs, and foresight about the next job.

use serde::{Deserialize, Serialize};

use crate::{Instant, Nanos};

/// A finished job, as its application or an observer reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Number of the job, from 0.
    pub k: u64,
    /// r_k: the release, at which the job could start.
    #[serde(rename = "release_ns")]
    pub release: Instant,
    /// f_k: the end of the job.
    #[serde(rename = "finish_ns")]
    pub finish: Instant,
    /// c_k: the CPU time of the job.
    #[serde(rename = "c_ns")]
    pub cost: Nanos,
    /// The application's foresight about its next job.
    #[serde(default, skip_serializing_if = "Foresight::is_nothing")]
    pub next: Foresight,
}

/// An application's statement about a job before it runs. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Foresight {
    /// No statement.
    #[default]
    Nothing,
    /// A number that correlates with the computation time, such as the bytes of a frame; always finite.
    Hint(f64),
    /// The predicted interval of the computation time, from the application's own predictor; `0 <= low <= high`.
    Interval {
        /// h_k.
        low: Nanos,
        /// H_k.
        high: Nanos,
    },
    /// The wanted budget, from the application's own controller.
    Budget(Nanos),
}

impl Foresight {
    pub fn is_nothing(&self) -> bool {
        *self == Foresight::Nothing
    }
    /// The hint; `None` for the other variants.
    pub fn hint(self) -> Option<f64> {
        match self {
            Foresight::Hint(hint) => Some(hint),
            _ => None,
        }
    }
}
