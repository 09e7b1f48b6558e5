//! The metrics on TCP, for a Prometheus that cannot read a Unix socket. Off unless the configuration has an address.
//!
//! Only `GET /metrics` is served. Beyond loopback every request needs the token of the configuration. A web page in a
//! browser of this machine must not read the numbers under a name that it owns (DNS rebinding), so requests without a
//! token must name the address itself or `localhost`.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;

use super::accept::after_failure;
use super::answers::Refused;
use super::listening;
use super::server::bounded;
use crate::auth::is_same_secret;
use crate::web::is_local_name;
use crate::{ending, problem};

/// The key of the configuration that has the address.
const KEY: &str = "metrics.listen";
/// Connections at the same time; further ones wait.
const CONNECTIONS: usize = 16;

/// Where the metrics are served, and the token that requests need.
pub(crate) struct MetricsSocket {
    address: SocketAddr,
    /// `None` while the address is in use.
    listener: Option<StdListener>,
    token: Option<String>,
}

impl MetricsSocket {
    pub(crate) fn open(address: SocketAddr, token: Option<String>) -> MetricsSocket {
        let listener = listening::listen(KEY, address).inspect_err(|why| {
            tracing::error!("{why}; until then the metrics are served on the Unix socket only");
        });
        MetricsSocket { address, listener: listener.ok(), token }
    }

    /// Tries the address again if another program had it.
    fn listener(&mut self) -> Option<StdListener> {
        self.listener.take().or_else(|| listening::listen(KEY, self.address).ok())
    }
}

/// An address for metrics, and the token that requests need.
pub(crate) type MetricsPlace = (SocketAddr, Option<String>);

/// Serves until dropped, at the place that `places` gave last. `first` is open already.
pub(crate) async fn serve_metrics(
    first: Option<MetricsSocket>,
    mut places: Receiver<Option<MetricsPlace>>,
    router: Router,
    timeout: Duration,
) -> io::Result<()> {
    let mut socket = first;
    loop {
        let next = match socket.take() {
            // Without a sender there is no reload, and so no other place.
            None => match places.recv().await {
                Some(next) => next,
                None => return Ok(()),
            },
            Some(socket) => tokio::select! {
                outcome = serve_at(socket, router.clone(), timeout) => return outcome,
                Some(next) = places.recv() => next,
            },
        };
        // The former socket is closed already, so the same address is free.
        socket = next.map(|(address, token)| MetricsSocket::open(address, token));
    }
}

async fn serve_at(mut socket: MetricsSocket, router: Router, timeout: Duration) -> io::Result<()> {
    let listener = loop {
        match socket.listener() {
            Some(listener) => break TcpListener::from_std(listener)?,
            None => tokio::time::sleep(listening::RETRY).await,
        }
    };
    tracing::info!(address = %socket.address, "metrics are served");
    let token = socket.token.map(Arc::<str>::from);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve_one(stream, token.clone(), router.clone(), timeout);
                ending::spawn("metrics connection", async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => after_failure(&error, KEY).await,
        }
    }
}

async fn serve_one(stream: TcpStream, token: Option<Arc<str>>, router: Router, timeout: Duration) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let allowed = is_allowed(&request, token.as_deref());
        let answer = allowed.then(|| router.call(request));
        async move {
            Ok::<Response, Infallible>(match answer {
                Some(answer) => answer.await.into_response(),
                None => Refused::from(problem::no_token()).into_response(),
            })
        }
    });
    let connection = bounded(timeout).serve_connection(TokioIo::new(stream), service);
    // An idle connection keeps its place for a minute at most.
    if let Ok(Err(error)) = tokio::time::timeout(timeout.max(Duration::from_secs(60)), connection).await {
        tracing::debug!(%error, "connection for metrics ended");
    }
}

/// With a token: the request has it. Without: the request names this machine by its address.
fn is_allowed<B>(request: &Request<B>, token: Option<&str>) -> bool {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    match token {
        Some(token) => {
            let given = header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            given.is_some_and(|given| is_same_secret(given.as_bytes(), token.as_bytes()))
        }
        None => header(HOST).is_some_and(is_local_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let request = headers.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap()
    }

    #[test]
    fn with_a_token_only_requests_that_have_it_are_answered() {
        let token = Some("0123456789abcdef");
        assert!(is_allowed(&request(&[("authorization", "Bearer 0123456789abcdef")]), token));
        for wrong in ["Bearer 0123456789abcdee", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", ""] {
            assert!(!is_allowed(&request(&[("authorization", wrong), ("host", "127.0.0.1")]), token), "{wrong}");
        }
        assert!(!is_allowed(&request(&[("host", "localhost")]), token));
    }

    #[test]
    fn metrics_are_served_as_soon_as_another_program_gives_the_port_back() {
        let taken = StdListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut socket = MetricsSocket::open(address, None);
        assert!(socket.listener().is_none());
        drop(taken);
        assert_eq!(socket.listener().unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn metrics_move_to_another_address_and_end_without_one() {
        let free = || StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (one, other) = (free(), free());
        let (places, receiver) = tokio::sync::mpsc::channel(1);
        let first = Some(MetricsSocket::open(one, None));
        let serving = tokio::spawn(serve_metrics(first, receiver, Router::new(), Duration::from_secs(5)));
        assert!(TcpStream::connect(one).await.is_ok());
        places.send(Some((other, None))).await.unwrap();
        while TcpStream::connect(other).await.is_err() {}
        assert!(TcpStream::connect(one).await.is_err(), "the former address is closed");
        places.send(None).await.unwrap();
        while TcpStream::connect(other).await.is_ok() {}
        drop(places);
        serving.await.unwrap().unwrap();
    }

    #[test]
    fn without_a_token_a_name_of_others_is_refused() {
        let allowed = |host| is_allowed(&request(&[("host", host)]), None);
        assert!(["127.0.0.1:9464", "localhost", "LOCALHOST:1", "[::1]:9464", "::1"].into_iter().all(allowed));
        assert!(!["evil.example:9464", "evil.example", "", "127.0.0.1.evil.example"].into_iter().any(allowed));
        assert!(!is_allowed(&request(&[]), None));
    }
}
