//! The paths of packet scheduling. Programs are verified while an interface is attached: that, and whatever else asks
//! the kernel, happens in a worker thread.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, patch, post};
use axum::{Extension, Json, Router};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{AttachRequest, InterfaceInfo, StreamChange, StreamId, StreamInfo, StreamSpec};

use super::Net;
use crate::api::answers::{Answer, created, done, number, read, shown};
use crate::auth::Peer;
use crate::problem;

type Shared = State<Arc<Net>>;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>(net: Arc<Net>) -> Router<S> {
    Router::new()
        .route("/v1/net", get(interfaces))
        .route("/v1/net/{interface}", get(show).put(attach).delete(detach))
        .route("/v1/net/{interface}/streams", post(begin))
        .route("/v1/net/{interface}/streams/{id}", patch(change).delete(end))
        .with_state(net)
}

/// Interfaces under packet scheduling
#[utoipa::path(get, path = "/v1/net", responses(
    (status = 200, description = "All of them, with their streams", body = Vec<InterfaceInfo>),
))]
pub(crate) async fn interfaces(State(net): Shared) -> Answer<Json<Vec<InterfaceInfo>>> {
    shown(move || Ok(net.list())).await
}

/// One interface under packet scheduling
#[utoipa::path(get, path = "/v1/net/{interface}", params(("interface" = String, Path, description = "Its name")),
    responses(
    (status = 200, description = "The interface", body = InterfaceInfo),
    (status = 404, description = "It is not under packet scheduling", body = Problem),
))]
pub(crate) async fn show(State(net): Shared, Path(interface): Path<String>) -> Answer<Json<InterfaceInfo>> {
    shown(move || net.show(&interface)).await
}

/// Put an interface under packet scheduling
#[utoipa::path(put, path = "/v1/net/{interface}", request_body = AttachRequest,
    params(("interface" = String, Path, description = "Its name")), responses(
    (status = 201, description = "Attached", body = InterfaceInfo),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "There is no such interface", body = Problem),
    (status = 409, description = "It is attached, has what cannot be put back, or the kernel cannot", body = Problem),
    (status = 422, description = "A value cannot be meant", body = Problem),
))]
pub(crate) async fn attach(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
    body: Body,
) -> Answer<Response> {
    let request: AttachRequest = read(body).await?;
    created(move || net.attach(peer, &interface, &request)).await
}

/// Put back what was there before
#[utoipa::path(delete, path = "/v1/net/{interface}", params(("interface" = String, Path, description = "Its name")),
    responses(
    (status = 204, description = "It is back"),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "It is not under packet scheduling", body = Problem),
))]
pub(crate) async fn detach(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
) -> Answer<StatusCode> {
    done(move || net.detach(peer, &interface)).await
}

/// Begin a stream
#[utoipa::path(post, path = "/v1/net/{interface}/streams", request_body = StreamSpec,
    params(("interface" = String, Path, description = "The interface's name")), responses(
    (status = 201, description = "Admitted", body = StreamInfo),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "The interface is not under packet scheduling", body = Problem),
    (status = 409, description = "The link does not carry it, or its packets are another's", body = Problem),
    (status = 422, description = "A value cannot be meant", body = Problem),
))]
pub(crate) async fn begin(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
    body: Body,
) -> Answer<Response> {
    let spec: StreamSpec = read(body).await?;
    created(move || net.begin(peer, &interface, &spec)).await
}

/// Change a stream while packets pass
#[utoipa::path(patch, path = "/v1/net/{interface}/streams/{id}", request_body = StreamChange, params(
    ("interface" = String, Path, description = "The interface's name"),
    ("id" = u32, Path, description = "The stream's number"),
), responses(
    (status = 200, description = "Changed", body = StreamInfo),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "No such stream", body = Problem),
    (status = 409, description = "The link does not carry that; the stream is as it was", body = Problem),
))]
pub(crate) async fn change(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path((interface, id)): Path<(String, String)>,
    body: Body,
) -> Answer<Json<StreamInfo>> {
    let (id, change): (_, StreamChange) = (numbered(&id)?, read(body).await?);
    shown(move || net.change(peer, &interface, id, &change)).await
}

/// End a stream: its packets are best effort from now on
#[utoipa::path(delete, path = "/v1/net/{interface}/streams/{id}", params(
    ("interface" = String, Path, description = "The interface's name"),
    ("id" = u32, Path, description = "The stream's number"),
), responses(
    (status = 204, description = "It has ended"),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "No such stream", body = Problem),
))]
pub(crate) async fn end(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path((interface, id)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let id = numbered(&id)?;
    done(move || net.end(peer, &interface, id)).await
}

fn numbered(id: &str) -> Result<StreamId, Problem> {
    number(id, "a stream").map_err(problem::invalid)
}
