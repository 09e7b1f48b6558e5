//! The paths of monitors.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use qfabric_types::AppId;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{MonitorInfo, MonitorRequest};

use super::Shared;
use crate::api::answers::{Answer, read, shown};
use crate::auth::Peer;
use crate::channels::problems;
use crate::control::Command;

/// Attributes that are monitored, that could be, and that this host cannot read
#[utoipa::path(get, path = "/v1/monitors", responses(
    (status = 200, description = "All attributes", body = Vec<MonitorInfo>),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn list(State(channels): Shared) -> Answer<Json<Vec<MonitorInfo>>> {
    shown(move || Ok(channels.on()?.monitors.list())).await
}

/// Change how an attribute is monitored: of the host by root, of an application by its user
#[utoipa::path(put, path = "/v1/monitors/{attribute}", request_body = MonitorRequest,
    params(("attribute" = String, Path, description = "Its name, such as cpu.run_queue")), responses(
    (status = 200, description = "How it is monitored from now on", body = MonitorInfo),
    (status = 403, description = "Not for this user", body = Problem),
    (status = 404, description = "No such application", body = Problem),
    (status = 422, description = "No such attribute here, or a value is out of range", body = Problem),
))]
pub(crate) async fn set(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(attribute): Path<String>,
    body: Body,
) -> Answer<Json<MonitorInfo>> {
    let request: MonitorRequest = read(body).await?;
    let app = AppId(request.application);
    let monitored = match request.application {
        0 if peer.owner.uid == 0 || peer.owner.uid == rustix::process::geteuid().as_raw() => None,
        0 => return Err(problems::not_your_host(peer.owner.uid).into()),
        _ => Some(channels.requests.ask(|reply| Command::Monitor { peer, app, reply }).await?),
    };
    shown(move || channels.on()?.monitors.set(&attribute, &request, monitored)).await
}
