//! Media over METP (QualMan §6.4): the native halves of `ServerConnection` and `ClientConnection`.
//!
//! Several threads may use a connection at the same time, so it is shared and not held by one of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use qfabric_carrier::{
    ClientConnection, Connection, Engine, Error, Event, FrameKind, Message, Mode, Options, Outcome, ServerConnection,
    Target, Tls, resolve,
};
use qfabric_client::{Nanos, code_point};
use qfabric_types::{BitRate, Bytes};

use crate::connect;
use crate::ecalls::value_error;
use crate::errors::{self, python};
use crate::held::{Shared, end, in_steps};

const CLOSED: &str = "the connection is closed";

/// The exception for an error; an invalid argument becomes a `ValueError`.
fn raised(error: Error) -> PyErr {
    let problem = error.problem();
    let exception = match error {
        Error::Daemon(error) => return python(*error),
        Error::Refused(_) | Error::Stranger { .. } => return errors::refused(error.to_string(), &problem),
        Error::Option { .. } | Error::Message(_) | Error::Address { .. } | Error::Realm(_) | Error::Profile(_) => {
            value_error(&problem)
        }
        Error::TimeOut { .. } => pyo3::exceptions::PyTimeoutError::new_err(error.to_string()),
        _ => errors::Error::new_err(problem.to_string()),
    };
    errors::explained(exception, &problem)
}

/// Identity, mode and sizes of one end.
#[derive(FromPyObject)]
pub(crate) struct Settings {
    tls: String,
    host: String,
    service: String,
    partially_reliable: bool,
    rate: Option<u64>,
    largest_message: Option<u64>,
    send_time: Option<f64>,
    receive_time: Option<f64>,
    streams: bool,
    dscp: Option<u32>,
}

impl Settings {
    fn read(self) -> PyResult<(Tls, qfabric_types::channel::Name, Options)> {
        let name = |text: &str| text.parse().map_err(|error| value_error(format!("{text:?}: {error}")));
        let (host, service, folder) = (name(&self.host)?, name(&self.service)?, Path::new(&self.tls));
        let tls = Tls::from_folder(folder, &host, &folder.join("access.toml"));
        let tls = tls.map_err(|error| raised(error.into()))?;
        let base = Options::default();
        let options = Options {
            engine: if self.streams { Engine::Streams } else { Engine::Metp },
            mode: mode(self.partially_reliable),
            rate: self.rate.map_or(base.rate, BitRate::new),
            largest_message: self.largest_message.map_or(base.largest_message, Bytes::new),
            send_time: self.send_time.map(time).transpose()?,
            receive_time: self.receive_time.map(time).transpose()?,
            dscp: self.dscp.map(code_point).transpose().map_err(python)?,
            ..base
        };
        Ok((tls, service, options))
    }
}

fn mode(is_partially_reliable: bool) -> Mode {
    if is_partially_reliable { Mode::PartiallyReliable } else { Mode::TotallyReliable }
}

fn time(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| value_error(format!("{seconds} s: {error}")))
}

enum Role {
    Client(ClientConnection),
    Server(Connection),
}

impl Role {
    fn connection(&self) -> &Connection {
        match self {
            Role::Client(client) => client,
            Role::Server(connection) => connection,
        }
    }
}

/// A connection; None after `close`.
#[pyclass(frozen)]
pub(crate) struct NativeMetp(Shared<Role>);

impl NativeMetp {
    fn new(role: Role) -> NativeMetp {
        NativeMetp(Shared::new(role))
    }

    fn shared(&self) -> PyResult<Arc<Role>> {
        self.0.get().ok_or_else(|| value_error(CLOSED))
    }

    /// Runs `act` without the interpreter.
    fn with<T: Send>(&self, py: Python<'_>, act: impl FnOnce(&Role) -> Result<T, Error> + Send) -> PyResult<T> {
        let shared = self.shared()?;
        py.detach(move || act(&shared)).map_err(raised)
    }

    /// Runs an `act` that waits; Python handles signals meanwhile. None: the time is over.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        within: Duration,
        act: impl Fn(&Connection, Duration) -> Result<T, Error> + Send + Sync,
    ) -> PyResult<Option<T>> {
        let shared = self.shared()?;
        let came = in_steps(py, within, |step| in_time(act(shared.connection(), step)));
        end(py, shared);
        came?.transpose().map_err(raised)
    }
}

