//! The paths for programs that are asked: for the consent of an application, and for an upgrade.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{
    ConsentAnswer, ConsentInfo, ConsentQuestion, ConsentRequest, UpgradeAnswer, UpgradeOffer,
};
use qfabric_types::channel::Name;
use serde::Serialize;

use super::{Context, identity, in_time};
use crate::api::answers::{Answer, number, word};
use crate::auth::Peer;
use crate::problem;

/// Longest time that one request waits; a program asks again.
const LONGEST_WAIT_MS: u64 = 30_000;

/// How long a request waits for something to answer: the query `wait_ms=N`.
fn wait(query: Option<&str>) -> Result<Duration, Problem> {
    let Some(query) = query else { return Ok(Duration::ZERO) };
    let given = query.strip_prefix("wait_ms=").and_then(|text| text.parse().ok());
    match given.filter(|ms| *ms <= LONGEST_WAIT_MS) {
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => {
            let shown: String = query.chars().take(40).collect();
            Err(problem::invalid(format!("the query is {shown:?}; use wait_ms=0 to wait_ms={LONGEST_WAIT_MS}")))
        }
    }
}

fn application(text: &str) -> Result<Name, Problem> {
    word(text).map_err(problem::invalid)
}

/// 200 with what was found, or 204.
fn found<T: Serialize>(found: Option<T>) -> Response {
    found.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |found| Json(found).into_response())
}

/// Wait for a host to offer more for a partly satisfied joint contract whose upgrades ask
#[utoipa::path(get, path = "/v1/contracts/{id}/upgrade", params(("id" = String, Path, description = "Its HOST:NUMBER"),
    ("wait_ms" = Option<u64>, Query, description = "Longest time to wait, at most 30000; default 0")), responses(
    (status = 200, description = "The offer", body = UpgradeOffer),
    (status = 204, description = "No host offered more in this time"),
    (status = 403, description = "The contract belongs to another user", body = Problem),
    (status = 404, description = "No such contract is in force, or its upgrades do not ask", body = Problem),
))]
pub(crate) async fn next_offer(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer<Response> {
    Ok(found(context.contracts.next_offer(peer, identity(&id)?, wait(query.as_deref())?).await?))
}

/// Accept or decline what a host offers for a joint contract
#[utoipa::path(post, path = "/v1/contracts/{id}/upgrade", request_body = UpgradeAnswer,
    params(("id" = String, Path, description = "Its HOST:NUMBER")), responses(
    (status = 204, description = "The host is told; the contract shows the amounts when they are in force"),
    (status = 403, description = "The contract belongs to another user", body = Problem),
    (status = 404, description = "The host offers nothing, or the time for an answer is over", body = Problem),
))]
pub(crate) async fn answer_offer(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer<StatusCode> {
    let UpgradeAnswer { host, accept } = in_time(&context, body).await?;
    context.contracts.answer_offer(peer, identity(&id)?, host, accept).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the applications for which the user answers; for root, those of all users
#[utoipa::path(get, path = "/v1/consents", responses(
    (status = 200, description = "All of them", body = Vec<ConsentInfo>),
))]
pub(crate) async fn consents(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<Vec<ConsentInfo>>> {
    Ok(Json(context.contracts.consents(peer).await?))
}

/// Answer for an application of this host, whose consent joint contracts of other hosts need
#[utoipa::path(put, path = "/v1/consents/{application}", request_body = ConsentRequest,
    params(("application" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The user answers from now on", body = ConsentInfo),
    (status = 403, description = "Another user answers for it, or the process belongs to another user", body = Problem),
    (status = 410, description = "The process has ended", body = Problem),
    (status = 429, description = "The user answers for the largest number of applications", body = Problem),
))]
pub(crate) async fn consent(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Body,
) -> Answer<Json<ConsentInfo>> {
    let request: ConsentRequest = in_time(&context, body).await?;
    Ok(Json(context.contracts.consent(peer, application(&name)?, request).await?))
}

/// Answer for an application no more
#[utoipa::path(delete, path = "/v1/consents/{application}",
    params(("application" = String, Path, description = "Its name")), responses(
    (status = 204, description = "Contracts that wait for the answer are refused"),
    (status = 403, description = "Another user answers for it", body = Problem),
    (status = 404, description = "Nobody answers for it", body = Problem),
))]
pub(crate) async fn end_consent(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    context.contracts.end_consent(peer, application(&name)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Wait for a joint contract that needs the consent of an application
#[utoipa::path(get, path = "/v1/consents/{application}/question",
    params(("application" = String, Path, description = "Its name"),
    ("wait_ms" = Option<u64>, Query, description = "Longest time to wait, at most 30000; default 0")), responses(
    (status = 200, description = "The question", body = ConsentQuestion),
    (status = 204, description = "There was none in this time"),
    (status = 403, description = "Another user answers for it", body = Problem),
    (status = 404, description = "Nobody answers for it", body = Problem),
))]
pub(crate) async fn next_question(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer<Response> {
    Ok(found(context.contracts.next_question(peer, application(&name)?, wait(query.as_deref())?).await?))
}

/// Consent to a joint contract for an application, or decline it
#[utoipa::path(post, path = "/v1/consents/{application}/questions/{number}", request_body = ConsentAnswer,
    params(("application" = String, Path, description = "Its name"),
    ("number" = u64, Path, description = "The number of the question")), responses(
    (status = 204, description = "The initiator is told"),
    (status = 403, description = "Another user answers for it", body = Problem),
    (status = 404, description = "No such question, or the time for its answer is over", body = Problem),
))]
pub(crate) async fn answer_question(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path((name, question)): Path<(String, String)>,
    body: Body,
) -> Answer<StatusCode> {
    let ConsentAnswer { accept } = in_time(&context, body).await?;
    let question = number(&question, "a question").map_err(problem::invalid)?;
    context.contracts.answer_question(peer, application(&name)?, question, accept).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_bounded_and_another_query_is_refused() {
        assert_eq!(wait(None), Ok(Duration::ZERO));
        assert_eq!(wait(Some("wait_ms=30000")), Ok(Duration::from_secs(30)));
        for query in ["", "wait_ms=", "wait_ms=30001", "wait_ms=-1", "wait_ms=1&wait_ms=2", "time=1"] {
            let refused = wait(Some(query)).unwrap_err();
            assert!(refused.message.contains("wait_ms=30000"), "{query}: {refused:?}");
        }
    }
}
