//! Serves the page, with bounds for connections, requests, heads and times.
//!
//! ```text
//! accepted ──> stranger ──(with a certificate: TLS within 2 s)──> …
//! … ──> stranger ──(first valid token)──> place of the user ──> closed when idle for api.timeout
//!    │            └──(no valid token for 10 s, or in 64 requests)──> closed
//!    └──(too many strangers)──> refused
//! ```

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CACHE_CONTROL, CONNECTION, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard::{Cause, Refusal, Target, judge};
use super::{Web, assets, counts, tag, tls};
use crate::api::answers::Refused;
use crate::api::{Caller, Failures, Place, Places, RETRY, bounded, network_of};
use crate::auth::Peer;
use crate::{ending, problem};

/// Connections of users. One user has at most a quarter; a browser opens at most six to one host.
const USERS: usize = 64;
/// Connections that have not shown a token yet.
const STRANGERS: usize = 32;
/// Time in which a connection must show a token.
const STRANGER_TIME: Duration = Duration::from_secs(10);
/// Time for a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(2);
/// Requests of a connection without a valid token, after which it is closed. A browser needs nine for the page.
const STRANGER_REQUESTS: u32 = 64;
/// Longest answer of the API that is passed on, in bytes; the API's own limits of applications and channels keep
/// answers shorter.
const ANSWER_LIMIT: usize = 64 << 20;

/// Parts that all connections use.
struct Desk {
    web: Arc<Web>,
    router: TowerToHyperService<Router>,
    places: Places,
    /// The connections of each network that have not shown a token yet; only with TLS.
    networks: Places,
    timeout: Duration,
}

/// Waits until the listening socket is opened, then serves it until dropped.
pub(crate) async fn serve_web(
    web: Arc<Web>,
    mut opened: Receiver<StdListener>,
    router: Router,
    timeout: Duration,
) -> io::Result<()> {
    let Some(listener) = opened_socket(&web, &mut opened).await else { return Ok(()) };
    let listener = TcpListener::from_std(listener)?;
    let router = TowerToHyperService::new(router);
    let desk = Arc::new(Desk { web, router, places: Places::new(USERS), networks: Places::new(STRANGERS), timeout });
    let (strangers, mut failures) = (Arc::new(Semaphore::new(STRANGERS)), Failures::of("web.listen"));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match desk.seat(strangers.clone(), from) {
                Some(seat) => drop(ending::spawn("web page", greet(stream, from, desk.clone(), seat))),
                // The connection closes without an answer: it has not sent a request yet.
                None => counts::refused(Cause::Limit),
            },
            Err(error) => failures.pause(&error).await,
        }
    }
}

/// Waits for the listening socket; tries the configured address again while another program has it.
async fn opened_socket(web: &Web, opened: &mut Receiver<StdListener>) -> Option<StdListener> {
    loop {
        tokio::select! {
            listener = opened.recv() => return listener,
            // The error was logged at the first attempt, and each attempt is counted.
            () = tokio::time::sleep(RETRY) => drop(web.open_configured()),
        }
    }
}

/// What a connection holds: the permit of a stranger, or the place of its user.
enum Seat {
    Stranger {
        _permit: OwnedSemaphorePermit,
        /// With TLS, other hosts reach the page: one network must not take all permits.
        _of_network: Option<Place>,
        requests: u32,
    },
    User {
        uid: u32,
        _place: Place,
    },
}

type SharedSeat = Arc<Lock<Seat, { rank::PAGE_SEAT }>>;

/// Serves a connection, with TLS if the page has a certificate.
async fn greet(stream: TcpStream, from: SocketAddr, desk: Arc<Desk>, seat: Seat) {
    // The end of a long answer must not wait for the browser's acknowledgment. Fails if the browser has gone.
    let _ = stream.set_nodelay(true);
    let Some(tls) = desk.web.tls() else { return serve_one(stream, desk, seat).await };
    let network = network_of(from.ip());
    let may_begin = || desk.web.may_begin_handshake(network, Instant::now());
    let outcome = tokio::time::timeout(HANDSHAKE_TIME, tls::accept(&tls, stream, may_begin)).await;
    match outcome {
        Ok(Ok(stream)) => serve_one(stream, desk, seat).await,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
            counts::refused(Cause::Limit);
            tracing::debug!(%error, %network, "a TLS handshake with the web page was not answered");
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake with the web page failed"),
        Err(_) => tracing::debug!("a TLS handshake with the web page took too long"),
    }
}

