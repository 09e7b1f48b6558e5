//! The paths of Q-channels. A call of the node may wait for its lock, so that a worker thread makes it.

pub(crate) mod access;
pub(crate) mod filters;
pub(crate) mod groups;
pub(crate) mod monitors;
pub(crate) mod policies;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, patch, post, put};
use axum::{Extension, Json, Router};
use qfabric_channel::{SinkId, SourceId};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    AttributeChanges, ChannelInfo, ChannelRequest, Joined, Lease, SinkRequest, SourceRequest,
};
use qfabric_types::channel::ChannelId;

use super::{Channels, problems};
use crate::api::answers::{Answer, created, done, number, read, shown, word};
use crate::auth::Peer;

pub(crate) type Shared = State<Arc<Channels>>;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>(channels: Arc<Channels>) -> Router<S> {
    let filter = put(filters::install).patch(filters::parametrize);
    Router::new()
        .route("/v1/channels", get(list).post(create))
        .route("/v1/channels/{channel}", get(show))
        .route("/v1/channels/{channel}/open", post(open))
        .route("/v1/channels/{channel}/close", post(close))
        .route("/v1/channels/{channel}/sources", post(join_source))
        .route("/v1/channels/{channel}/sinks", post(join_sink))
        .route("/v1/sources/{number}", patch(change_source).delete(leave_source))
        .route("/v1/sinks/{number}", patch(change_sink).delete(leave_sink))
        .route("/v1/channels/{channel}/filters/{direction}/{filter}", filter)
        .route("/v1/channels/{channel}/filters/{direction}/{filter}/remove", post(filters::remove))
        .route("/v1/channels/{channel}/filters/{direction}/{filter}/bindings", post(filters::bind))
        .route("/v1/groups", get(groups::list).post(groups::register))
        .route("/v1/registrations/{number}", axum::routing::delete(groups::unregister))
        .route("/v1/monitors", get(monitors::list))
        .route("/v1/monitors/{attribute}", put(monitors::set))
        .route("/v1/policies", get(policies::list).post(policies::start))
        .route("/v1/policies/{name}", axum::routing::delete(policies::stop))
        .route("/v1/policies/{name}/why", get(policies::why))
        .route("/v1/hosts", get(groups::hosts))
        .route("/v1/access/reload", post(access::reload))
        .with_state(channels)
}

/// Channels of all hosts
#[utoipa::path(get, path = "/v1/channels", responses(
    (status = 200, description = "All of them, with their members", body = Vec<ChannelInfo>),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn list(State(channels): Shared) -> Answer<Json<Vec<ChannelInfo>>> {
    shown(move || Ok(channels.on()?.list())).await
}

/// Create a channel; it exists while its connection or another one holds it
#[utoipa::path(post, path = "/v1/channels", request_body = ChannelRequest, responses(
    (status = 201, description = "Created", body = ChannelInfo),
    (status = 403, description = "The access list does not allow it", body = Problem),
    (status = 404, description = "No such connection to channels.sock", body = Problem),
    (status = 409, description = "There is one of this name", body = Problem),
    (status = 422, description = "The formats cannot be parsed", body = Problem),
    (status = 429, description = "Too many channels", body = Problem),
))]
pub(crate) async fn create(State(channels): Shared, Extension(peer): Extension<Peer>, body: Body) -> Answer<Response> {
    let request: ChannelRequest = read(body).await?;
    created(move || channels.on()?.create(peer, &request)).await
}

/// One channel
#[utoipa::path(get, path = "/v1/channels/{channel}",
    params(("channel" = String, Path, description = "Its name, or quality:NAME")), responses(
    (status = 200, description = "The channel, with its members and filters", body = ChannelInfo),
    (status = 404, description = "No host holds it", body = Problem),
))]
pub(crate) async fn show(State(channels): Shared, Path(channel): Path<String>) -> Answer<Json<ChannelInfo>> {
    let channel = named(&channel)?;
    shown(move || channels.on()?.show(&channel)).await
}

/// Open a channel that some host holds
#[utoipa::path(post, path = "/v1/channels/{channel}/open", request_body = Lease,
    params(("channel" = String, Path, description = "Its name, or quality:NAME")), responses(
    (status = 200, description = "Open; each opening ends with a closing, or with its connection", body = ChannelInfo),
    (status = 403, description = "The access list does not allow it", body = Problem),
    (status = 404, description = "No host holds it, or no such connection", body = Problem),
))]
pub(crate) async fn open(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(channel): Path<String>,
    body: Body,
) -> Answer<Json<ChannelInfo>> {
    let (channel, request): (_, Lease) = (named(&channel)?, read(body).await?);
    shown(move || channels.on()?.open(peer, &channel, request.lease)).await
}

