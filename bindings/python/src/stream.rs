//! Streams of packets: the native half of `Stream`.

use pyo3::prelude::*;
use qfabric_client::{JointId, Nanos};
use qfabric_types::api::net::{Selector, StreamSpec};

use crate::connect;
use crate::ecalls::value_error;
use crate::errors::python;

/// Begins a stream that ends with this process, and with its contract if there is one. Returns its number.
#[pyfunction]
#[pyo3(signature = (interface, packets, period_ms, size, contract=None, socket=None))]
pub(crate) fn stream_begin(
    py: Python<'_>,
    interface: &str,
    packets: &str,
    period_ms: f64,
    size: u32,
    contract: Option<&str>,
    socket: Option<String>,
) -> PyResult<u32> {
    let packets: Selector = packets.parse().map_err(value_error)?;
    let contract: Option<JointId> = contract.map(str::parse).transpose().map_err(value_error)?;
    let mut spec = StreamSpec { size, ..StreamSpec::new(packets, Nanos::from_f64(period_ms * 1e6)) };
    spec.terms.holder = Some(std::process::id() as i32);
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

/// Ends a stream.
#[pyfunction]
#[pyo3(signature = (interface, stream, socket=None))]
pub(crate) fn stream_end(py: Python<'_>, interface: &str, stream: u32, socket: Option<String>) -> PyResult<()> {
    py.detach(|| connect(socket)?.end_stream(interface, stream).map_err(python))
}