/// None: the time was over.
fn in_time<T>(waited: Result<T, Error>) -> Option<Result<T, Error>> {
    match waited {
        Err(Error::TimeOut { .. }) => None,
        other => Some(other),
    }
}

/// A message: number, kind, data, holes, and the seconds by which it was late.
type Received<'py> = (u64, &'static str, Bound<'py, PyBytes>, Vec<(usize, usize)>, f64);

#[pymethods]
impl NativeMetp {
    #[new]
    fn open(py: Python<'_>, address: String, settings: Settings) -> PyResult<Self> {
        let (tls, service, options) = settings.read()?;
        let open = || ClientConnection::open(Target::new(&address, service)?, tls, options);
        Ok(NativeMetp::new(Role::Client(py.detach(open).map_err(raised)?)))
    }

    fn peer(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |role| Ok(role.connection().peer().to_string()))
    }

    fn send(&self, py: Python<'_>, kind: &str, data: Vec<u8>, deadline: Option<f64>, within: f64) -> PyResult<u64> {
        let found = FrameKind::ALL.into_iter().find(|found| name(*found) == kind);
        let kind = found.ok_or_else(|| value_error(format!("{kind:?} is no kind: use I, P, B, audio or other")))?;
        let (deadline, within) = (deadline.map(time).transpose()?, time(within)?);
        self.with(py, |role| role.connection().send(kind, data, deadline, within))
    }

    /// None: no message came in time.
    fn receive<'py>(&self, py: Python<'py>, within: f64) -> PyResult<Option<Received<'py>>> {
        let within = time(within)?;
        let received = self.wait(py, within, Connection::receive)?;
        Ok(received.map(|message: Message| {
            let holes = message.holes.iter().map(|hole| (hole.start, hole.end)).collect();
            let late = message.late_by.as_secs_f64();
            (message.number, name(message.kind), PyBytes::new(py, &message.data), holes, late)
        }))
    }

    fn set_partially_reliable(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |role| role.connection().set_mode(mode(on)))
    }

    fn set_rate(&self, py: Python<'_>, rate: u64) -> PyResult<()> {
        self.with(py, |role| role.connection().set_rate(BitRate::new(rate)))
    }

    fn reserve(
        &self,
        py: Python<'_>,
        interface: &str,
        rate: u64,
        period: f64,
        socket: Option<String>,
    ) -> PyResult<u64> {
        let client = py.detach(|| connect(socket))?;
        let period = Nanos::new(time(period)?.as_nanos() as u64);
        let reserve = |role: &Role| role.connection().reserve(&client, interface, BitRate::new(rate), period, None);
        Ok(self.with(py, reserve)?.get())
    }

    fn record_delays(&self, py: Python<'_>, file: PathBuf, sizes: Vec<u64>) -> PyResult<()> {
        let sizes: Vec<Bytes> = sizes.into_iter().map(Bytes::new).collect();
        self.with(py, |role| role.connection().record_delays(&file, &sizes))
    }

    fn replace_carrier(&self, py: Python<'_>, address: &str, local: Option<String>, within: f64) -> PyResult<u32> {
        let within = time(within)?;
        let allowed = "the side that opened the connection";
        self.with(py, |role| {
            let local = local.map(|local| resolve(&local)).transpose()?;
            match role {
                Role::Client(client) => client.replace(local, resolve(address)?, within),
                Role::Server(_) => Err(Error::Option { option: "replace_carrier", value: address.to_owned(), allowed }),
            }
        })
    }

    fn rebind(&self, py: Python<'_>, local: &str, carrier: u32) -> PyResult<()> {
        self.with(py, |role| role.connection().rebind(carrier, resolve(local)?))
    }

    /// The next event as JSON.
    fn event_json(&self, py: Python<'_>, within: f64) -> PyResult<Option<String>> {
        let event = self.wait(py, time(within)?, Connection::event)?;
        Ok(event.map(|event| described(&event).to_string()))
    }

    fn flush(&self, py: Python<'_>, within: f64) -> PyResult<()> {
        let within = time(within)?;
        let what = "the outcome of all messages";
        self.wait(py, within, Connection::flush)?.ok_or_else(|| raised(Error::TimeOut { what, within }))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |role| role.connection().finish())
    }

    fn wait_for_end(&self, py: Python<'_>, within: f64) -> PyResult<String> {
        let within = time(within)?;
        let ended = self.wait(py, within, Connection::wait_for_end)?;
        let what = "the end of the connection";
        ended.map(|ended| ended.to_string()).ok_or_else(|| raised(Error::TimeOut { what, within }))
    }

    /// The counts as JSON.
    fn statistics_json(&self, py: Python<'_>) -> PyResult<String> {
        let found = self.with(py, |role| Ok(role.connection().statistics()))?;
        let session = found.session;
        let counts = serde_json::json!({
            "messages": session.messages,
            "delivered": session.delivered,
            "dropped": session.dropped.iter().sum::<u64>(),
            "expired": session.expired,
            "retransmissions": session.retransmissions,
            "received": session.received,
            "in_time": session.in_time,
            "with_holes": session.with_holes,
            "skipped": session.skipped,
            "delay_p50": session.delay.p50.as_secs_f64(),
            "delay_p99": session.delay.p99.as_secs_f64(),
            "min_rtt": session.min_rtt.as_secs_f64(),
            "rate": found.rate.get(),
            "granted": found.granted.map(BitRate::get),
            "revocations": found.revocations,
        });
        Ok(counts.to_string())
    }

    fn close(&self, py: Python<'_>) {
        let taken = self.0.take();
        py.detach(|| {
            if let Some(role) = taken {
                // Calls of other threads end, too.
                role.connection().close();
            }
        });
    }
}

