//! Energy of this host: `GET /v1/energy`.

use serde::{Deserialize, Serialize};

use crate::{AppId, Energy, Nanos};

/// The account of energy since the daemon started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnergyStatus {
    /// The power model behind all modelled amounts.
    pub model: EnergyModel,
    /// Time that the account covers.
    #[serde(rename = "over_ns")]
    pub over: Nanos,
    /// Mean clock of the CPUs at the last reading, as a part of the highest clock. Absent: the kernel does not report
    /// clocks, and modelled amounts assume the highest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_part: Option<f64>,
    /// Meters, and parts of the machine in the model.
    pub devices: Vec<DeviceEnergy>,
    /// Applications under contract.
    pub applications: Vec<ApplicationEnergy>,
    /// Sums of the applications that have left, one for each source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Energy>,
    /// Number of readings since the start.
    pub looks: u64,
    /// CPU time of the daemon for these readings.
    #[serde(rename = "looks_cpu_ns")]
    pub looks_cpu: Nanos,
}

/// A power model, with the number of its values of each kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnergyModel {
    pub name: String,
    /// Values that their source prints.
    pub printed: usize,
    /// Values that were computed from printed or measured ones.
    pub derived: usize,
    /// Values without a source.
    pub assumed: usize,
}

/// Energy of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceEnergy {
    /// Unique on the host, such as `package-0-0` or `BAT0`; `processor`, `rest` and `network` are parts of the model.
    pub name: String,
    /// Energy since the start.
    #[serde(flatten)]
    pub energy: Energy,
    /// Present power, or the mean power since the reading before, W.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Energy that a battery stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Energy>,
    /// Reason and next step if the last reading counted nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Number of readings that counted nothing because of a fault.
    #[serde(default)]
    pub faults: u64,
}

/// Energy of one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApplicationEnergy {
    /// The application's number.
    pub app: AppId,
    /// The name of its contract.
    pub name: String,
    /// The application's process.
    pub pid: i32,
    /// CPU time of its processes that the amounts cover.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// One amount for each source: by the model, CPU time × power of a busy CPU above an idle one; by RAPL, its part of
    /// the processor's energy, divided by CPU time.
    pub energy: Vec<Energy>,
}

/// An application that saves energy: its deadlines are held at the lowest clock that suffices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnergySaving {
    /// The clock that the reservations of this host need, as a part of the highest one.
    pub clock_part: f64,
    /// Number of the application's threads that may ask for no higher clock.
    pub clamped: usize,
    /// Whether the clocks of the CPUs are limited to this part.
    pub limited: bool,
    /// What this host lacks, each with its reason and the next step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
