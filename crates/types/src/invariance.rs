//! Whether a target interval can be kept: the condition of Theorem 2 on a profile.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Theorem 2 (AQuoSA 2009, §4.3.1) for a contract and what its predictor says of the jobs of its profile. Where it does
/// not hold, some predicted job can end outside the target interval whatever its budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invariance {
    /// `α = inf h_k/H_k`, 0 to 1: how sharp the prediction is at its worst.
    pub alpha: f64,
    /// The bound that α must exceed: `(L − 1 − ê)/(L + Ê)`.
    pub least_alpha: f64,
    /// `H = sup H_k`; the maximum budget must exceed `H/L`.
    #[serde(rename = "highest_ns")]
    pub highest: Nanos,
    /// Both conditions hold.
    pub holds: bool,
}