async fn serve_one<S>(stream: S, desk: Arc<Desk>, seat: Seat)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seat: SharedSeat = Arc::new(Lock::new(seat));
    let (http, held) = (bounded(desk.timeout), seat.clone());
    let service = service_fn(move |request| {
        let (desk, seat) = (desk.clone(), held.clone());
        async move { Ok::<_, Infallible>(desk.answer(request, &seat).await) }
    });
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = tokio::time::sleep(STRANGER_TIME) => {
            if is_stranger(&seat) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = ended {
        // The parser refused it before it was a request.
        if error.is_parse() {
            counts::asked();
            counts::refused(if error.is_parse_too_large() { Cause::Limit } else { Cause::Method });
        }
        tracing::debug!(%error, "connection to the web page ended");
    }
}

fn is_stranger(seat: &SharedSeat) -> bool {
    seat.with(|seat| matches!(seat, Seat::Stranger { .. }))
}

/// Counts a request of a stranger; `true` if the connection must not send another one.
fn is_exhausted(seat: &SharedSeat) -> bool {
    seat.with(|seat| match seat {
        Seat::Stranger { requests, .. } => {
            *requests += 1;
            *requests >= STRANGER_REQUESTS
        }
        Seat::User { .. } => false,
    })
}

impl Desk {
    /// The seat of a new connection from `from`; `None` if there are too many strangers.
    fn seat(&self, strangers: Arc<Semaphore>, from: SocketAddr) -> Option<Seat> {
        let permit = strangers.try_acquire_owned().ok()?;
        let of_network = match self.web.site().is_secured {
            true => {
                let network = network_of(from.ip());
                Some(self.networks.try_take_for(Caller::Network(network))?)
            }
            false => None,
        };
        Some(Seat::Stranger { _permit: permit, _of_network: of_network, requests: 0 })
    }

    async fn answer(&self, request: Request<Incoming>, seat: &SharedSeat) -> Response {
        counts::asked();
        let known = request.headers().get(IF_NONE_MATCH).cloned();
        let answered = match judge(&request, self.web.site()) {
            Ok(Target::File(asset)) => Ok(asset.response()),
            Ok(Target::Data(token)) => match self.admit(token, seat) {
                Ok(peer) => Ok(self.read(request, peer).await),
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        let mut response = answered.unwrap_or_else(|Refusal { cause, problem }| {
            counts::refused(cause);
            Refused::from(*problem).into_response()
        });
        if known.is_some() && response.headers().get(ETAG) == known.as_ref() {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Body::empty();
        }
        if is_exhausted(seat) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        assets::protect(response.headers_mut());
        response
    }

    /// The user of the token, who then has a place for this connection.
    fn admit(&self, token: &str, seat: &SharedSeat) -> Result<Peer, Refusal> {
        let peer = self.web.admit(token, clock::now()).map_err(|problem| match problem.code.as_str() {
            "no_token" => Refusal::new(Cause::Token, problem),
            _ => Refusal::new(Cause::Limit, problem),
        })?;
        let mut seat = seat.lock();
        let is_seated = matches!(&*seat, Seat::User { uid, .. } if *uid == peer.owner.uid);
        if !is_seated {
            let uid = peer.owner.uid;
            let none = || Refusal::new(Cause::Limit, problem::too_many_page_connections(uid));
            *seat = Seat::User { uid, _place: self.places.try_take(peer).ok_or_else(none)? };
        }
        Ok(peer)
    }

    /// The answer of the API to this user, with a tag by which the next request asks for changes only.
    async fn read(&self, mut request: Request<Incoming>, peer: Peer) -> Response {
        request.extensions_mut().insert(peer);
        let Ok(response) = self.router.call(request).await;
        let (mut head, body) = response.into_parts();
        let Ok(bytes) = to_bytes(body, ANSWER_LIMIT).await else {
            return Refused::from(problem::internal("the answer is too long".to_owned())).into_response();
        };
        head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if head.status == StatusCode::OK {
            head.headers.insert(ETAG, tag(&bytes));
        }
        Response::from_parts(head, Body::from(bytes))
    }
}
