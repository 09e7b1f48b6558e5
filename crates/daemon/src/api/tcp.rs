//! The metrics on TCP, for a Prometheus that cannot read a Unix socket. Off unless the configuration has an address.
//!
//! Only `GET /metrics` is served. Beyond loopback every request needs the token of the configuration. A web page in a
//! browser of this machine must not read the numbers under a name that it owns (DNS rebinding), so requests without a
//! token must name the address itself or `localhost`.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener as StdListener;
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

use super::accept::after_failure;
use super::answers::Refused;
use super::server::bounded;
use crate::auth::is_same_secret;
use crate::web::is_local_name;
use crate::{ending, problem};

/// Connections at the same time; further ones wait.
const CONNECTIONS: usize = 16;

/// The listening socket of the metrics, and the token that requests need.
pub(crate) struct MetricsSocket {
    pub listener: StdListener,
    pub token: Option<String>,
}

/// Serves until dropped.
pub(crate) async fn serve_metrics(socket: MetricsSocket, router: Router, timeout: Duration) -> io::Result<()> {
    let MetricsSocket { listener, token } = socket;
    let (listener, token) = (TcpListener::from_std(listener)?, token.map(Arc::<str>::from));
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
            Err(error) => after_failure(&error, "metrics.listen").await,
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
    fn without_a_token_a_name_of_others_is_refused() {
        let allowed = |host| is_allowed(&request(&[("host", host)]), None);
        assert!(["127.0.0.1:9464", "localhost", "LOCALHOST:1", "[::1]:9464", "::1"].into_iter().all(allowed));
        assert!(!["evil.example:9464", "evil.example", "", "127.0.0.1.evil.example"].into_iter().any(allowed));
        assert!(!is_allowed(&request(&[]), None));
    }
}