/// Close one creation or opening; the last closing removes this host's members
#[utoipa::path(post, path = "/v1/channels/{channel}/close", request_body = Lease,
    params(("channel" = String, Path, description = "Its name, or quality:NAME")), responses(
    (status = 204, description = "Closed"),
    (status = 404, description = "No such connection", body = Problem),
    (status = 409, description = "It is not open under this connection", body = Problem),
))]
pub(crate) async fn close(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(channel): Path<String>,
    body: Body,
) -> Answer<StatusCode> {
    let (channel, request): (_, Lease) = (named(&channel)?, read(body).await?);
    done(move || channels.on()?.close(peer, &channel, request.lease)).await
}

/// Join as a source
#[utoipa::path(post, path = "/v1/channels/{channel}/sources", request_body = SourceRequest,
    params(("channel" = String, Path, description = "The channel's name, or quality:NAME")), responses(
    (status = 201, description = "Joined; events are submitted on channels.sock", body = Joined),
    (status = 403, description = "The access list does not allow it", body = Problem),
    (status = 409, description = "The channel is not open here", body = Problem),
    (status = 429, description = "Too many members", body = Problem),
))]
pub(crate) async fn join_source(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(channel): Path<String>,
    body: Body,
) -> Answer<Response> {
    let (channel, request): (_, SourceRequest) = (named(&channel)?, read(body).await?);
    created(move || channels.on()?.source(peer, &channel, request)).await
}

/// Join as a sink
#[utoipa::path(post, path = "/v1/channels/{channel}/sinks", request_body = SinkRequest,
    params(("channel" = String, Path, description = "The channel's name, or quality:NAME")), responses(
    (status = 201, description = "Joined; events come on channels.sock as far as there is credit", body = Joined),
    (status = 403, description = "The access list does not allow it", body = Problem),
    (status = 409, description = "The channel is not open here", body = Problem),
    (status = 422, description = "It cannot read the channel's events: names the first difference", body = Problem),
    (status = 429, description = "Too many members", body = Problem),
))]
pub(crate) async fn join_sink(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(channel): Path<String>,
    body: Body,
) -> Answer<Response> {
    let (channel, request): (_, SinkRequest) = (named(&channel)?, read(body).await?);
    created(move || channels.on()?.sink(peer, &channel, request)).await
}

/// Change attributes of a source
#[utoipa::path(patch, path = "/v1/sources/{number}", request_body = AttributeChanges,
    params(("number" = u32, Path, description = "Its number on this host")), responses(
    (status = 204, description = "Changed"),
    (status = 404, description = "No such source of this user", body = Problem),
    (status = 429, description = "Too many attributes", body = Problem),
))]
pub(crate) async fn change_source(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(number): Path<String>,
    body: Body,
) -> Answer<StatusCode> {
    let (source, changes): (_, AttributeChanges) = (SourceId(numbered(&number)?), read(body).await?);
    done(move || channels.on()?.change_source(peer, source, &changes)).await
}

/// End a source
#[utoipa::path(delete, path = "/v1/sources/{number}",
    params(("number" = u32, Path, description = "Its number on this host")), responses(
    (status = 204, description = "It has left"),
    (status = 404, description = "No such source of this user", body = Problem),
))]
pub(crate) async fn leave_source(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(number): Path<String>,
) -> Answer<StatusCode> {
    let source = SourceId(numbered(&number)?);
    done(move || channels.on()?.leave_source(peer, source)).await
}

/// Change attributes of a sink: OUT-filters of all sources see them
#[utoipa::path(patch, path = "/v1/sinks/{number}", request_body = AttributeChanges,
    params(("number" = u32, Path, description = "Its number on this host")), responses(
    (status = 204, description = "Changed"),
    (status = 404, description = "No such sink of this user", body = Problem),
    (status = 429, description = "Too many attributes", body = Problem),
))]
pub(crate) async fn change_sink(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(number): Path<String>,
    body: Body,
) -> Answer<StatusCode> {
    let (sink, changes): (_, AttributeChanges) = (SinkId(numbered(&number)?), read(body).await?);
    done(move || channels.on()?.change_sink(peer, sink, &changes)).await
}

/// End a sink, or a filter's binding
#[utoipa::path(delete, path = "/v1/sinks/{number}",
    params(("number" = u32, Path, description = "Its number on this host")), responses(
    (status = 204, description = "It has left"),
    (status = 404, description = "No such sink of this user", body = Problem),
))]
pub(crate) async fn leave_sink(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(number): Path<String>,
) -> Answer<StatusCode> {
    let sink = SinkId(numbered(&number)?);
    done(move || channels.on()?.leave_sink(peer, sink)).await
}

fn named(channel: &str) -> Result<ChannelId, Problem> {
    word(channel).map_err(problems::invalid)
}

fn numbered(text: &str) -> Result<u32, Problem> {
    number(text, "a member").map_err(problems::invalid)
}
