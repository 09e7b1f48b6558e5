//! HTTP/1.1 on a Unix socket, with bounds for the number of connections, the time for the head, the time for the
//! whole answer, and the bytes of the body.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use qfabric_types::api::Problem;
use tokio::net::UnixStream;

use super::accept::{Place, accept_each};
use crate::auth::Peer;
use crate::problem;

/// Largest number of bytes of request line and headers.
const HEAD_LIMIT: usize = 16 << 10;

/// HTTP/1.1 with bounds for the head; `timeout` is the time for it.
pub(crate) fn bounded(timeout: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).half_close(true).header_read_timeout(timeout).max_buf_size(HEAD_LIMIT);
    http
}

/// Serves until dropped.
pub(crate) async fn serve_http(
    listener: UnixListener,
    router: Router,
    places: usize,
    timeout: Duration,
) -> std::io::Result<()> {
    let serve = |stream, peer, place| serve_one(stream, peer, router.clone(), place, timeout);
    let refuse = |stream: &UnixStream, problem| refuse(stream, &problem);
    accept_each(listener.into(), "qfabric.sock", places, serve, refuse).await
}

/// Answers with the reason for the refusal, if the socket has room for it, and closes. The request is not read.
fn refuse(stream: &UnixStream, problem: &Problem) {
    let (status, body) = (problem::status(problem), serde_json::to_string(problem).unwrap_or_default());
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // Fails if the client has gone already.
    let _ = stream.try_write(answer.as_bytes());
}

/// Serves one connection. The head and the answer (see `routes`) have time limits, so that an idle or slow caller
/// frees its place.
async fn serve_one(stream: UnixStream, peer: Peer, router: Router, _place: Place, timeout: Duration) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let connection = bounded(timeout).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, uid = peer.owner.uid, "connection ended");
    }
}
