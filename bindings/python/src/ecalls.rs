//! ECalls: connection, subscriptions, services. Any thread may use them; while one thread waits, other Python threads
//! run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use qfabric_client::Nanos;
use qfabric_client::ecalls::{
    Attribute, CALL_VALUES, Ecalls, Moment, Notice, OwnService, Subscription, SubscriptionBuilder, event_json,
};
use serde_json::{Map, Value};

use crate::connect;
use crate::errors::python;
use crate::held::{Held, in_steps};

pub(crate) fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn seconds(timeout: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(timeout)
        .map_err(|_| value_error(format!("the timeout is {timeout}; use a number of seconds, 0 or more")))
}

/// A connection for ECalls; everything made with it ends when it ends.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeEcalls {
    session: Ecalls,
    attributes: Mutex<BTreeMap<String, Attribute>>,
}

#[pymethods]
impl NativeEcalls {
    #[new]
    #[pyo3(signature = (socket=None))]
    fn new(py: Python<'_>, socket: Option<String>) -> PyResult<Self> {
        let session = py.detach(|| Ecalls::connect(&connect(socket)?).map_err(python))?;
        Ok(NativeEcalls { session, attributes: Mutex::default() })
    }

    /// All services, as JSON.
    fn services_json(&self, py: Python<'_>) -> PyResult<String> {
        let list = py.detach(|| self.session.services()).map_err(python)?;
        Ok(serde_json::to_string(&list).expect("services are plain values"))
    }

    /// Subscribes; the request is JSON.
    fn subscribe_json(&self, py: Python<'_>, request: &str) -> PyResult<NativeSubscription> {
        let request: qfabric_client::ecalls::SubscriptionRequest =
            serde_json::from_str(request).map_err(value_error)?;
        let made = py.detach(|| self.session.subscribe(&SubscriptionBuilder::from(request))).map_err(python)?;
        Ok(NativeSubscription { has_memory: made.wake_fd().is_some(), held: Held::new(made) })
    }

    /// Announces a service; `format` has the C declaration of its event.
    fn register(&self, py: Python<'_>, name: &str, format: &str, about: &str, open: bool) -> PyResult<NativeService> {
        let made = py.detach(|| self.session.register_service(name, about, format, open)).map_err(python)?;
        Ok(NativeService(Held::new(made)))
    }

    /// Gives E-code a name.
    fn name_handler(&self, py: Python<'_>, name: &str, code: &str) -> PyResult<()> {
        py.detach(|| self.session.name_handler(name, code)).map(drop).map_err(python)
    }

    /// Value of an attribute.
    fn get_attribute(&self, py: Python<'_>, name: &str) -> PyResult<i64> {
        self.with_attribute(py, name, Attribute::get)
    }

    /// A fast user-ECall: sets an attribute with a plain store.
    fn set_attribute(&self, py: Python<'_>, name: &str, value: i64) -> PyResult<()> {
        self.with_attribute(py, name, |attribute| attribute.set(value))
    }

    /// A deferred user-ECall: queues a value, for one moment if `when` names it.
    #[pyo3(signature = (value, when=None))]
    fn defer(&self, py: Python<'_>, value: i64, when: Option<&str>) -> PyResult<()> {
        let moment = when.map(|when| when.parse::<Moment>().map_err(value_error)).transpose()?;
        let defer = || match moment {
            Some(moment) => self.session.defer_at(value, moment),
            None => self.session.defer(value),
        };
        py.detach(defer).map_err(python)
    }

