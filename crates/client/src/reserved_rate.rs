//! A rate that the daemon reserved for one flow of this process, renewed until it is dropped.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use qfabric_shm::Process;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::{Selector, StreamChange, StreamId, StreamInfo, StreamSpec};
use qfabric_types::{BitRate, Nanos};

use crate::client::Client;
use crate::error::ClientError;

/// A crashed process keeps the rate for at most this time.
const LEASE: Nanos = Nanos::from_millis(10_000);
/// Three attempts fit into the lease.
const RENEWAL: Duration = Duration::from_secs(3);

/// A stream of the daemon that this process began, as the proof of a reservation: transports that send at a rate without
/// congestion control ask for one. A thread renews the lease; dropping it ends the stream.
///
/// **In a child made by `fork`** the stream belongs to the parent, where it continues: the child's copy is not live,
/// and dropping it does nothing.
#[derive(Debug)]
pub struct ReservedRate {
    client: Client,
    interface: String,
    stream: StreamId,
    selector: Selector,
    promise: Arc<Promise>,
    /// In a child of a fork the stream and the thread belong to the parent.
    by: Process,
    /// Dropping it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the daemon promised last.
#[derive(Debug)]
struct Promise {
    begun: Instant,
    /// Bits per second.
    rate: AtomicU64,
    /// The daemon refused a renewal: the stream has ended.
    is_refused: AtomicBool,
    /// Milliseconds after `begun` at which the last successful renewal was asked for.
    renewed_ms: AtomicU64,
}

impl Promise {
    fn new(rate: BitRate, begun: Instant) -> Promise {
        let (rate, is_refused) = (AtomicU64::new(rate.get()), AtomicBool::new(false));
        Promise { begun, rate, is_refused, renewed_ms: AtomicU64::new(0) }
    }

    /// Records the answer to a renewal that was asked for at `asked`. A daemon that does not answer may still hold the
    /// stream until its lease ends. Returns false when the daemon refused: nothing is left to renew.
    fn record(&self, asked: Instant, answer: &Result<StreamInfo, ClientError>) -> bool {
        match answer {
            Ok(info) => {
                self.rate.store(info.promise.rate_bps.get(), Ordering::Relaxed);
                let passed = asked.saturating_duration_since(self.begun).as_millis();
                self.renewed_ms.store(passed as u64, Ordering::Relaxed);
                true
            }
            Err(ClientError::Refused(_)) => {
                self.is_refused.store(true, Ordering::Relaxed);
                false
            }
            Err(_) => true,
        }
    }

    fn rate(&self) -> BitRate {
        BitRate::new(self.rate.load(Ordering::Relaxed))
    }

    /// Whether the lease still runs at `now`. The daemon counts it from a later time than `renewed_ms`.
    fn is_live(&self, now: Instant) -> bool {
        let renewed = self.begun + Duration::from_millis(self.renewed_ms.load(Ordering::Relaxed));
        let is_leased = now.saturating_duration_since(renewed) < Duration::from_nanos(LEASE.get());
        is_leased && !self.is_refused.load(Ordering::Relaxed)
    }
}

impl Client {
    /// Begins a stream on an interface and holds it. The lease of `spec` is replaced.
    pub fn reserve_rate(&self, interface: &str, spec: &StreamSpec) -> Result<ReservedRate, ClientError> {
        let (by, asked) = (process()?, Instant::now());
        let info = self.begin_stream(interface, &leased(spec))?;
        self.hold(interface, &info, asked, by)
    }

    /// Like [`Client::reserve_rate`], with a rate drawn from a joint contract.
    pub fn reserve_rate_of_contract(
        &self,
        contract: &JointId,
        interface: &str,
        spec: &StreamSpec,
    ) -> Result<ReservedRate, ClientError> {
        let (by, asked) = (process()?, Instant::now());
        let info = self.begin_stream_of_contract(contract, interface, spec)?;
        self.hold(interface, &info, asked, by)
    }