/// An event as the dictionary that programs in Python get.
fn described(event: &Event) -> serde_json::Value {
    use serde_json::json;
    match event {
        Event::Outcome { number, kind, outcome } => {
            let (outcome, acknowledged) = match outcome {
                Outcome::Delivered => ("delivered", None),
                Outcome::Dropped(_) => ("dropped", None),
                Outcome::Expired => ("expired", None),
                Outcome::Partly { acknowledged } => ("partly", Some(acknowledged.get())),
                Outcome::Unknown => ("unknown", None),
            };
            let kind = name(*kind);
            json!({"event": "outcome", "number": number, "kind": kind, "outcome": outcome, "acknowledged": acknowledged})
        }
        Event::Skipped { first, count } => json!({"event": "skipped", "number": first, "count": count}),
        Event::ModeChanged { mode, from } => {
            let is_partial = *mode == Mode::PartiallyReliable;
            json!({"event": "mode_changed", "number": from, "partially_reliable": is_partial})
        }
        Event::PeerFinished => json!({"event": "peer_finished"}),
        Event::CarrierAttached { carrier } => json!({"event": "carrier_attached", "carrier": carrier}),
        Event::CarrierLost { carrier, why } => json!({"event": "carrier_lost", "carrier": carrier, "why": why}),
        Event::Revoked(why) => json!({"event": "revoked", "why": why.to_string()}),
    }
}

fn name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::I => "I",
        FrameKind::P => "P",
        FrameKind::B => "B",
        FrameKind::Audio => "audio",
        FrameKind::Other => "other",
    }
}

/// A service; None after `close`.
#[pyclass(frozen)]
pub(crate) struct NativeMetpServer(Shared<ServerConnection>);

#[pymethods]
impl NativeMetpServer {
    #[new]
    fn register(py: Python<'_>, address: &str, settings: Settings) -> PyResult<Self> {
        let (tls, service, options) = settings.read()?;
        let register = || ServerConnection::register(service, resolve(address)?, tls, options);
        Ok(NativeMetpServer(Shared::new(py.detach(register).map_err(raised)?)))
    }

    fn address(&self) -> PyResult<String> {
        Ok(self.shared()?.address().to_string())
    }

    /// None: no client came in time.
    fn accept(&self, py: Python<'_>, within: f64) -> PyResult<Option<NativeMetp>> {
        let (shared, within) = (self.shared()?, time(within)?);
        let came = in_steps(py, within, |step| in_time(shared.accept(step)));
        end(py, shared);
        let connection = came?.transpose().map_err(raised)?;
        Ok(connection.map(|connection| NativeMetp::new(Role::Server(connection))))
    }

    fn close(&self, py: Python<'_>) {
        let taken = self.0.take();
        py.detach(|| drop(taken));
    }
}

impl NativeMetpServer {
    fn shared(&self) -> PyResult<Arc<ServerConnection>> {
        self.0.get().ok_or_else(|| value_error("the service is closed"))
    }
}
