//! A rate that the daemon reserved for one flow of this process, renewed until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::{StreamChange, StreamId, StreamInfo, StreamSpec};
use qfabric_types::{BitRate, Nanos};

use crate::client::Client;
use crate::error::ClientError;

/// A crashed process keeps the rate for at most this time.
const LEASE: Nanos = Nanos::from_millis(10_000);
/// Three attempts fit into the lease.
const RENEWAL: Duration = Duration::from_secs(3);

/// A stream of the daemon that this process began, as the proof of a reservation: transports that send at a rate without
/// congestion control ask for one. A thread renews the lease; dropping it ends the stream.
#[derive(Debug)]
pub struct ReservedRate {
    client: Client,
    interface: String,
    stream: StreamId,
    rate: BitRate,
    is_live: Arc<AtomicBool>,
    /// Dropping it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Begins a stream on an interface and holds it. The lease of `spec` is replaced.
    pub fn reserve_rate(&self, interface: &str, spec: &StreamSpec) -> Result<ReservedRate, ClientError> {
        let info = self.begin_stream(interface, &leased(spec))?;
        self.hold(interface, &info)
    }

    /// Like [`Client::reserve_rate`], with a rate drawn from a joint contract.
    pub fn reserve_rate_of_contract(
        &self,
        contract: &JointId,
        interface: &str,
        spec: &StreamSpec,
    ) -> Result<ReservedRate, ClientError> {
        let info = self.begin_stream_of_contract(contract, interface, spec)?;
        self.hold(interface, &info)
    }

    fn hold(&self, interface: &str, info: &StreamInfo) -> Result<ReservedRate, ClientError> {
        let is_live = Arc::new(AtomicBool::new(true));
        let (stop, stopped) = channel();
        let (client, name, live, stream) = (self.clone(), interface.to_owned(), is_live.clone(), info.id);
        // The stream of a contract has no lease of its own; its end is noticed all the same.
        let renews = info.promise.ends_in.is_some();
        let renew = move || {
            while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                let change = StreamChange { lease: renews.then_some(LEASE), ..StreamChange::default() };
                live.store(client.change_stream(&name, stream, &change).is_ok(), Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("reserved-rate".to_owned()).spawn(renew);
        let thread = thread.map_err(|error| {
            // Report the first error.
            let _ = self.end_stream(interface, stream);
            ClientError::Value(format!("cannot start a thread to renew the reservation: {error}"))
        })?;
        Ok(ReservedRate {
            client: self.clone(),
            interface: interface.to_owned(),
            stream,
            rate: info.promise.rate_bps,
            is_live,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

fn leased(spec: &StreamSpec) -> StreamSpec {
    let mut spec = spec.clone();
    spec.terms.lease = Some(LEASE);
    spec
}

impl ReservedRate {
    /// The promised rate, with all headers.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The interface whose link promised it.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The number of the stream on its interface.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Whether the daemon still promises the rate, as of the last renewal (at most 3 s ago).
    pub fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }
}

impl Drop for ReservedRate {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and the stream has to end in any case.
            let _ = thread.join();
        }
        // Fails if the stream has ended already; else its lease ends it.
        let _ = self.client.end_stream(&self.interface, self.stream);
    }
}
