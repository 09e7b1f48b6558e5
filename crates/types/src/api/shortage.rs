//! The amounts of a refusal as numbers, for programs.

use serde::{Deserialize, Serialize};

use crate::{Amount, Resource};

/// A resource of which less is free than was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shortage {
    /// The resource, such as `network eth0 out`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub resource: Resource,
    /// The unit of the amounts: `CPU`, `bytes` or `bit/s`.
    pub unit: String,
    /// The amount in the request.
    pub asked: f64,
    /// The free amount.
    pub free: f64,
    /// The largest amount that this request could be granted.
    pub largest: f64,
}

impl Shortage {
    pub fn new(resource: Resource, asked: Amount, free: Amount, largest: Amount) -> Shortage {
        let unit = asked.unit().to_owned();
        Shortage { resource, unit, asked: asked.value(), free: free.value(), largest: largest.value() }
    }
}
