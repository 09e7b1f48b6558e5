//! HTTP/1.1 on a Unix socket, with a bound on everything: connections, time for the head, time for the whole
//! answer, bytes of body.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use qfabric_types::api::Problem;
use tokio::net::UnixStream;

use super::accept::{Place, Places};
use crate::auth::Peer;
use crate::problem;

/// Bytes of request line and headers.
const HEAD_LIMIT: usize = 16 << 10;
/// After this error nothing can be accepted for a while (descriptors are used up).
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until dropped.
pub(crate) async fn serve_http(
    listener: UnixListener,
    router: Router,
    places: usize,
    timeout: Duration,
) -> std::io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let places = Places::new(places);
    loop {
        let permit = places.wait().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(peer) = Peer::of(&stream) else { continue };
                match places.take(permit, peer) {
                    Ok(place) => drop(tokio::spawn(serve_one(stream, peer, router.clone(), place, timeout))),
                    Err(problem) => refuse(&stream, &problem),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Says why there is no place, as far as the socket takes it at once, and hangs up: nothing was read.
fn refuse(stream: &UnixStream, problem: &Problem) {
    let (status, body) = (problem::status(problem), serde_json::to_string(problem).unwrap_or_default());
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // Whoever has gone already has no use for it.
    let _ = stream.try_write(answer.as_bytes());
}

/// One connection. The head has a time limit of its own, the answer too (see `routes`), so an idle or a slow
/// caller gives its place back.
async fn serve_one(stream: UnixStream, peer: Peer, router: Router, _place: Place, timeout: Duration) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(timeout)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, uid = peer.owner.uid, "connection ended");
    }
}
