//! The client's errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use qfabric_client::{ClientError, Problem};

create_exception!(qfabric, Error, PyException, "Something between the application and its daemon went wrong.");
create_exception!(qfabric, NoDaemon, Error, "No daemon answers; the text names the sockets tried.");
create_exception!(
    qfabric,
    Refused,
    Error,
    "The daemon said no; nothing was changed. Has code, next_step, asked, free."
);

/// The exception that goes with an error; what cannot be meant is a `ValueError`.
pub(crate) fn python(error: ClientError) -> PyErr {
    let text = error.to_string();
    match error {
        ClientError::NoDaemon { .. } => NoDaemon::new_err(text),
        ClientError::Contract(_) | ClientError::Value(_) => PyValueError::new_err(text),
        ClientError::Refused(problem) => refused(text, &problem),
        _ => Error::new_err(text),
    }
}

fn refused(text: String, problem: &Problem) -> PyErr {
    Python::attach(|py| {
        let error = Refused::new_err(text);
        let value = error.value(py);
        let share = |share: Option<qfabric_client::Share>| share.map(qfabric_client::Share::as_f64);
        let attributes = value
            .setattr("code", &problem.code)
            .and_then(|()| value.setattr("next_step", &problem.next_step))
            .and_then(|()| value.setattr("asked", share(problem.asked)))
            .and_then(|()| value.setattr("free", share(problem.free)));
        attributes.err().unwrap_or(error)
    })
}
