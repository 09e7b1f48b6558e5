//! The paths of joint contracts. An answer to a request may take as long as all attempts, so that the time limit of the
//! other paths does not hold for them; it holds for reading the body.

pub(crate) mod asking;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use qfabric_types::api::contracts::{JointContract, JointId, JointRefusal, JointRequest};
use qfabric_types::api::net::{StreamInfo, StreamSpec};
use qfabric_types::api::{Claim, Problem};
use qfabric_types::channel::Name;
use qfabric_types::{Direction, LinkEnd};
use serde::de::DeserializeOwned;

use super::{Contracts, NotMade};
use crate::api::answers::{Answer, created, read, word};
use crate::auth::Peer;
use crate::net::{Links, Net};
use crate::problem;

#[derive(Clone)]
pub(crate) struct Context {
    pub contracts: Arc<Contracts>,
    pub net: Arc<Net>,
    pub timeout: Duration,
}

pub(crate) fn routes<S: Clone + Send + Sync + 'static>(context: Context) -> Router<S> {
    Router::new()
        .route("/v1/host", get(own))
        .route("/v1/contracts", get(list).post(apply))
        .route("/v1/contracts/{id}", get(show).delete(end))
        .route("/v1/contracts/{id}/streams/{interface}", post(begin))
        .route("/v1/contracts/{id}/upgrade", get(asking::next_offer).post(asking::answer_offer))
        .route("/v1/consents", get(asking::consents))
        .route("/v1/consents/{application}", put(asking::consent).delete(asking::end_consent))
        .route("/v1/consents/{application}/question", get(asking::next_question))
        .route("/v1/consents/{application}/questions/{number}", post(asking::answer_question))
        .with_state(context)
}

async fn in_time<T: DeserializeOwned>(context: &Context, body: Body) -> Answer<T> {
    tokio::time::timeout(context.timeout, read(body)).await.unwrap_or_else(|_| Err(problem::timeout().into()))
}

fn identity(text: &str) -> Result<JointId, Problem> {
    word(text).map_err(problem::invalid)
}

/// The name of the daemon's host.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(crate) struct OwnHost {
    #[schema(value_type = String)]
    host: Name,
}

/// Show the name of this host in joint contracts
#[utoipa::path(get, path = "/v1/host", responses((status = 200, description = "Its name", body = OwnHost)))]
pub(crate) async fn own(State(context): State<Context>) -> Json<OwnHost> {
    Json(OwnHost { host: context.contracts.host().clone() })
}

/// Make a joint contract: resources of several hosts, all or nothing
///
/// Each host holds its part, and all are committed together. After a refusal nothing is held. The contract lives until it
/// is ended, until the process of its lease ends, or until the daemon of this host ends.
#[utoipa::path(post, path = "/v1/contracts", request_body = JointRequest, responses(
    (status = 201, description = "In force on all hosts", body = JointContract),
    (status = 400, description = "The request does not parse, or breaks a rule", body = Problem),
    (status = 403, description = "The process of the lease belongs to another user", body = Problem),
    (status = 409, description = "A host refused its part; nothing is held", body = JointRefusal),
    (status = 410, description = "The process of the lease has ended", body = Problem),
    (status = 429, description = "The user, or the host, has the largest number of contracts", body = Problem),
    (status = 503, description = "Too many requests wait, or the service is stopping", body = Problem),
))]
pub(crate) async fn apply(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Response> {
    let request: JointRequest = in_time(&context, body).await?;
    match context.contracts.apply(peer, request).await {
        Ok(contract) => Ok((StatusCode::CREATED, Json(contract)).into_response()),
        Err(NotMade::Refused(refusal)) => Ok((StatusCode::CONFLICT, Json(*refusal)).into_response()),
        Err(NotMade::Problem(problem)) => Err(problem.into()),
    }
}

/// List the joint contracts in force that the user asked for on this host; for root, those of all users
#[utoipa::path(get, path = "/v1/contracts", responses(
    (status = 200, description = "All of them", body = Vec<JointContract>),
))]
pub(crate) async fn list(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<Vec<JointContract>>> {
    Ok(Json(context.contracts.list(peer).await?))
}

/// Show one joint contract
#[utoipa::path(get, path = "/v1/contracts/{id}", params(("id" = String, Path, description = "Its HOST:NUMBER")), responses(
    (status = 200, description = "The contract", body = JointContract),
    (status = 404, description = "No such contract of the user is in force on this host", body = Problem),
))]
pub(crate) async fn show(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<Json<JointContract>> {
    Ok(Json(context.contracts.show(peer, &identity(&id)?).await?))
}

/// End a joint contract on all its hosts
///
/// Applications and streams that draw from it end with it.
#[utoipa::path(delete, path = "/v1/contracts/{id}", params(("id" = String, Path, description = "Its HOST:NUMBER")),
    responses(
    (status = 204, description = "Ended; free on this host, and on the others when they are told"),
    (status = 403, description = "The contract belongs to another user", body = Problem),
    (status = 404, description = "No such contract of this host is in force", body = Problem),
))]
pub(crate) async fn end(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    context.contracts.end(peer, identity(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Begin a stream that draws from the rate of a joint contract, or of a loan of this host
#[utoipa::path(post, path = "/v1/contracts/{id}/streams/{interface}", request_body = StreamSpec,
    params(("id" = String, Path, description = "Its HOST:NUMBER"),
        ("interface" = String, Path, description = "The interface of this host")), responses(
    (status = 201, description = "Begun; it ends with the contract, or with the program that claimed the loan",
     body = StreamInfo),
    (status = 404, description = "No such contract or loan has a rate out of this interface", body = Problem),
    (status = 409, description = "Less of the rate is left than the stream needs", body = Problem),
))]
pub(crate) async fn begin(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path((id, interface)): Path<(String, String)>,
    body: Body,
) -> Answer<Response> {
    let (id, interface) = (identity(&id)?, word(&interface).map_err(problem::invalid)?);
    let spec: StreamSpec = in_time(&context, body).await?;
    let lent = context.net.board().rates().of(&Claim::from(&id), &interface);
    let rate = match lent {
        Some(rate) => rate,
        None => context.contracts.rate(id, LinkEnd { interface, direction: Direction::Out }).await?,
    };
    let links = Links::of(&context.net);
    created(move || links.begin(peer, rate, &spec)).await
}
