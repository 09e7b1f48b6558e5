//! The paths of packet scheduling. Requests that call the kernel run in worker threads: the kernel verifies
//! programs while an interface is attached, which takes time.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, patch, post, put};
use axum::{Extension, Json, Router};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{
    AttachRequest, InterfaceInfo, LinkRequest, StreamChange, StreamId, StreamInfo, StreamSpec,
};

use super::{Net, namespaces};
use crate::api::answers::{Answer, created, done, number, read, shown};
use crate::auth::Peer;
use crate::problem;

type Shared = State<Arc<Net>>;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>(net: Arc<Net>) -> Router<S> {
    Router::new()
        .route("/v1/net", get(interfaces))
        .route("/v1/net/{interface}", get(show).put(attach).delete(detach))
        .route("/v1/net/{interface}/link", put(open_link).delete(close_link))
        .route("/v1/net/{interface}/streams", post(begin))
        .route("/v1/net/{interface}/streams/{id}", patch(change).delete(end))
        .with_state(net)
}

/// List the interfaces under packet scheduling
#[utoipa::path(get, path = "/v1/net", responses(
    (status = 200, description = "All interfaces with their streams", body = Vec<InterfaceInfo>),
))]
pub(crate) async fn interfaces(State(net): Shared) -> Answer<Json<Vec<InterfaceInfo>>> {
    shown(move || Ok(net.list())).await
}

/// Show one interface under packet scheduling
#[utoipa::path(get, path = "/v1/net/{interface}", params(("interface" = String, Path, description = "Its name")),
    responses(
    (status = 200, description = "The interface", body = InterfaceInfo),
    (status = 404, description = "The interface is not under packet scheduling", body = Problem),
))]
pub(crate) async fn show(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
) -> Answer<Json<InterfaceInfo>> {
    shown(for_caller(peer, move || net.show(&interface))).await
}

/// Put an interface under packet scheduling
#[utoipa::path(put, path = "/v1/net/{interface}", request_body = AttachRequest,
    params(("interface" = String, Path, description = "Its name")), responses(
    (status = 201, description = "Attached", body = InterfaceInfo),
    (status = 403, description = "The user may not change interfaces", body = Problem),
    (status = 404, description = "No interface has this name", body = Problem),
    (status = 409, description = "The interface is attached already, its queue could not be restored later, or the \
                                  kernel lacks support", body = Problem),
    (status = 422, description = "A value is out of range", body = Problem),
))]
pub(crate) async fn attach(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
    body: Body,
) -> Answer<Response> {
    let request: AttachRequest = read(body).await?;
    created(for_caller(peer, move || net.attach(peer, &interface, &request))).await
}

/// End packet scheduling of an interface and restore its former queue
#[utoipa::path(delete, path = "/v1/net/{interface}", params(("interface" = String, Path, description = "Its name")),
    responses(
    (status = 204, description = "The former queue is restored"),
    (status = 403, description = "The user may not change interfaces", body = Problem),
    (status = 404, description = "The interface is not under packet scheduling", body = Problem),
))]
pub(crate) async fn detach(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
) -> Answer<StatusCode> {
    done(for_caller(peer, move || net.detach(peer, &interface))).await
}

/// Open a link to all users, or replace its limits
///
/// Attaches the interface if it is not under packet scheduling.
#[utoipa::path(put, path = "/v1/net/{interface}/link", request_body = LinkRequest,
    params(("interface" = String, Path, description = "The interface's name")), responses(
    (status = 200, description = "The link is open", body = InterfaceInfo),
    (status = 403, description = "The user may not change interfaces", body = Problem),
    (status = 404, description = "No interface has this name", body = Problem),
    (status = 409, description = "The streams exceed the limits, or the interface cannot be attached", body = Problem),
    (status = 422, description = "A value is out of range", body = Problem),
))]
pub(crate) async fn open_link(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
    body: Body,
) -> Answer<Json<InterfaceInfo>> {
    let request: LinkRequest = read(body).await?;
    shown(for_caller(peer, move || net.open_link(peer, &interface, &request))).await
}

/// Close a link: the streams of users who may not change interfaces end
#[utoipa::path(delete, path = "/v1/net/{interface}/link",
    params(("interface" = String, Path, description = "The interface's name")), responses(
    (status = 204, description = "The link is closed; an interface that was attached for it has its former queue"),
    (status = 403, description = "The user may not change interfaces", body = Problem),
    (status = 404, description = "The link is not open", body = Problem),
))]
pub(crate) async fn close_link(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
) -> Answer<StatusCode> {
    done(for_caller(peer, move || net.close_link(peer, &interface))).await
}

/// Begin a stream
///
/// On an open link every user may, with a selector of own packets.
#[utoipa::path(post, path = "/v1/net/{interface}/streams", request_body = StreamSpec,
    params(("interface" = String, Path, description = "The interface's name")), responses(
    (status = 201, description = "Admitted, perhaps with a smaller C, if the terms allow", body = StreamInfo),
    (status = 403, description = "The link is not open, or the packets may belong to other users", body = Problem),
    (status = 404, description = "The interface is not under packet scheduling", body = Problem),
    (status = 409, description = "The link does not carry the stream, or another stream has its packets", body = Problem),
    (status = 422, description = "A value is out of range", body = Problem),
))]
pub(crate) async fn begin(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path(interface): Path<String>,
    body: Body,
) -> Answer<Response> {
    let spec: StreamSpec = read(body).await?;
    created(for_caller(peer, move || net.begin(peer, &interface, &spec))).await
}

/// Change a stream while packets pass
#[utoipa::path(patch, path = "/v1/net/{interface}/streams/{id}", request_body = StreamChange, params(
    ("interface" = String, Path, description = "The interface's name"),
    ("id" = u32, Path, description = "The stream's number"),
), responses(
    (status = 200, description = "Changed", body = StreamInfo),
    (status = 403, description = "The stream belongs to another user, or the link is not open", body = Problem),
    (status = 404, description = "No such stream", body = Problem),
    (status = 409, description = "The link does not carry the change; the stream stays as it was", body = Problem),
))]
pub(crate) async fn change(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path((interface, id)): Path<(String, String)>,
    body: Body,
) -> Answer<Json<StreamInfo>> {
    let (id, change): (_, StreamChange) = (numbered(&id)?, read(body).await?);
    shown(for_caller(peer, move || net.change(peer, &interface, id, &change))).await
}

/// End a stream: its packets are best effort from now on
#[utoipa::path(delete, path = "/v1/net/{interface}/streams/{id}", params(
    ("interface" = String, Path, description = "The interface's name"),
    ("id" = u32, Path, description = "The stream's number"),
), responses(
    (status = 204, description = "The stream has ended"),
    (status = 403, description = "The stream belongs to another user, or the link is not open", body = Problem),
    (status = 404, description = "No such stream", body = Problem),
))]
pub(crate) async fn end(
    State(net): Shared,
    Extension(peer): Extension<Peer>,
    Path((interface, id)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let id = numbered(&id)?;
    done(for_caller(peer, move || net.end(peer, &interface, id))).await
}

/// `act`, whose refusals name the network namespaces of the daemon and of the caller where they matter.
fn for_caller<T: 'static>(
    peer: Peer,
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> impl FnOnce() -> Result<T, Problem> + Send + 'static {
    move || act().map_err(|problem| namespaces::named(problem, peer))
}

fn numbered(id: &str) -> Result<StreamId, Problem> {
    number(id, "a stream").map_err(problem::invalid)
}
