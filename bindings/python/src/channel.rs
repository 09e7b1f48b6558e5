//! Q-channels: connection, channels, sources, sinks. Any thread may use them; while one thread waits, other Python
//! threads run.

use std::os::fd::AsRawFd;

use pyo3::prelude::*;
use qfabric_client::channel::{
    Attributes, Channel, Channels, Direction, Filter, FilterScope, GroupRequest, Installed, Notice, Policy,
    Registration, Sink, SinkOptions, Source, SourceOptions, Spec, Submission,
};
use qfabric_client::clock;
use qfabric_client::ecalls::event_json;
use serde_json::{Map, Value, json};

use crate::connect;
use crate::ecalls::{seconds, value_error};
use crate::errors::{Refused, python};
use crate::held::Held;

/// A connection for channels; everything made with it ends when it ends.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeChannels(Channels);

#[pymethods]
impl NativeChannels {
    #[new]
    #[pyo3(signature = (socket=None))]
    fn new(py: Python<'_>, socket: Option<String>) -> PyResult<Self> {
        let connected = py.detach(|| Channels::connect(&connect(socket)?).map_err(python))?;
        Ok(NativeChannels(connected))
    }

    /// Name of this host on the network.
    #[getter]
    fn host(&self) -> &str {
        self.0.host()
    }

    /// File descriptor that is readable while a message waits.
    fn fileno(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }

    /// The next notice of the daemon as JSON; None if no notice waits.
    fn next_notice_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let notice = py.detach(|| self.0.next_notice()).map_err(python)?;
        Ok(notice.map(|notice| noticed(&notice).to_string()))
    }

    /// The policies of this host, as JSON.
    fn policies_json(&self, py: Python<'_>) -> PyResult<String> {
        let list = py.detach(|| self.0.policies()).map_err(python)?;
        Ok(serde_json::to_string(&list).expect("policies are plain values"))
    }

    /// Starts a policy. Request and answer are JSON.
    fn start_policy_json(&self, py: Python<'_>, policy: &str) -> PyResult<String> {
        let policy: Policy = serde_json::from_str(policy).map_err(value_error)?;
        let info = py.detach(|| self.0.start_policy(&policy)).map_err(python)?;
        Ok(serde_json::to_string(&info).expect("a policy is plain values"))
    }

    /// Stops a policy.
    fn stop_policy(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.0.stop_policy(name)).map_err(python)
    }

    /// The channels of all hosts, as JSON.
    fn list_json(&self, py: Python<'_>) -> PyResult<String> {
        let list = py.detach(|| self.0.list()).map_err(python)?;
        Ok(serde_json::to_string(&list).expect("channels are plain values"))
    }

    /// Registers an application with a group; the request is JSON.
    fn register_json(&self, py: Python<'_>, request: &str) -> PyResult<NativeRegistration> {
        let request: GroupRequest = serde_json::from_str(request).map_err(value_error)?;
        let made = py.detach(|| self.0.register_as(request)).map_err(python)?;
        Ok(NativeRegistration(Held::new(made)))
    }

    /// Creates a channel; `order` and `pressure` have the API's values.
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        formats: &str,
        order: &str,
        pressure: &str,
    ) -> PyResult<NativeChannel> {
        let spec = Spec { order: named(order)?, pressure: named(pressure)?, ..Spec::of(formats) };
        let made = py.detach(|| self.0.create(name, &spec)).map_err(python)?;
        Ok(NativeChannel(Held::new(made)))
    }

    /// Opens a channel.
    fn open(&self, py: Python<'_>, name: &str) -> PyResult<NativeChannel> {
        let opened = py.detach(|| self.0.open(name)).map_err(python)?;
        Ok(NativeChannel(Held::new(opened)))
    }
}

fn noticed(notice: &Notice) -> Value {
    match notice {
        Notice::Refused { source, why, .. } => json!({"kind": "refused", "source": source, "why": why}),
        Notice::SourceEnded { source, why } => json!({"kind": "source ended", "source": source, "why": why}),
        Notice::SinkEnded { sink, why } => json!({"kind": "sink ended", "sink": sink, "why": why}),
        Notice::Decided { channel, attribute, subject, amount } => json!({
            "kind": "decided",
            "channel": channel,
            "attribute": attribute,
            "subject": subject,
            "amount": amount,
        }),
    }
}

fn named<T: serde::de::DeserializeOwned>(name: &str) -> PyResult<T> {
    serde_json::from_value(Value::from(name)).map_err(value_error)
}

/// A membership of a group.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeRegistration(Held<Registration>);

