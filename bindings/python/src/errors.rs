//! The client's errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use qfabric_client::{ClientError, JointRefusal, Problem};

create_exception!(qfabric, Error, PyException, "A call failed. Has code and next_step.");
create_exception!(qfabric, NoDaemon, Error, "No daemon answers; the text names the sockets tried.");
create_exception!(qfabric, SinkEnded, Error, "The sink has ended: its channel was closed, or the access list changed.");
create_exception!(
    qfabric,
    Refused,
    Error,
    "The daemon refused the request and changed nothing. Has code, next_step, asked, free, offer, offer_memory, \
     offer_rate; of a joint contract also refused_by, resource, largest, holders, others."
);

/// The exception for an error; an invalid argument becomes a `ValueError`. Each has the attributes `code` and
/// `next_step`.
pub(crate) fn python(error: ClientError) -> PyErr {
    let (problem, text) = (error.problem(), error.to_string());
    let exception = match error {
        ClientError::NoDaemon { .. } => NoDaemon::new_err(text),
        ClientError::SinkEnded { .. } => SinkEnded::new_err(text),
        ClientError::Contract(_) | ClientError::Value(_) => PyValueError::new_err(text),
        ClientError::Refused(problem) => return refused(text, &problem),
        ClientError::JointRefused(refusal) => return joint_refused(text, &refusal),
        _ => Error::new_err(text),
    };
    explained(exception, &problem)
}

/// The exception with the attributes `code` and `next_step`.
pub(crate) fn explained(exception: PyErr, problem: &Problem) -> PyErr {
    Python::attach(|py| {
        let value = exception.value(py);
        let attributes =
            value.setattr("code", &problem.code).and_then(|()| value.setattr("next_step", &problem.next_step));
        attributes.err().unwrap_or(exception)
    })
}

pub(crate) fn refused(text: String, problem: &Problem) -> PyErr {
    Python::attach(|py| {
        let error = Refused::new_err(text);
        let value = error.value(py);
        let share = |share: Option<qfabric_client::Share>| share.map(qfabric_client::Share::as_f64);
        // The loan that another host offers: its name, the seconds until it expires, and the claim.
        let offer = problem.offer.as_ref();
        let offer_memory = offer.map(|offer| offer.memory.get());
        let offer_rate = offer.and_then(|offer| offer.rate.as_ref());
        let offer_rate = offer_rate.map(|kept| (kept.interface.as_str(), kept.rate.get()));
        let offer = offer.map(|offer| (offer.host.as_str(), offer.held_ns.get() as f64 / 1e9, offer.claim.to_string()));
        let attributes = value
            .setattr("code", &problem.code)
            .and_then(|()| value.setattr("next_step", &problem.next_step))
            .and_then(|()| value.setattr("asked", share(problem.asked)))
            .and_then(|()| value.setattr("free", share(problem.free)))
            .and_then(|()| value.setattr("offer", offer))
            .and_then(|()| value.setattr("offer_memory", offer_memory))
            .and_then(|()| value.setattr("offer_rate", offer_rate));
        attributes.err().unwrap_or(error)
    })
}

fn joint_refused(text: String, refusal: &JointRefusal) -> PyErr {
    let error = refused(text, &refusal.problem);
    Python::attach(|py| {
        let value = error.value(py);
        let resource = refusal.resource.as_ref().map(ToString::to_string);
        // Each host whose contracts hold the resource, and the sum of their amounts.
        let holders: Vec<(&str, f64)> =
            refusal.holders.iter().map(|holder| (holder.initiator.as_str(), holder.amount)).collect();
        let attributes = value
            .setattr("refused_by", refusal.refused_by.as_str())
            .and_then(|()| value.setattr("resource", resource))
            .and_then(|()| value.setattr("asked", refusal.asked))
            .and_then(|()| value.setattr("free", refusal.free))
            .and_then(|()| value.setattr("largest", refusal.largest))
            .and_then(|()| value.setattr("holders", holders))
            .and_then(|()| value.setattr("others", refusal.others));
        attributes.err().unwrap_or(error)
    })
}
