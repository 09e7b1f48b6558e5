//! The paths of filters.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use qfabric_channel::FilterId;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    BindingRequest, Direction, FilterRemoval, FilterRequest, Installed, Joined, ParameterRequest,
};

use super::{Shared, named};
use crate::api::answers::{Answer, created, read, shown, word};
use crate::auth::Peer;
use crate::channels::{policies::is_reserved, problems};

type FilterScope = Path<(String, String, String)>;

/// Install a filter, or replace it between two events: here, or on other hosts whose access lists allow it
#[utoipa::path(put, path = "/v1/channels/{channel}/filters/{direction}/{filter}", request_body = FilterRequest, params(
    ("channel" = String, Path, description = "The channel's name, or quality:NAME"),
    ("direction" = Direction, Path, description = "in or out"),
    ("filter" = String, Path, description = "The filter's name"),
), responses(
    (status = 200, description = "The answer of each host", body = Installed),
    (status = 403, description = "Not a holder of the channel", body = Problem),
    (status = 409, description = "The channel is not open here", body = Problem),
    (status = 422, description = "The code does not compile, or does not fit the channel's events", body = Problem),
    (status = 429, description = "Too many filters", body = Problem),
))]
pub(crate) async fn install(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(place): FilterScope,
    body: Body,
) -> Answer<Json<Installed>> {
    let (id, request): (_, FilterRequest) = (place_of(place)?, read(body).await?);
    shown(move || channels.on()?.install(peer, id, &request)).await
}

/// Change parameters of a filter: the next event sees them
#[utoipa::path(patch, path = "/v1/channels/{channel}/filters/{direction}/{filter}", request_body = ParameterRequest, params(
    ("channel" = String, Path, description = "The channel's name, or quality:NAME"),
    ("direction" = Direction, Path, description = "in or out"),
    ("filter" = String, Path, description = "The filter's name"),
), responses(
    (status = 200, description = "The answer of each host", body = Installed),
    (status = 403, description = "Not a holder of the channel", body = Problem),
    (status = 404, description = "No such filter or parameter", body = Problem),
))]
pub(crate) async fn parametrize(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(place): FilterScope,
    body: Body,
) -> Answer<Json<Installed>> {
    let (id, request): (_, ParameterRequest) = (place_of(place)?, read(body).await?);
    shown(move || channels.on()?.parametrize(peer, &id, &request)).await
}

/// Remove a filter
#[utoipa::path(post, path = "/v1/channels/{channel}/filters/{direction}/{filter}/remove", request_body = FilterRemoval, params(
    ("channel" = String, Path, description = "The channel's name, or quality:NAME"),
    ("direction" = Direction, Path, description = "in or out"),
    ("filter" = String, Path, description = "The filter's name"),
), responses(
    (status = 200, description = "The answer of each host", body = Installed),
    (status = 403, description = "Not a holder of the channel", body = Problem),
    (status = 404, description = "No such filter", body = Problem),
))]
pub(crate) async fn remove(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(place): FilterScope,
    body: Body,
) -> Answer<Json<Installed>> {
    let (id, request): (_, FilterRemoval) = (place_of(place)?, read(body).await?);
    shown(move || channels.on()?.remove_filter(peer, &id, &request.to)).await
}

/// Bind a parameter of a filter to a number in events of another channel
#[utoipa::path(post, path = "/v1/channels/{channel}/filters/{direction}/{filter}/bindings", request_body = BindingRequest, params(
    ("channel" = String, Path, description = "The channel's name, or quality:NAME"),
    ("direction" = Direction, Path, description = "in or out"),
    ("filter" = String, Path, description = "The filter's name"),
), responses(
    (status = 201, description = "Bound; the number is that of the sink that carries the binding: ending the sink ends the binding", body = Joined),
    (status = 403, description = "Not a holder of the channel", body = Problem),
    (status = 404, description = "No such filter or parameter", body = Problem),
    (status = 422, description = "Events of that type have no such number", body = Problem),
))]
pub(crate) async fn bind(
    State(channels): Shared,
    Extension(peer): Extension<Peer>,
    Path(place): FilterScope,
    body: Body,
) -> Answer<Response> {
    let (id, request): (_, BindingRequest) = (place_of(place)?, read(body).await?);
    created(move || channels.on()?.bind(peer, id, &request)).await
}

fn place_of((channel, direction, filter): (String, String, String)) -> Result<FilterId, Problem> {
    let unknown = || problems::invalid("a filter's direction is in or out".to_owned());
    let direction = Direction::named(&direction).ok_or_else(unknown)?;
    let name = word(&filter).map_err(problems::invalid)?;
    if is_reserved(&name) {
        return Err(problems::invalid(format!("{name}: names that begin with zz. are the service's own")));
    }
    Ok(FilterId { channel: named(&channel)?, direction, name })
}
