//! Native half of the Python package `qfabric`; the other half is `python/qfabric/__init__.py`.
//!
//! A session belongs to its thread, but a Python object can move to another one. So each thread has a table of its
//! sessions, and the object has only a key: in another thread the key finds no session, and the call raises an error.
#![forbid(unsafe_code)]

mod channel;
mod consent;
mod delays;
mod ecalls;
mod errors;
mod held;
mod joint;
mod ladder;
mod mem;
mod metp;
mod session;
mod stream;
mod suggest;

use pyo3::prelude::*;
use qfabric_client::{Claim, Client, HostLimits, LimitsPatch};

use crate::ecalls::value_error;
use crate::errors::python;

/// Finds the daemon at `socket`, or at the default sockets.
fn connect(socket: Option<String>) -> PyResult<Client> {
    match socket {
        Some(path) => Client::connect_to(path),
        None => Client::connect(),
    }
    .map_err(python)
}

/// Status of the host, as JSON.
#[pyfunction]
#[pyo3(signature = (socket=None))]
fn status_json(py: Python<'_>, socket: Option<String>) -> PyResult<String> {
    let status = py.detach(|| connect(socket)?.status().map_err(python))?;
    Ok(serde_json::to_string(&status).expect("a status is plain values"))
}

/// Limits of the host, as JSON.
#[pyfunction]
#[pyo3(signature = (socket=None))]
fn limits_json(py: Python<'_>, socket: Option<String>) -> PyResult<String> {
    let limits = py.detach(|| connect(socket)?.limits().map_err(python))?;
    Ok(serde_json::to_string(&limits).expect("limits are plain values"))
}

/// Replaces all limits, given as JSON; returns the limits in force.
#[pyfunction]
#[pyo3(signature = (limits, socket=None))]
fn set_limits_json(py: Python<'_>, limits: &str, socket: Option<String>) -> PyResult<String> {
    let limits: HostLimits = serde_json::from_str(limits).map_err(value_error)?;
    let limits = py.detach(|| connect(socket)?.set_limits(&limits).map_err(python))?;
    Ok(serde_json::to_string(&limits).expect("limits are plain values"))
}

/// Changes some limits, given as JSON; returns the limits in force.
#[pyfunction]
#[pyo3(signature = (change, socket=None))]
fn change_limits_json(py: Python<'_>, change: &str, socket: Option<String>) -> PyResult<String> {
    let change: LimitsPatch = serde_json::from_str(change).map_err(value_error)?;
    let limits = py.detach(|| connect(socket)?.change_limits(&change).map_err(python))?;
    Ok(serde_json::to_string(&limits).expect("limits are plain values"))
}

/// Gives back a loan that another host keeps for a task refused here.
#[pyfunction]
#[pyo3(signature = (claim, socket=None))]
fn give_back(py: Python<'_>, claim: &str, socket: Option<String>) -> PyResult<()> {
    let claim: Claim = claim.parse().map_err(value_error)?;
    py.detach(|| connect(socket)?.give_back(&claim).map_err(python))
}

/// The native half.
#[pymodule]
fn _qfabric(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", py.get_type::<errors::Error>())?;
    module.add("NoDaemon", py.get_type::<errors::NoDaemon>())?;
    module.add("SinkEnded", py.get_type::<errors::SinkEnded>())?;
    module.add("Refused", py.get_type::<errors::Refused>())?;
    module.add_class::<session::NativeSession>()?;
    module.add_class::<joint::NativeJoint>()?;
    module.add_class::<consent::NativeConsent>()?;
    module.add_class::<delays::NativeDelayRecorder>()?;
    module.add_class::<ladder::NativeLadder>()?;
    module.add_class::<mem::NativeMem>()?;
    module.add_class::<mem::NativeAllocation>()?;
    module.add_class::<metp::NativeMetp>()?;
    module.add_class::<metp::NativeMetpServer>()?;
    module.add_class::<channel::NativeChannels>()?;
    module.add_class::<channel::NativeRegistration>()?;
    module.add_class::<channel::NativeChannel>()?;
    module.add_class::<channel::NativeSource>()?;
    module.add_class::<channel::NativeSink>()?;
    module.add_class::<ecalls::NativeEcalls>()?;
    module.add_class::<ecalls::NativeSubscription>()?;
    module.add_class::<ecalls::NativeService>()?;
    module.add_function(wrap_pyfunction!(change_limits_json, module)?)?;
    module.add_function(wrap_pyfunction!(channel::transcoded, module)?)?;
    module.add_function(wrap_pyfunction!(channel::transcoder_attribute, module)?)?;
    module.add_function(wrap_pyfunction!(consent::consents_json, module)?)?;
    module.add_function(wrap_pyfunction!(consent::end_consent, module)?)?;
    module.add_function(wrap_pyfunction!(consent::set_consent, module)?)?;
    module.add_function(wrap_pyfunction!(give_back, module)?)?;
    module.add_function(wrap_pyfunction!(joint::explain_json, module)?)?;
    module.add_function(wrap_pyfunction!(joint::joint_contracts_json, module)?)?;
    module.add_function(wrap_pyfunction!(limits_json, module)?)?;
    module.add_function(wrap_pyfunction!(set_limits_json, module)?)?;
    module.add_function(wrap_pyfunction!(stream::stream_begin, module)?)?;
    module.add_function(wrap_pyfunction!(stream::stream_end, module)?)?;
    module.add_function(wrap_pyfunction!(stream::stream_set_dscp, module)?)?;
    module.add_function(wrap_pyfunction!(suggest::find_profile, module)?)?;
    module.add_function(wrap_pyfunction!(suggest::store_profile, module)?)?;
    module.add_function(wrap_pyfunction!(suggest::suggest_json, module)?)?;
    module.add_function(wrap_pyfunction!(status_json, module)?)
}
