//! Accepts TCP connections and completes their TLS handshakes: a bounded number at the same time, and from each network a
//! bounded number in a second.
//!
//! Zenoh accepts connections through a crate of this name that bounds handshakes by their time, and not by their number.
//! This crate takes its place with the part of its interface that Zenoh uses. A failed handshake is counted and logged
//! here, and Zenoh does not see it: after each error Zenoh would accept nothing for a time.
#![forbid(unsafe_code)]

mod places;
mod rates;

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Aborted, abortable};
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{error::Elapsed, timeout};
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use places::Places;
pub use rates::{Rates, network_of};

/// Connections that are accepted before handshakes go on.
const BATCH: usize = 64;
/// Milliseconds between two log lines: a host that retries does so every second.
const LOG_INTERVAL: u64 = 30_000;

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Number of handshakes of this process that failed: the certificate is from another authority or has expired, the time
/// is over, another handshake needed the place, or its network began too many.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// A listener of connections whose certificates `tls` checks.
pub fn builder(tls: TlsAcceptor) -> Builder {
    Builder { tls, limit: Duration::from_secs(10) }
}

/// The settings of a listener.
pub struct Builder {
    tls: TlsAcceptor,
    limit: Duration,
}

impl Builder {
    /// Sets the time for a handshake.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Builder {
        self.limit = limit;
        self
    }

    /// Accepts the connections of `socket`.
    pub fn listen(self, socket: TcpListener) -> TlsListener {
        let Builder { tls, limit } = self;
        let (running, places, rates) = (FuturesUnordered::new(), Places::default(), Arc::default());
        TlsListener { socket, tls, limit, running, places, rates }
    }
}

/// A handshake that ended by itself, whose time is over, or that gave up its place.
type Outcome = Result<Result<io::Result<TlsStream<TcpStream>>, Elapsed>, Aborted>;
type Handshake = Pin<Box<dyn Future<Output = (u64, SocketAddr, Outcome)> + Send>>;

/// Accepts connections, and has a bounded number of unfinished handshakes.
pub struct TlsListener {
    socket: TcpListener,
    tls: TlsAcceptor,
    limit: Duration,
    running: FuturesUnordered<Handshake>,
    places: Places<AbortHandle>,
    rates: Arc<Mutex<Rates>>,
}

impl TlsListener {
    /// The next connection whose handshake is complete. Fails if the kernel gives no connection, for example because the
    /// process has no free descriptor. Unfinished handshakes survive a cancelled call.
    pub async fn accept(&mut self) -> io::Result<(TlsStream<TcpStream>, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(TlsStream<TcpStream>, SocketAddr)>> {
        loop {
            // Also without a free descriptor handshakes go on: those that end give theirs back.
            let begun = self.begin(context);
            match self.running.poll_next_unpin(context) {
                Poll::Ready(Some((number, from, outcome))) => {
                    self.places.leave(number);
                    if let Some(stream) = completed(outcome) {
                        return Poll::Ready(Ok((stream, from)));
                    }
                }
                Poll::Ready(None) | Poll::Pending => match begun {
                    Ok(true) => return Poll::Pending,
                    Ok(false) => {}
                    Err(error) => return Poll::Ready(Err(not_accepted(error))),
                },
            }
        }
    }

    /// Begins the handshakes of new connections. Returns whether no connection waits.
    fn begin(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..BATCH {
            match self.socket.poll_accept(context) {
                Poll::Ready(accepted) => {
                    let (stream, from) = accepted?;
                    let network = network_of(from.ip());
                    let handshake = handshake(self.tls.clone(), stream, network, self.rates.clone());
                    let (handshake, end) = abortable(timeout(self.limit, handshake));
                    let (number, ends) = self.places.enter(network, end);
                    if let Some(ends) = ends {
                        ends.abort();
                    }
                    self.running.push(Box::pin(async move { (number, from, handshake.await) }));
                }
                Poll::Pending => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// Waits for the client's first message, and answers it if the account of the network covers it. The answer is what costs
/// CPU time here: a key exchange and a signature.
async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    network: IpAddr,
    rates: Arc<Mutex<Rates>>,
) -> io::Result<TlsStream<TcpStream>> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    if !rates.lock().unwrap_or_else(PoisonError::into_inner).take(network, Instant::now()) {
        let why = format!("{network} begins more handshakes than its 128 in a second");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    begun.into_stream(tls.config().clone()).await
}

fn not_accepted(error: io::Error) -> io::Error {
    if log_is_due() {
        tracing::warn!(%error, "cannot accept a connection of another host; raise LimitNOFILE if this repeats");
    }
    error
}

/// The connection, if the handshake succeeded.
fn completed(outcome: Outcome) -> Option<TlsStream<TcpStream>> {
    const FIREWALL: &str = "see the guide on a firewall in front of the daemon";
    let (why, next) = match outcome {
        Ok(Ok(Ok(stream))) => return Some(stream),
        Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::ResourceBusy => (error.to_string(), FIREWALL),
        Ok(Ok(Err(error))) => (error.to_string(), "compare certificates, see its log"),
        Ok(Err(late)) => (late.to_string(), "see its log"),
        Err(Aborted) => ("it was the oldest of too many".to_owned(), FIREWALL),
    };
    REFUSED.fetch_add(1, Ordering::Relaxed);
    if log_is_due() {
        tracing::warn!(why, "refused the TLS handshake of another host; {next}");
    }
    None
}

fn log_is_due() -> bool {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(BEGIN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX);
    let next = NEXT.load(Ordering::Relaxed);
    now >= next && NEXT.compare_exchange(next, now + LOG_INTERVAL, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