#[pymethods]
impl NativeRegistration {
    /// Reports a number to the policies: `app.show_need`, `app.position`, or another attribute that begins with
    /// `app.`.
    fn report(&self, py: Python<'_>, attribute: &str, value: i64) -> PyResult<()> {
        self.0.with(py, "the registration has ended", |held| held.report(attribute, value).map_err(python))
    }

    /// Leaves the group. A second call has no effect.
    fn leave(&self, py: Python<'_>) {
        self.0.end(py, drop);
    }
}

/// A channel.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeChannel(Held<Channel>);

impl NativeChannel {
    fn with<A: Send>(&self, py: Python<'_>, act: impl FnOnce(&Channel) -> PyResult<A> + Send) -> PyResult<A> {
        self.0.with(py, "the channel is closed", |channel| act(channel))
    }
}

#[pymethods]
impl NativeChannel {
    /// The channel's types, members and filters, as JSON.
    fn info_json(&self, py: Python<'_>) -> PyResult<String> {
        let info = self.with(py, |channel| channel.look().map_err(python))?;
        Ok(serde_json::to_string(&info).expect("a channel is plain values"))
    }

    /// Joins as a source.
    fn source(&self, py: Python<'_>) -> PyResult<NativeSource> {
        self.with(py, |channel| {
            let source = channel.source_subscribe(&SourceOptions::default()).map_err(python)?;
            Ok(NativeSource { source: Held::new(source), types: types(channel) })
        })
    }

    /// Joins as a sink; the attributes are a JSON object.
    fn sink(&self, py: Python<'_>, types_wanted: Vec<String>, attributes: &str, capacity: u32) -> PyResult<NativeSink> {
        let attributes = serde_json::from_str(attributes).map_err(value_error)?;
        let options = SinkOptions { types: types_wanted, attributes, capacity, ..SinkOptions::default() };
        self.with(py, |channel| {
            let sink = channel.sink(&options).map_err(python)?;
            Ok(NativeSink { sink: Held::new(sink), types: types(channel) })
        })
    }

    /// Installs a filter; `parameters` and `to` are JSON.
    fn install(
        &self,
        py: Python<'_>,
        direction: &str,
        name: &str,
        code: String,
        parameters: &str,
        to: &str,
    ) -> PyResult<()> {
        let parameters = serde_json::from_str(parameters).map_err(value_error)?;
        let to: FilterScope = serde_json::from_str(to).map_err(value_error)?;
        let (direction, filter): (Direction, _) =
            (named(direction)?, Filter { code, parameters, to, ..Filter::default() });
        self.with(py, |channel| channel.install(direction, name, &filter).map_err(python).and_then(all_agree))
    }

    /// Changes a parameter of a filter.
    fn set_parameter(
        &self,
        py: Python<'_>,
        direction: &str,
        name: &str,
        parameter: &str,
        value: i64,
        to: &str,
    ) -> PyResult<()> {
        let to: FilterScope = serde_json::from_str(to).map_err(value_error)?;
        let direction = named(direction)?;
        let set = |channel: &Channel| channel.set_parameter(direction, name, parameter, value, to).map_err(python);
        self.with(py, |channel| set(channel).and_then(all_agree))
    }

    /// Closes the channel. A second call has no effect.
    fn leave(&self, py: Python<'_>) {
        self.0.end(py, drop);
    }
}

fn all_agree(installed: Installed) -> PyResult<()> {
    let refused = installed.hosts.into_iter().find_map(|answer| Some(format!("{}: {}", answer.host, answer.refused?)));
    refused.map_or(Ok(()), |why| Err(Refused::new_err(why)))
}

type Formats = Vec<qfabric_client::channel::TypeInfo>;

fn types(channel: &Channel) -> Formats {
    channel.info().types.clone()
}

/// A source.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeSource {
    source: Held<Source>,
    types: Formats,
}

#[pymethods]
impl NativeSource {
    /// Submits an event; fields and attributes are JSON objects. Returns (number, remote, local, filtered, dropped).
    fn submit_json(
        &self,
        py: Python<'_>,
        event_type: Option<&str>,
        fields: &str,
        attributes: &str,
        deadline: Option<f64>,
    ) -> PyResult<(u64, u32, u32, u32, u32)> {
        self.with_event(py, event_type, fields, attributes, deadline, |source, event| {
            let sent = source.submit_and_wait(event).map_err(python)?;
            Ok((sent.number, sent.remote, sent.local, sent.filtered, sent.dropped))
        })
    }

    /// Submits an event without waiting for its answer; waits at most `patience` seconds for room.
    fn submit_queued_json(
        &self,
        py: Python<'_>,
        event_type: Option<&str>,
        fields: &str,
        attributes: &str,
        deadline: Option<f64>,
        patience: f64,
    ) -> PyResult<()> {
        let patience = seconds(patience)?;
        self.with_event(py, event_type, fields, attributes, deadline, |source, event| {
            source.submit_queued(event, patience).map_err(python)
        })
    }

