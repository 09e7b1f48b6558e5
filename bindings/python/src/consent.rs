//! Consent of applications to joint contracts: the native half of `Consent`.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use qfabric_client::{ConsentHandle, ConsentPolicy, ConsentRequest};

use crate::connect;
use crate::ecalls::seconds;
use crate::errors::python;
use crate::held::Held;

const ENDED: &str = "the answers were ended";

/// The calling process answers for an application.
#[pyclass(frozen)]
pub(crate) struct NativeConsent(Held<Arc<ConsentHandle>>);

#[pymethods]
impl NativeConsent {
    #[new]
    #[pyo3(signature = (application, socket))]
    fn new(py: Python<'_>, application: &str, socket: Option<String>) -> PyResult<Self> {
        let begun = py.detach(|| ConsentHandle::begin(&connect(socket)?, application).map_err(python))?;
        Ok(NativeConsent(Held::new(Arc::new(begun))))
    }

    /// The next question, as JSON; None if none came in time. Other threads may use the answers meanwhile.
    fn next_json(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let wait: Duration = seconds(timeout)?;
        let answers = self.0.with(py, ENDED, |answers| Ok(Arc::clone(answers)))?;
        let question = py.detach(move || answers.next(wait).map_err(python))?;
        Ok(question.map(|question| serde_json::to_string(&question).expect("a question is plain values")))
    }

    fn answer(&self, py: Python<'_>, number: u64, accept: bool) -> PyResult<()> {
        self.0.with(py, ENDED, |answers| answers.answer_number(number, accept).map_err(python))
    }

    /// A second call does nothing.
    fn end(&self, py: Python<'_>) {
        self.0.end(py, drop);
    }
}

/// Accepts or declines every contract for an application, until a process ends if one is named.
#[pyfunction]
#[pyo3(signature = (application, accept, pid, socket))]
pub(crate) fn set_consent(
    py: Python<'_>,
    application: &str,
    accept: bool,
    pid: Option<i32>,
    socket: Option<String>,
) -> PyResult<()> {
    let policy = if accept { ConsentPolicy::Accept } else { ConsentPolicy::Decline };
    let request = ConsentRequest { policy, pid };
    py.detach(|| connect(socket)?.consent(application, request).map(drop).map_err(python))
}

/// Nobody answers for an application any more.
#[pyfunction]
#[pyo3(signature = (application, socket))]
pub(crate) fn end_consent(py: Python<'_>, application: &str, socket: Option<String>) -> PyResult<()> {
    py.detach(|| connect(socket)?.end_consent(application).map_err(python))
}

/// The applications for which the user answers, as JSON.
#[pyfunction]
#[pyo3(signature = (socket))]
pub(crate) fn consents_json(py: Python<'_>, socket: Option<String>) -> PyResult<String> {
    let all = py.detach(|| connect(socket)?.consents().map_err(python))?;
    Ok(serde_json::to_string(&all).expect("answers are plain values"))
}
