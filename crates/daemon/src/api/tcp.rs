//! The metrics on TCP, for a Prometheus that cannot read a Unix socket. Off unless the configuration has an address.
//!
//! Only `GET /metrics` is served. Beyond loopback every request needs the token of the configuration. A web page in a
//! browser of this machine must not read the numbers under a name that it owns (DNS rebinding), so requests without a
//! token must name the address itself or `localhost`.
//!
//! Connections have places as on the Unix sockets. A caller of this host counts as the user of its socket, one of
//! another host as its network. A connection keeps its place until it ends, soon after its last answer.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
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
use qfabric_linux::net::{flow_users, is_own_address};
use qfabric_types::api::net::{Flow, Protocol};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;

use super::accept::{Caller, Failures, Places};
use super::answers::{Refused, aside};
use super::listening;
use super::server::bounded;
use crate::auth::is_same_secret;
use crate::web::is_local_name;
use crate::{ending, problem};

/// The key of the configuration that has the address.
const KEY: &str = "metrics.listen";
/// Connections at the same time; further ones, and those beyond a quarter of one caller, are closed.
const CONNECTIONS: usize = 16;
/// Longest time until the head of a request is complete, from the beginning of the connection or the last answer.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Longest time of a connection, in which also a caller that reads slowly has an answer.
const LONGEST: Duration = Duration::from_secs(10);

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
    let (places, mut failures) = (Places::new(CONNECTIONS), Failures::of(KEY));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                failures.pause(&error).await;
                continue;
            }
        };
        // Without a place the connection closes without an answer. What users and networks have too many of is counted.
        if let Some(place) = caller(&stream, from).await.and_then(|caller| places.try_take_for(caller)) {
            let serving = serve_one(stream, token.clone(), router.clone(), timeout);
            ending::spawn("metrics connection", async move {
                serving.await;
                drop(place);
            });
        }
    }
}

/// Whom a connection counts for. `None`: it has ended.
async fn caller(stream: &TcpStream, from: SocketAddr) -> Option<Caller> {
    let own = stream.local_addr().ok()?;
    // The table of sockets may be long.
    aside(move || Ok(caller_between(from, own))).await.ok()
}

/// The user whose socket of this host is connected from `from` to `own`. Without one, the caller has closed it already,
/// or the connection comes from another host or from another network namespace: its network counts.
fn caller_between(from: SocketAddr, own: SocketAddr) -> Caller {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let flow = Flow { protocol: Protocol::Tcp, source: plain(from), destination: plain(own) };
    let users = is_own_address(flow.source.ip()).then(|| flow_users(&flow).unwrap_or_default());
    match users.and_then(|users| users.last().copied()) {
        Some(uid) => Caller::User(uid),
        None => Caller::Network(network_of(flow.source.ip())),
    }
}

/// The network of an address, which may be an IPv4 address in the form of IPv6. A host may use all IPv6 addresses of its
/// /64.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
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
    let connection = bounded(timeout.min(HEAD_TIME)).serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(LONGEST, connection).await {
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
    fn a_connection_of_this_host_counts_for_its_user_and_others_for_their_network() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, own) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let user = Caller::User(rustix::process::geteuid().as_raw());
        assert_eq!(caller_between(from, own), user);
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => address,
        };
        assert_eq!(caller_between(mapped(from), mapped(own)), user, "a listener for IPv4 and IPv6");
        for (far, network) in [("192.0.2.7:9", "192.0.2.7"), ("[2001:db8::1:2]:9", "2001:db8::")] {
            assert_eq!(caller_between(far.parse().unwrap(), own), Caller::Network(network.parse().unwrap()));
        }
        drop(stream);
        assert_ne!(caller_between(from, own), Caller::User(0), "the kernel shows a closed connection as root's");
    }

    #[tokio::test]
    async fn a_silent_connection_is_closed_though_the_api_waits_longer() {
        let (places, receiver) = tokio::sync::mpsc::channel(1);
        let address = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let first = Some(MetricsSocket::open(address, None));
        tokio::spawn(serve_metrics(first, receiver, Router::new(), Duration::from_secs(3_600)));
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(tokio::io::AsyncReadExt::read(&mut silent, &mut [0; 1]).await.unwrap(), 0);
        drop(places);
    }

    #[test]
    fn without_a_token_a_name_of_others_is_refused() {
        let allowed = |host| is_allowed(&request(&[("host", host)]), None);
        assert!(["127.0.0.1:9464", "localhost", "LOCALHOST:1", "[::1]:9464", "::1"].into_iter().all(allowed));
        assert!(!["evil.example:9464", "evil.example", "", "127.0.0.1.evil.example"].into_iter().any(allowed));
        assert!(!is_allowed(&request(&[]), None));
    }
}
