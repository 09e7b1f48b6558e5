//! The paths of groups and hosts.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use qfabric_channel::RegistrationId;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{GroupInfo, GroupRequest, HostInfo, Registered};

use super::{Shared, numbered};
use crate::api::answers::{Answer, created, done, read, shown};
use crate::auth::Peer;

/// Groups with their members on all hosts
#[utoipa::path(get, path = "/v1/groups", responses(
    (status = 200, description = "All of them", body = Vec<GroupInfo>),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn list(State(channels): Shared) -> Answer<Json<Vec<GroupInfo>>> {
    shown(move || Ok(channels.on()?.network.groups())).await
}

/// Register an application with a group: the managers of its hosts meet on the group's Q-channel
#[utoipa::path(post, path = "/v1/groups", request_body = GroupRequest, responses(
    (status = 201, description = "Registered, for as long as its connection lasts", body = Registered),
    (status = 404, description = "No such connection to channels.sock", body = Problem),
    (status = 422, description = "A range or the level is invalid", body = Problem),
    (status = 429, description = "Too many registrations", body = Problem),
))]
pub(crate) async fn register(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Response> {
    let request: GroupRequest = read(body).await?;
    created(move || channels.on()?.register(peer, request)).await
}

/// Leave a group
#[utoipa::path(delete, path = "/v1/registrations/{number}",
    params(("number" = u32, Path, description = "Its number on this host")), responses(
    (status = 204, description = "It has left"),
    (status = 404, description = "No such registration of this user", body = Problem),
))]
pub(crate) async fn unregister(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(number): Path<String>,
) -> Answer<StatusCode> {
    let id = RegistrationId(numbered(&number)?);
    done(move || channels.on()?.unregister(peer, id)).await
}

/// Hosts that take part
#[utoipa::path(get, path = "/v1/hosts", responses(
    (status = 200, description = "All of them, this one included", body = Vec<HostInfo>),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn hosts(State(channels): Shared) -> Answer<Json<Vec<HostInfo>>> {
    shown(move || Ok(channels.on()?.network.hosts())).await
}
