//! Amounts of energy that carry their source.

use std::cmp::Ordering;
use std::fmt;

use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

/// The origin of an amount of energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EnergySource {
    /// Time in a state × the power of that state in a model.
    Model,
    /// A counter of the processor (Running Average Power Limit).
    Rapl,
    /// The charge of a battery.
    Battery,
    /// A current sensor on the board.
    Ina,
}

impl EnergySource {
    /// The word in output and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            EnergySource::Model => "model",
            EnergySource::Rapl => "rapl",
            EnergySource::Battery => "battery",
            EnergySource::Ina => "ina",
        }
    }
}

/// An amount of energy. The number of joules is private: `Display` and JSON print it together with its source, and
/// [`Energy::ratio`] and [`Energy::cmp_amount`] compare two amounts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Energy {
    /// The amount.
    joules: f64,
    /// The origin of the amount.
    source: EnergySource,
}

/// Two amounts have different sources, so that their sum would have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("energy from {} and from {} has no common source; keep the two amounts apart", .0.name(), .1.name())]
pub struct MixedSources(pub EnergySource, pub EnergySource);

impl Energy {
    /// `joules` from `source`; may be negative for a loss where a saving was computed. A number that is not finite
    /// becomes zero.
    pub fn new(joules: f64, source: EnergySource) -> Self {
        Energy { joules: if joules.is_finite() { joules } else { 0.0 }, source }
    }

    pub fn modelled(joules: f64) -> Self {
        Energy::new(joules, EnergySource::Model)
    }

    pub fn source(self) -> EnergySource {
        self.source
    }

    /// The sum.
    ///
    /// # Errors
    /// [`MixedSources`].
    pub fn plus(self, other: Energy) -> Result<Energy, MixedSources> {
        self.same(other).map(|()| Energy::new(self.joules + other.joules, self.source))
    }

    /// The difference.
    ///
    /// # Errors
    /// [`MixedSources`].
    pub fn minus(self, other: Energy) -> Result<Energy, MixedSources> {
        self.same(other).map(|()| Energy::new(self.joules - other.joules, self.source))
    }

    /// The mean of `parts` equal parts.
    pub fn divided(self, parts: f64) -> Energy {
        Energy::new(self.joules / parts, self.source)
    }

    /// This amount over `other`, without a unit. Zero if `other` is zero.
    pub fn ratio(self, other: Energy) -> f64 {
        if other.joules == 0.0 { 0.0 } else { self.joules / other.joules }
    }

    pub fn cmp_amount(self, other: Energy) -> Ordering {
        self.joules.total_cmp(&other.joules)
    }

    fn same(self, other: Energy) -> Result<(), MixedSources> {
        if self.source == other.source { Ok(()) } else { Err(MixedSources(self.source, other.source)) }
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source.name();
        if self.joules.abs() < 1.0 {
            f.pad(&format!("{:.1} mJ ({source})", self.joules * 1e3))
        } else {
            f.pad(&format!("{:.3} J ({source})", self.joules))
        }
    }
}

/// `{"joules": 0.42, "source": "model"}`; the fields of a larger record if it is flattened.
impl Serialize for Energy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Energy", 2)?;
        record.serialize_field("joules", &self.joules)?;
        record.serialize_field("source", &self.source)?;
        record.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_printed_with_its_source() {
        assert_eq!(Energy::modelled(0.42).to_string(), "420.0 mJ (model)");
        assert_eq!(Energy::new(12.34, EnergySource::Rapl).to_string(), "12.340 J (rapl)");
        assert_eq!(Energy::new(f64::NAN, EnergySource::Ina).to_string(), "0.0 mJ (ina)");
    }

    #[test]
    fn amounts_of_different_sources_have_no_sum() {
        let (model, battery) = (Energy::modelled(1.0), Energy::new(1.0, EnergySource::Battery));
        let refusal = model.plus(battery).unwrap_err().to_string();
        assert!(refusal.contains("model") && refusal.contains("battery"), "{refusal}");
        assert_eq!(model.plus(model).unwrap(), Energy::modelled(2.0));
    }
}
