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
use tokio::net::UnixStream;

use super::accept::{Place, Places};
use crate::auth::Peer;

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
                let Some(place) = places.take(permit, peer.owner.uid) else {
                    tracing::debug!(uid = peer.owner.uid, "too many connections of one user");
                    continue;
                };
                tokio::spawn(serve_one(stream, peer, router.clone(), place, timeout));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
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
