//! Helpers of all paths: reading a body or a number in a path, and converting the result of a call into an answer.
//!
//! A call that compiles, installs, asks the kernel or waits for a lock runs in a worker thread, so that the API's
//! own thread continues to serve.

use std::fmt::Display;
use std::str::FromStr;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qfabric_types::api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ending, problem};

/// Longest body read, in bytes: room for a profile of [`qfabric_types::Profile::MAX_JOBS`] jobs with hints.
const BODY_LIMIT: usize = 256 << 10;
/// Largest number of characters of an invalid number that its refusal shows.
const SHOWN: usize = 40;

/// A refusal as an HTTP response.
pub(crate) struct Refused(pub(super) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Refused(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (problem::status(&self.0), Json(self.0)).into_response()
    }
}

pub(crate) type Answer<T> = Result<T, Refused>;

/// Reads the body of a request.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Answer<T> {
    let bytes = to_bytes(body, BODY_LIMIT).await.map_err(|_| problem::too_large(BODY_LIMIT))?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let what = |error: &dyn Display| problem::invalid(format!("the body does not parse: {error}"));
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| what(&error))?;
    json.end().map_err(|error| what(&error))?;
    Ok(value)
}

/// Parses a number in a path; `whose` names the thing it identifies. The error is a text for people.
pub(crate) fn number<T: FromStr>(text: &str, whose: &str) -> Result<T, String> {
    let shown: String = text.chars().take(SHOWN).collect();
    text.parse().map_err(|_| format!("{shown:?} is not the number of {whose}"))
}

/// Parses a name or an address in a path. The error is a text for people.
pub(crate) fn word<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Runs `act` in a worker thread. A panic ends the service: what `act` was changing may be half changed.
pub(crate) async fn aside<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let failed = || Err(problem::internal("the request panicked and has no answer; the service ends".to_owned()));
    ending::worker("API worker", act).await.unwrap_or_else(failed)
}

/// Runs `act` in a worker thread and answers with its result (200).
pub(crate) async fn shown<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Answer<Json<T>> {
    Ok(Json(aside(act).await?))
}

/// Runs `act` in a worker thread and answers with what it created (201).
pub(crate) async fn created<T: Serialize + Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Answer<Response> {
    Ok((StatusCode::CREATED, shown(act).await?).into_response())
}

/// Runs `act` in a worker thread and answers without a body (204).
pub(crate) async fn done(act: impl FnOnce() -> Result<(), Problem> + Send + 'static) -> Answer<StatusCode> {
    aside(act).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_only_the_begin_of_a_long_number() {
        assert_eq!(number("7", "a stream"), Ok(7_u32));
        let refused = number::<u32>(&"9".repeat(1_000), "a stream").unwrap_err();
        assert_eq!(refused, format!("\"{}\" is not the number of a stream", "9".repeat(40)));
    }
}
