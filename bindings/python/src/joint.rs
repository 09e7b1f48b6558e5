//! Joint contracts: the native half of `JointContract`.

use std::time::Duration;

use pyo3::prelude::*;
use qfabric_client::{JointBuilder, JointHandle, Resource};
use serde_json::json;

use crate::connect;
use crate::ecalls::value_error;
use crate::errors::python;
use crate::held::Held;

const ENDED: &str = "the contract was ended";

/// Host, resource, wanted amount, and smallest useful amount.
type Wanted = (String, String, f64, f64);

/// A joint contract in force.
#[pyclass(frozen)]
pub(crate) struct NativeJoint(Held<JointHandle>);

#[pymethods]
impl NativeJoint {
    /// Makes a contract; the empty host is the daemon's.
    #[staticmethod]
    #[pyo3(signature = (amounts, patience_s=0.0, socket=None))]
    fn apply(py: Python<'_>, amounts: Vec<Wanted>, patience_s: f64, socket: Option<String>) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience_s).map_err(value_error)?;
        let mut builder = JointBuilder::new().patience(patience);
        for (host, resource, wanted, minimum) in amounts {
            let resource: Resource = resource.parse().map_err(value_error)?;
            builder = builder.want(&host, resource, wanted, minimum).map_err(python)?;
        }
        let made = py.detach(|| builder.apply(&connect(socket)?).map_err(python))?;
        Ok(NativeJoint(Held::new(made)))
    }

    #[staticmethod]
    #[pyo3(signature = (id, socket=None))]
    fn open(py: Python<'_>, id: &str, socket: Option<String>) -> PyResult<Self> {
        let found = py.detach(|| JointHandle::open_named(&connect(socket)?, id).map_err(python))?;
        Ok(NativeJoint(Held::new(found)))
    }

    /// Identity and resources, as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let text = |contract: &mut JointHandle| {
            let partial = contract.is_partial();
            Ok(json!({"id": contract.id(), "resources": contract.resources(), "partial": partial}).to_string())
        };
        self.0.with(py, ENDED, text)
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, ENDED, |contract| contract.refresh().map_err(python))
    }

    /// A second call does nothing.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.0.end(py, |contract| contract.end().map_err(python)).unwrap_or(Ok(()))
    }
}

/// The joint contracts that users of this host asked for, as JSON.
#[pyfunction]
#[pyo3(signature = (socket=None))]
pub(crate) fn joint_contracts_json(py: Python<'_>, socket: Option<String>) -> PyResult<String> {
    let all = py.detach(|| connect(socket)?.joint_contracts().map_err(python))?;
    Ok(serde_json::to_string(&all).expect("contracts are plain values"))
}
