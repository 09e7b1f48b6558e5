use serde::{Deserialize, Serialize};

use crate::channel::Name;

/// A decision of a policy with its cause and the candidates that were compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The policy's name.
    pub policy: Name,
    /// The time of the decision, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The measurement that led to the decision.
    pub cause: String,
    /// The part that limits the stream (`source-processor`, `source-application`, `link`, `sink-processor`,
    /// `sink-application`), with the measurement; absent: unknown, or nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<String>,
    /// The decision.
    pub decision: String,
    /// The decisions that were compared; empty for a policy that compares none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

/// A decision that was possible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    pub decision: String,
    /// The rate that was predicted for it, in events per second.
    pub rate: f64,
    /// The utility that was predicted for it, 0 to 1: the part of the wanted rate, times the worth of the levels.
    pub utility: f64,
    /// Whether it was chosen.
    pub chosen: bool,
}
