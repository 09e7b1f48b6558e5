//! Joint contracts: the native half of `JointContract`.

use std::time::Duration;

use pyo3::prelude::*;
use qfabric_client::{JointBuilder, JointHandle, Nanos, Resource, UpgradeOffer};
use serde_json::json;

use crate::connect;
use crate::ecalls::{seconds, value_error};
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
    /// Makes a contract; the empty host is the daemon's. `stream` is the text of a stream file. Lease 0: none; -1: the
    /// calling process and this object.
    #[staticmethod]
    #[pyo3(signature = (stream, amounts, applications, patience_s, lease, upgrades, socket))]
    #[allow(clippy::too_many_arguments)] // the arguments of the Python method
    fn apply(
        py: Python<'_>,
        stream: Option<&str>,
        amounts: Vec<Wanted>,
        applications: Vec<(String, String)>,
        patience_s: f64,
        lease: i32,
        upgrades: &str,
        socket: Option<String>,
    ) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience_s).map_err(value_error)?;
        let mut builder = JointBuilder::new().patience(patience).upgrades_named(upgrades).map_err(python)?;
        if let Some(stream) = stream {
            builder = builder.stream(stream).map_err(python)?;
        }
        for (host, resource, wanted, minimum) in amounts {
            let resource: Resource = resource.parse().map_err(value_error)?;
            builder = builder.want(&host, resource, wanted, minimum).map_err(python)?;
        }
        for (host, application) in applications {
            builder = builder.application(&host, &application);
        }
        builder = match lease {
            0 => builder,
            -1 => builder.leased(),
            pid => builder.with_process(pid),
        };
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

    /// The next offer of a host, as JSON; None if none came in time. Other threads may use the contract meanwhile.
    fn next_offer_json(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let wait = seconds(timeout)?;
        let contract = self.0.with(py, ENDED, |contract| Ok(contract.clone()))?;
        let offer = py.detach(move || contract.next_offer(wait).map_err(python))?;
        Ok(offer.map(|offer| serde_json::to_string(&offer).expect("an offer is plain values")))
    }

    fn answer_offer(&self, py: Python<'_>, host: &str, accept: bool) -> PyResult<()> {
        let offer =
            UpgradeOffer { host: host.parse().map_err(value_error)?, resources: Vec::new(), left_ns: Nanos::ZERO };
        self.0.with(py, ENDED, |contract| contract.answer_offer(&offer, accept).map_err(python))
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

/// The steps from the text of a stream to its amounts, as JSON.
#[pyfunction]
pub(crate) fn explain_json(stream: &str) -> PyResult<String> {
    let explanation = qfabric_client::explain(stream).map_err(python)?;
    Ok(serde_json::to_string(&explanation).expect("an explanation is plain values"))
}
