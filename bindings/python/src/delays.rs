//! Delays of a program's own messages: the native half of `DelayRecorder`.

use std::path::PathBuf;

use pyo3::prelude::*;
use qfabric_client::{BitRate, Bytes, DelayRecorder};

use crate::errors::python;
use crate::ladder::time;

/// Renews a stored profile of delays. Needs no daemon.
#[pyclass]
pub(crate) struct NativeDelayRecorder(DelayRecorder);

#[pymethods]
impl NativeDelayRecorder {
    #[new]
    fn new(py: Python<'_>, file: PathBuf, message: u64, rate: u64) -> PyResult<Self> {
        let open = || DelayRecorder::open(file, Bytes::new(message), BitRate::new(rate)).map_err(python);
        Ok(NativeDelayRecorder(py.detach(open)?))
    }

    fn acknowledged(&mut self, py: Python<'_>, size: u64, round_trip_ms: f64) -> PyResult<bool> {
        let (recorder, round_trip) = (&mut self.0, time("round_trip_ms", round_trip_ms)?);
        py.detach(|| recorder.acknowledged(Bytes::new(size), round_trip).map_err(python))
    }

    fn lost(&mut self, py: Python<'_>, size: u64) -> PyResult<bool> {
        let recorder = &mut self.0;
        py.detach(|| recorder.lost(Bytes::new(size)).map_err(python))
    }

    fn shortest_round_trip(&mut self, ms: f64) -> PyResult<()> {
        self.0.shortest_round_trip(time("ms", ms)?);
        Ok(())
    }

    fn change_rate(&mut self, rate: u64) {
        self.0.change_rate(BitRate::new(rate));
    }
}
