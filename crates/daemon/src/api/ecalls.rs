//! The paths of ECalls. Compiling, installing and waiting happen in worker threads, so that the API's own thread
//! continues to serve.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{
    AttributeChange, CallAnswer, CallRequest, DeploymentAnswer, DeploymentRequest, EventRequest, HandlerInfo,
    HandlerRequest, RaiseOutcome, ServiceInfo, ServiceRequest, SubscriptionInfo, SubscriptionRequest,
};

use super::answers::{Answer, created, done, number, read, shown};
use super::routes::Context;
use crate::auth::Peer;
use crate::problem;

pub(super) fn routes() -> Router<Context> {
    Router::new()
        .route("/v1/services", get(services).post(register))
        .route("/v1/services/{name}", get(service).delete(unregister))
        .route("/v1/services/{name}/events", post(raise))
        .route("/v1/services/{name}/call", post(call))
        .route("/v1/handlers", get(handlers))
        .route("/v1/handlers/{name}", get(handler).put(put_handler).delete(remove_handler))
        .route("/v1/deployments", post(deploy))
        .route("/v1/subscriptions", get(subscriptions).post(subscribe))
        .route("/v1/subscriptions/{id}", get(subscription).patch(set_attributes).delete(unsubscribe))
}

/// List the services that processes can subscribe to
#[utoipa::path(get, path = "/v1/services", responses(
    (status = 200, description = "All services, available or not", body = Vec<ServiceInfo>),
))]
pub(crate) async fn services(State(context): State<Context>) -> Answer<Json<Vec<ServiceInfo>>> {
    shown(move || Ok(context.ecalls.services())).await
}

/// One service
#[utoipa::path(get, path = "/v1/services/{name}", params(("name" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The service", body = ServiceInfo),
    (status = 404, description = "No service has this name", body = Problem),
))]
pub(crate) async fn service(State(context): State<Context>, Path(name): Path<String>) -> Answer<Json<ServiceInfo>> {
    shown(move || context.ecalls.service(&name)).await
}

/// Register a service, for as long as its connection lasts
#[utoipa::path(post, path = "/v1/services", request_body = ServiceRequest, responses(
    (status = 201, description = "Registered", body = ServiceInfo),
    (status = 404, description = "No such connection to ecalls.sock", body = Problem),
    (status = 409, description = "A service of this name exists", body = Problem),
    (status = 422, description = "The format does not parse", body = Problem),
    (status = 429, description = "Too many services", body = Problem),
))]
pub(crate) async fn register(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Response> {
    let request: ServiceRequest = read(body).await?;
    created(move || context.ecalls.register(peer, request)).await
}

/// End a service and inform its subscribers
#[utoipa::path(delete, path = "/v1/services/{name}", params(("name" = String, Path, description = "Its name")), responses(
    (status = 204, description = "The service has ended"),
    (status = 403, description = "Another user's service", body = Problem),
    (status = 404, description = "No service has this name", body = Problem),
))]
pub(crate) async fn unregister(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    done(move || context.ecalls.unregister(peer, &name)).await
}

/// Raise an event of a service of this user
#[utoipa::path(post, path = "/v1/services/{name}/events", request_body = EventRequest,
    params(("name" = String, Path, description = "The service's name")), responses(
    (status = 200, description = "Number of subscriptions for which the event was queued, and dropped", body = RaiseOutcome),
    (status = 403, description = "The service belongs to another user, or to the kernel", body = Problem),
    (status = 404, description = "No service has this name", body = Problem),
    (status = 422, description = "The data do not have the service's format", body = Problem),
))]
pub(crate) async fn raise(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Body,
) -> Answer<Json<RaiseOutcome>> {
    let request: EventRequest = read(body).await?;
    shown(move || context.ecalls.raise_by_name(peer, &name, &request)).await
}

/// Call a service and wait for the answer of its owner
#[utoipa::path(post, path = "/v1/services/{name}/call", request_body = CallRequest,
    params(("name" = String, Path, description = "The service's name")), responses(
    (status = 200, description = "The answer", body = CallAnswer),
    (status = 403, description = "Another user's service", body = Problem),
    (status = 404, description = "No service has this name", body = Problem),
    (status = 409, description = "The owner did not answer in time, or has ended", body = Problem),
))]
pub(crate) async fn call(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Body,
) -> Answer<Json<CallAnswer>> {
    let request: CallRequest = read(body).await?;
    let (ms, most) = (request.timeout_ms, context.timeout.as_millis() as u64);
    if ms >= most {
        return Err(problem::invalid(format!(
            "timeout_ms is {ms}; use less than {most}, after which the daemon aborts a request"
        ))
        .into());
    }
    Ok(Json(context.ecalls.call(peer, &name, request.data, Duration::from_millis(ms)).await?))
}