    fn hold(
        &self,
        interface: &str,
        info: &StreamInfo,
        asked: Instant,
        by: Process,
    ) -> Result<ReservedRate, ClientError> {
        let promise = Arc::new(Promise::new(info.promise.rate_bps, asked));
        let (stop, stopped) = channel();
        let (client, name, shared, stream) = (self.clone(), interface.to_owned(), promise.clone(), info.id);
        // The stream of a contract has no lease of its own; its end is noticed all the same.
        let renews = info.promise.ends_in.is_some();
        let renew = move || {
            while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                let change = StreamChange { lease: renews.then_some(LEASE), ..StreamChange::default() };
                let asked = Instant::now();
                if !shared.record(asked, &client.change_stream(&name, stream, &change)) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("reserved-rate".to_owned()).spawn(renew);
        let thread = thread.map_err(|error| {
            // Report the first error.
            let _ = self.end_stream(interface, stream);
            let why = format!("cannot start a thread to renew the reservation: {error}");
            ClientError::invalid(why, "raise the limit of threads (ulimit -u), or end some")
        })?;
        Ok(ReservedRate {
            client: self.clone(),
            interface: interface.to_owned(),
            stream,
            selector: info.spec.selector.clone(),
            promise,
            by,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

fn process() -> Result<Process, ClientError> {
    Process::current().map_err(ClientError::unnumbered)
}

fn leased(spec: &StreamSpec) -> StreamSpec {
    let mut spec = spec.clone();
    spec.terms.lease = Some(LEASE);
    spec
}

impl ReservedRate {
    /// The promised rate, with all headers, as of the last renewal (at most 3 s ago): a policy or the administrator may
    /// change it.
    pub fn rate(&self) -> BitRate {
        self.promise.rate()
    }

    /// The packets for which it is promised.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The interface whose link promised it.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The number of the stream on its interface.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Whether the daemon still promises the rate to this process: it has refused no renewal, and answered one within
    /// the last 10 s.
    pub fn is_live(&self) -> bool {
        self.by.is_current() && self.promise.is_live(Instant::now())
    }
}

impl Drop for ReservedRate {
    fn drop(&mut self) {
        if !self.by.is_current() {
            // The thread does not exist here: joining it would wait for ever, and locks that it held stay locked.
            mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and the stream has to end in any case.
            let _ = thread.join();
        }
        // Fails if the stream has ended already; else its lease ends it.
        let _ = self.client.end_stream(&self.interface, self.stream);
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::api::Problem;
    use qfabric_types::api::net::{StreamCounters, StreamPromise};

    use super::*;

    fn renewed_at(rate: u64) -> Result<StreamInfo, ClientError> {
        let spec = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let promise = StreamPromise { rate_bps: BitRate::new(rate), ..StreamPromise::default() };
        Ok(StreamInfo { id: 3, spec, utilization: 0.1, follows: None, promise, counters: StreamCounters::default() })
    }

    #[test]
    fn the_rate_is_that_of_the_last_renewal_and_two_failed_renewals_end_nothing() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let promise = Promise::new(BitRate::new(8_000_000), begun);
        assert!(promise.record(after(3), &renewed_at(2_000_000)));
        assert_eq!(promise.rate(), BitRate::new(2_000_000), "the daemon lowered it");
        let silence = || Err(ClientError::invalid("no answer", ""));
        assert!(promise.record(after(6), &silence()) && promise.is_live(after(6)));
        assert!(promise.record(after(9), &silence()) && promise.is_live(after(12)));
        assert!(!promise.is_live(after(13)), "the lease of 10 s began at 3 s");
        assert!(promise.record(after(14), &renewed_at(2_000_000)) && promise.is_live(after(14)));
    }

    #[test]
    fn a_refused_renewal_ends_the_promise_at_once() {
        let begun = Instant::now();
        let promise = Promise::new(BitRate::new(8_000_000), begun);
        let refused = ClientError::Refused(Problem::new("no_stream", "no stream 3", "list them"));
        assert!(!promise.record(begun, &Err(refused)));
        assert!(!promise.is_live(begun));
    }
}