    /// The generic call: sends `data` to the service's owner and waits at most `timeout` seconds for the answer.
    #[pyo3(signature = (service, data, timeout=1.0))]
    fn call<'py>(&self, py: Python<'py>, service: &str, data: &[u8], timeout: f64) -> PyResult<Bound<'py, PyBytes>> {
        let patience = seconds(timeout)?;
        let answer = py.detach(|| self.session.call(service, data, patience)).map_err(python)?;
        Ok(PyBytes::new(py, &answer))
    }

    /// The next notice as (kind, number, text or data); None if none arrives within `timeout` seconds.
    fn next_notice(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(&'static str, u64, Vec<u8>)>> {
        let patience = seconds(timeout)?;
        let told = in_steps(py, patience, |step| self.session.next_notice(step).transpose())?;
        let told = told.transpose().map_err(python)?;
        Ok(told.map(|notice| match notice {
            Notice::Call { call, data, .. } => ("call", call, data),
            Notice::TakenOut { subscription, why } => ("taken_out", subscription, why.into_bytes()),
            Notice::Ended { subscription, why } => ("ended", subscription, why.into_bytes()),
        }))
    }

    /// Answers a call.
    fn reply(&self, py: Python<'_>, call: u64, data: &[u8]) -> PyResult<()> {
        py.detach(|| self.session.reply(call, data)).map_err(python)
    }
}

impl NativeEcalls {
    /// Runs without the interpreter: the first call of a connection waits for the daemon, and a second thread waits
    /// for that call.
    fn with_attribute<A: Send>(
        &self,
        py: Python<'_>,
        name: &str,
        act: impl FnOnce(&Attribute) -> A + Send,
    ) -> PyResult<A> {
        py.detach(|| {
            let mut known = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.contains_key(name) {
                known.insert(name.to_owned(), self.session.attribute(name).map_err(python)?);
            }
            Ok(act(&known[name]))
        })
    }
}

/// A subscription.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeSubscription {
    held: Held<Subscription>,
    has_memory: bool,
}

const ENDED: &str = "the subscription has ended";

impl NativeSubscription {
    fn with<A: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut Subscription) -> PyResult<A> + Send) -> PyResult<A> {
        self.held.with(py, ENDED, act)
    }
}

#[pymethods]
impl NativeSubscription {
    /// The next event as (time in ns, JSON object); None if none arrives within `timeout` seconds.
    fn next_json(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(u64, String)>> {
        let patience = seconds(timeout)?;
        // Without memory no event comes, and the call returns at once.
        let patience = if self.has_memory { patience } else { Duration::ZERO };
        self.held.wait(py, ENDED, patience, |subscription, step| {
            let format = subscription.info().format.clone();
            let event = subscription.next(step).map_err(python)?;
            Ok(event.map(|event| {
                let fields = Value::Object(event_json::decode(&format, event.data));
                (event.time_ns, fields.to_string())
            }))
        })
    }

    /// A fast user-ECall: the verdict of the handlers, for eight values.
    fn call(&self, py: Python<'_>, values: [i64; CALL_VALUES]) -> PyResult<i64> {
        self.with(py, |subscription| subscription.call(values).map(|verdict| verdict.0).map_err(python))
    }

    /// Counter of events in the shared memory.
    #[getter]
    fn flag(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |subscription| Ok(subscription.flag()))
    }

    /// The subscription's counters and state, as JSON.
    fn info_json(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |subscription| {
            let info = subscription.now().map_err(python)?;
            Ok(serde_json::to_string(&info).expect("a subscription is plain values"))
        })
    }

    /// Ends the subscription. A second call has no effect.
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        self.held.end(py, Subscription::unsubscribe).unwrap_or(Ok(())).map_err(python)
    }
}

/// A service of this process.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeService(Held<OwnService>);

#[pymethods]
impl NativeService {
    /// Raises an event; the fields are a JSON object.
    fn raise_json(&self, py: Python<'_>, fields: &str, pid: i32, deadline_us: u64, cpu: bool) -> PyResult<()> {
        let fields: Map<String, Value> = serde_json::from_str(fields).map_err(value_error)?;
        self.0.with(py, "the service has ended", |service| {
            let data = event_json::encode(&service.info().format, &fields).map_err(value_error)?;
            service.raise_event(pid, &data, Nanos::from_micros(deadline_us), cpu).map_err(python)
        })
    }

    /// Ends the service. A second call has no effect.
    fn unregister(&self, py: Python<'_>) -> PyResult<()> {
        self.0.end(py, OwnService::unregister).unwrap_or(Ok(())).map_err(python)
    }
}