/// List named handlers
#[utoipa::path(get, path = "/v1/handlers", responses(
    (status = 200, description = "The handlers that the caller may use", body = Vec<HandlerInfo>),
))]
pub(crate) async fn handlers(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<Vec<HandlerInfo>>> {
    shown(move || Ok(context.ecalls.handlers(peer))).await
}

/// One named handler
#[utoipa::path(get, path = "/v1/handlers/{name}", params(("name" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The handler", body = HandlerInfo),
    (status = 404, description = "No handler that the caller may use has this name", body = Problem),
))]
pub(crate) async fn handler(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<Json<HandlerInfo>> {
    shown(move || context.ecalls.handler(peer, &name)).await
}

/// Store a handler under a name
#[utoipa::path(put, path = "/v1/handlers/{name}", request_body = HandlerRequest,
    params(("name" = String, Path, description = "Its name")), responses(
    (status = 200, description = "Stored", body = HandlerInfo),
    (status = 409, description = "A handler of another user has this name", body = Problem),
    (status = 422, description = "The code does not parse", body = Problem),
    (status = 429, description = "Too many handlers", body = Problem),
))]
pub(crate) async fn put_handler(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Body,
) -> Answer<Json<HandlerInfo>> {
    let request: HandlerRequest = read(body).await?;
    shown(move || context.ecalls.put_handler(peer, &name, request)).await
}

/// Remove a named handler
#[utoipa::path(delete, path = "/v1/handlers/{name}", params(("name" = String, Path, description = "Its name")), responses(
    (status = 204, description = "Removed; subscriptions that use it continue"),
    (status = 404, description = "The caller has no handler of this name", body = Problem),
))]
pub(crate) async fn remove_handler(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    done(move || context.ecalls.remove_handler(peer, &name)).await
}

/// Subscribe to a service
#[utoipa::path(post, path = "/v1/subscriptions", request_body = SubscriptionRequest, responses(
    (status = 201, description = "Installed", body = SubscriptionInfo),
    (status = 403, description = "Service not granted to this user, or process of another user", body = Problem),
    (status = 404, description = "No such service, handler or connection", body = Problem),
    (status = 409, description = "The service is not available on this host", body = Problem),
    (status = 422, description = "The code does not compile, or the request contradicts itself", body = Problem),
    (status = 429, description = "A limit of the section [ecalls] is reached", body = Problem),
))]
pub(crate) async fn subscribe(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Response> {
    let request: SubscriptionRequest = read(body).await?;
    created(move || context.ecalls.subscribe(peer, request)).await
}

/// Subscribe on several hosts
#[utoipa::path(post, path = "/v1/deployments", request_body = DeploymentRequest, responses(
    (status = 200, description = "The answer of each host", body = Vec<DeploymentAnswer>),
    (status = 403, description = "This host takes no part in ECalls between hosts", body = Problem),
    (status = 409, description = "The section [channels] is not enabled", body = Problem),
    (status = 422, description = "No host is named", body = Problem),
    (status = 429, description = "A limit of the section [ecalls] is reached", body = Problem),
))]
pub(crate) async fn deploy(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Json<Vec<DeploymentAnswer>>> {
    let request: DeploymentRequest = read(body).await?;
    shown(move || context.ecalls.deploy(peer, &request)).await
}

/// List the subscriptions of this user
#[utoipa::path(get, path = "/v1/subscriptions", responses(
    (status = 200, description = "The subscriptions of this user; for root, all", body = Vec<SubscriptionInfo>),
))]
pub(crate) async fn subscriptions(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<Vec<SubscriptionInfo>>> {
    shown(move || Ok(context.ecalls.subscriptions(peer))).await
}

/// One subscription
#[utoipa::path(get, path = "/v1/subscriptions/{id}", params(("id" = u64, Path, description = "Its number")), responses(
    (status = 200, description = "The subscription", body = SubscriptionInfo),
    (status = 403, description = "The subscription belongs to another user", body = Problem),
    (status = 404, description = "No subscription has this number", body = Problem),
))]
pub(crate) async fn subscription(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<Json<SubscriptionInfo>> {
    let id = numbered(&id)?;
    shown(move || context.ecalls.subscription(peer, id)).await
}

/// Set attributes of a subscription
#[utoipa::path(patch, path = "/v1/subscriptions/{id}", request_body = AttributeChange,
    params(("id" = u64, Path, description = "Its number")), responses(
    (status = 200, description = "Changed", body = SubscriptionInfo),
    (status = 403, description = "The subscription belongs to another user", body = Problem),
    (status = 404, description = "No subscription has this number", body = Problem),
    (status = 422, description = "No handler uses an attribute of this name", body = Problem),
))]
pub(crate) async fn set_attributes(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer<Json<SubscriptionInfo>> {
    let (id, change): (_, AttributeChange) = (numbered(&id)?, read(body).await?);
    shown(move || context.ecalls.set_attributes(peer, id, &change.attributes)).await
}

/// End a subscription
#[utoipa::path(delete, path = "/v1/subscriptions/{id}", params(("id" = u64, Path, description = "Its number")), responses(
    (status = 204, description = "The subscription has ended and is removed from the kernel"),
    (status = 403, description = "The subscription belongs to another user", body = Problem),
    (status = 404, description = "No subscription has this number", body = Problem),
))]
pub(crate) async fn unsubscribe(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let id = numbered(&id)?;
    done(move || context.ecalls.unsubscribe(peer, id)).await
}

fn numbered(id: &str) -> Result<u64, Problem> {
    number(id, "a subscription").map_err(problem::invalid)
}
