//! The paths of policies.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{Explanation, Policy, PolicyInfo};

use super::Shared;
use crate::api::answers::{Answer, created, done, read, shown, word};
use crate::auth::Peer;
use crate::channels::problems;

/// Policies that run on this host, and their decisions
#[utoipa::path(get, path = "/v1/policies", responses(
    (status = 200, description = "All of them", body = Vec<PolicyInfo>),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn list(State(channels): Shared) -> Answer<Json<Vec<PolicyInfo>>> {
    shown(move || Ok(channels.on()?.policies())).await
}

/// Start a policy: it runs until it is stopped
#[utoipa::path(post, path = "/v1/policies", request_body = Policy, responses(
    (status = 201, description = "It runs", body = PolicyInfo),
    (status = 403, description = "Not a holder of the channel", body = Problem),
    (status = 409, description = "There is one of this name, or one that decides the same", body = Problem),
    (status = 422, description = "A value is out of range", body = Problem),
    (status = 429, description = "Too many policies", body = Problem),
))]
pub(crate) async fn start(State(channels): Shared, Extension(peer): Extension<Peer>, body: Body) -> Answer<Response> {
    let policy: Policy = read(body).await?;
    created(move || channels.on()?.start_policy(Some(peer), policy)).await
}

/// The last decisions of a policy, or of all policies of a channel or group, with their causes
#[utoipa::path(get, path = "/v1/policies/{name}/why",
    params(("name" = String, Path, description = "Name of the policy, the channel or the group")), responses(
    (status = 200, description = "Oldest first", body = Vec<Explanation>),
    (status = 403, description = "Only another user's", body = Problem),
    (status = 404, description = "No such policy", body = Problem),
))]
pub(crate) async fn why(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<Json<Vec<Explanation>>> {
    let name = word(&name).map_err(problems::invalid)?;
    shown(move || channels.on()?.policies.explanations(peer, &name)).await
}

/// Stop a policy: its decisions about rates end
#[utoipa::path(delete, path = "/v1/policies/{name}",
    params(("name" = String, Path, description = "Its name")), responses(
    (status = 204, description = "It has ended"),
    (status = 403, description = "Another user's", body = Problem),
    (status = 404, description = "No such policy", body = Problem),
))]
pub(crate) async fn stop(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let name = word(&name).map_err(problems::invalid)?;
    done(move || channels.on()?.stop_policy(peer, &name)).await
}
