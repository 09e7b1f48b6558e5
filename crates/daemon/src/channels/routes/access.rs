//! The path of the access list.

use axum::body::Bytes;
use axum::extract::State;
use axum::{Extension, Json};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::ReloadOutcome;

use super::Shared;
use crate::api::answers::{Answer, shown};
use crate::auth::Peer;

/// Read the access list and this host's certificate again
#[utoipa::path(post, path = "/v1/access/reload", responses(
    (status = 200, description = "They hold from now on", body = ReloadOutcome),
    (status = 403, description = "For root and the daemon's user", body = Problem),
    (status = 409, description = "This host has none, or cannot join the network by them", body = Problem),
    (status = 422, description = "They cannot be used; the previous ones stay in force", body = Problem),
))]
pub(crate) async fn reload(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    // The body is empty, but it is read: a client that has not sent its end would not receive the answer.
    _: Bytes,
) -> Answer<Json<ReloadOutcome>> {
    shown(move || channels.on()?.reload(peer)).await
}
