//! Streams of packets: the native half of `Stream`.

use pyo3::prelude::*;
use qfabric_client::{JointId, Nanos, code_point};
use qfabric_types::api::net::{Selector, StreamChange, StreamSpec};

use crate::connect;
use crate::ecalls::value_error;
use crate::errors::python;

/// Begins a stream that ends with this process, and with its contract if there is one. Returns its number.
#[pyfunction]
#[pyo3(signature = (interface, packets, period_ms, size, contract=None, dscp=None, socket=None))]
#[expect(clippy::too_many_arguments, reason = "the keyword arguments of the Python class")]
pub(crate) fn stream_begin(
    py: Python<'_>,
    interface: &str,
    packets: &str,
    period_ms: f64,
    size: u32,
    contract: Option<&str>,
    dscp: Option<u32>,
    socket: Option<String>,
) -> PyResult<u32> {
    let packets: Selector = packets.parse().map_err(value_error)?;
    let contract: Option<JointId> = contract.map(str::parse).transpose().map_err(value_error)?;
    let mut spec = StreamSpec { size, ..StreamSpec::new(packets, Nanos::from_f64(period_ms * 1e6)) };
    spec.terms.holder = Some(std::process::id() as i32);
    spec.dscp = dscp.map(code_point).transpose().map_err(python)?;
    let begin = || {
        let client = connect(socket)?;
        let begun = match &contract {
            Some(contract) => client.begin_stream_of_contract(contract, interface, &spec),
            None => client.begin_stream(interface, &spec),
        };
        Ok(begun.map_err(python)?.id)
    };
    py.detach(begin)
}

/// Gives all packets of a stream a code point.
#[pyfunction]
#[pyo3(signature = (interface, stream, dscp, socket=None))]
pub(crate) fn stream_set_dscp(
    py: Python<'_>,
    interface: &str,
    stream: u32,
    dscp: u32,
    socket: Option<String>,
) -> PyResult<()> {
    let change = StreamChange { dscp: Some(code_point(dscp).map_err(python)?), ..StreamChange::default() };
    py.detach(|| connect(socket)?.change_stream(interface, stream, &change).map_err(python)).map(drop)
}

/// Ends a stream.
#[pyfunction]
#[pyo3(signature = (interface, stream, socket=None))]
pub(crate) fn stream_end(py: Python<'_>, interface: &str, stream: u32, socket: Option<String>) -> PyResult<()> {
    py.detach(|| connect(socket)?.end_stream(interface, stream).map_err(python))
}
