//! The explanation of a translation as data.

use qfabric_types::{Amount, BitRate, Bytes, Nanos, Resource, Share};
use serde::Serialize;

use crate::stream::Host;

/// A number in an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// The symbol of Table 1, or a plain name.
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
}

/// One step of a translation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Symbol and plain name, such as `T video: cycle time`.
    pub name: String,
    pub formula: String,
    pub inputs: Vec<Input>,
    pub value: f64,
    pub unit: &'static str,
}

/// An amount of a resource of one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostResource {
    pub host: Host,
    pub resource: Resource,
    /// In `unit`.
    pub amount: f64,
    pub unit: &'static str,
}

/// The steps from the application's terms to the amounts of resources, in the order of calculation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub steps: Vec<Step>,
    pub resources: Vec<HostResource>,
}

/// A number with its unit.
pub(crate) type Measure = (f64, &'static str);

pub(crate) fn milliseconds(time: Nanos) -> Measure {
    (time.as_f64() / 1e6, "ms")
}
pub(crate) fn bytes(amount: u64) -> Measure {
    (amount as f64, "bytes")
}
pub(crate) fn amount(amount: Amount) -> Measure {
    (amount.value(), amount.unit())
}
pub(crate) fn bits(rate: BitRate) -> Measure {
    amount(Amount::Network(rate))
}
pub(crate) fn cpu(share: Share) -> Measure {
    amount(Amount::Cpu(share))
}
pub(crate) fn memory(size: Bytes) -> Measure {
    amount(Amount::Memory(size))
}

impl Step {
    /// A step without inputs; `formula` says where the value comes from.
    pub(crate) fn new(name: impl Into<String>, formula: impl Into<String>, (value, unit): Measure) -> Step {
        Step { name: name.into(), formula: formula.into(), inputs: Vec::new(), value, unit }
    }
    pub(crate) fn with(mut self, name: impl Into<String>, (value, unit): Measure) -> Step {
        self.inputs.push(Input { name: name.into(), value, unit });
        self
    }
}