    /// Waits at most `patience` seconds until all queued events have gone to the channel; False if some still wait.
    fn drain(&self, py: Python<'_>, patience: f64) -> PyResult<bool> {
        let patience = seconds(patience)?;
        let drained = self.source.wait(py, "the source has left", patience, |source, step| {
            Ok(source.drain(step).map_err(python)?.then_some(()))
        });
        Ok(drained?.is_some())
    }

    /// Leaves the channel. A second call has no effect.
    fn leave(&self, py: Python<'_>) {
        self.source.end(py, drop);
    }
}

impl NativeSource {
    /// Calls `submit` with the event that the arguments describe.
    fn with_event<R: Send>(
        &self,
        py: Python<'_>,
        event_type: Option<&str>,
        fields: &str,
        attributes: &str,
        deadline: Option<f64>,
        submit: impl FnOnce(&Source, &Submission<'_>) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        let (event_type, payload) = self.encode(event_type, fields)?;
        let attributes: Vec<(String, i64)> = pairs(attributes)?;
        let attributes: Vec<_> = attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let after = deadline.map(seconds).transpose()?;
        self.source.with(py, "the source has left", |source| {
            let deadline = after.map(|after| clock::now() + qfabric_client::Nanos::new(after.as_nanos() as u64));
            let (attributes, payload) = (attributes.as_slice(), payload.as_slice());
            submit(source, &Submission { event_type, deadline, attributes, payload, ..Submission::default() })
        })
    }

    fn encode(&self, event_type: Option<&str>, fields: &str) -> PyResult<(u16, Vec<u8>)> {
        let fields: Map<String, Value> = serde_json::from_str(fields).map_err(value_error)?;
        let at = event_type.map_or(Some(0), |name| self.types.iter().position(|known| known.format.name == name));
        let known = at.and_then(|at| Some((at as u16, self.types.get(at)?)));
        let none = || value_error(format!("the channel has no events of type {}", event_type.unwrap_or("0")));
        let (number, known) = known.ok_or_else(none)?;
        Ok((number, event_json::encode_whole(&known.format, fields).map_err(value_error)?))
    }
}

/// The attribute by which an event says that the transcoder `name` was applied.
#[pyfunction]
pub(crate) fn transcoder_attribute(name: &str) -> PyResult<String> {
    qfabric_client::channel::transcoder_attribute(name).map_err(python)
}

/// The transcoders that attributes (a JSON object) name, in the order of their application.
#[pyfunction]
pub(crate) fn transcoded(attributes: &str) -> PyResult<Vec<String>> {
    let attributes: Vec<(String, i64)> = pairs(attributes)?;
    let attributes: Vec<_> = attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let names = qfabric_client::channel::transcoded(&Attributes::Listed(&attributes));
    Ok(names.into_iter().map(str::to_owned).collect())
}

fn pairs(attributes: &str) -> PyResult<Vec<(String, i64)>> {
    let map: std::collections::BTreeMap<String, i64> = serde_json::from_str(attributes).map_err(value_error)?;
    Ok(map.into_iter().collect())
}

/// A sink.
#[pyclass(module = "qfabric._qfabric")]
pub(crate) struct NativeSink {
    sink: Held<Sink>,
    types: Formats,
}

#[pymethods]
impl NativeSink {
    /// The next event as a JSON object; None if none arrives within `timeout` seconds.
    fn next_json(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let patience = seconds(timeout)?;
        self.sink.wait(py, "the sink has left", patience, |sink, step| {
            let received = sink.next(step).map_err(python)?;
            Ok(received.map(|received| shown(&self.types, &received.event()).to_string()))
        })
    }

    /// Sets a Q-attribute; None removes it.
    fn set_attribute(&self, py: Python<'_>, name: &str, value: Option<i64>) -> PyResult<()> {
        self.sink.with(py, "the sink has left", |sink| sink.set_attribute(name, value).map_err(python))
    }

    /// Leaves the channel. A second call has no effect.
    fn leave(&self, py: Python<'_>) {
        self.sink.end(py, drop);
    }
}

fn shown(types: &Formats, event: &qfabric_client::channel::Event<'_>) -> Value {
    let known = types.get(usize::from(event.event_type));
    let fields = known.map(|known| event_json::decode_whole(&known.format, event.payload)).unwrap_or_default();
    let attributes: Map<_, _> = event.attributes.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    json!({
        "type": known.map(|known| known.format.name.as_str()),
        "host": event.host,
        "source": event.source,
        "number": event.number,
        "sent_ns": event.sent_ns,
        "attributes": attributes,
        "event": fields,
    })
}
