//! Suggests contract parameters from the costs of a trial execution, like `qfabric probe`, and stores these costs.

use std::path::PathBuf;

use pyo3::prelude::*;
use qfabric_client::{Contract, Nanos, Profile, Profiles, Share};
use qfabric_control::guarantee::NoGuarantee;
use qfabric_control::trial::{Suggestion, suggest};
use serde_json::{Value, json};

use crate::ecalls::value_error;
use crate::errors::python;
use crate::session::{profile_of, share};

/// The suggestion as JSON.
#[pyfunction]
#[pyo3(signature = (costs, period_ms, *, hints, server_period_ms=None, max_bandwidth=0.95, controller="left", rho=1.0,
    early=0.2, late=0.0, recovery_jobs=10, deviation=1.0))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub(crate) fn suggest_json(
    py: Python<'_>,
    costs: Vec<u64>,
    period_ms: f64,
    hints: Vec<f64>,
    server_period_ms: Option<f64>,
    max_bandwidth: f64,
    controller: &str,
    rho: f64,
    early: f64,
    late: f64,
    recovery_jobs: u32,
    deviation: f64,
) -> PyResult<String> {
    let fresh = Contract::new("python", Nanos::from_f64(period_ms * 1e6));
    let contract = Contract {
        server_period: server_period_ms.map_or(fresh.server_period, |ms| Nanos::from_f64(ms * 1e6)),
        max_bandwidth: share("max_bandwidth", max_bandwidth)?,
        choice: controller.parse().map_err(value_error)?,
        rho,
        early,
        late,
        recovery_jobs,
        deviation,
        ..fresh
    };
    let profile = profile_of(costs, hints);
    Contract { profile: Some(profile.clone()), ..contract.clone() }.check().map_err(value_error)?;
    // The calculation tries every predictor on all jobs: other threads run meanwhile.
    let suggestion = py.detach(|| suggest(&profile, &contract));
    Ok(described(&suggestion.map_err(value_error)?).to_string())
}

fn described(suggestion: &Suggestion) -> Value {
    let part = |class: &Result<Share, NoGuarantee>| class.as_ref().ok().map(|share| share.as_f64());
    json!({
        "predictor": suggestion.predictor.to_string(),
        "max_bandwidth": suggestion.max_bandwidth.as_f64(),
        "class_a": part(&suggestion.class_a),
        "class_b": part(&suggestion.class_b),
        "early": suggestion.early,
        "in_target": suggestion.score.in_target,
        "mean_bandwidth": suggestion.score.mean_bandwidth,
    })
}

/// The costs (ns) and hints of a stored profile; None if there is none with this key.
#[pyfunction]
pub(crate) fn find_profile(name: &str) -> PyResult<Option<(Vec<u64>, Vec<f64>)>> {
    let name = name.parse().map_err(value_error)?;
    let found = Profiles::open().and_then(|profiles| profiles.find(&name)).map_err(python)?;
    Ok(found.map(|Profile { costs, hints }| (costs.into_iter().map(Nanos::get).collect(), hints)))
}

/// Stores a profile; returns its file.
#[pyfunction]
pub(crate) fn store_profile(name: &str, costs_ns: Vec<u64>, hints: Vec<f64>) -> PyResult<PathBuf> {
    let name = name.parse().map_err(value_error)?;
    let profile = profile_of(costs_ns, hints);
    Profiles::open().and_then(|profiles| profiles.store(&name, &profile)).map_err(python)
}
