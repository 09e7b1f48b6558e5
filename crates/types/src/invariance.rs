//! The condition of Theorem 2 for a profile: whether the target interval can be kept.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Theorem 2 (AQuoSA 2009, §4.3.1) for a contract and the predictions for the jobs of its profile. If it does not
/// hold, some predicted job can end outside the target interval with any budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invariance {
    /// `α = inf h_k/H_k`, 0 to 1: the precision of the worst prediction.
    pub alpha: f64,
    /// The bound that α must exceed: `(L − 1 − ê)/(L + Ê)`.
    pub least_alpha: f64,
    /// `H = sup H_k`; the maximum budget must exceed `H/L`.
    #[serde(rename = "highest_ns")]
    pub highest: Nanos,
    /// Whether both conditions hold.
    pub holds: bool,
}
