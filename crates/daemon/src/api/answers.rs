//! What all paths share: how a body and a number in a path are read, and how the result of a call becomes an answer.
//!
//! Whatever compiles, installs, asks the kernel or waits for a lock is called in a worker thread, so that the API's own
//! thread goes on serving.

use std::fmt::Display;
use std::str::FromStr;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use qfabric_types::api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem;

/// Longest body read: a profile of [`qfabric_types::Profile::MAX_JOBS`] jobs with hints fits.
const BODY_LIMIT: usize = 256 << 10;
/// Characters of a wrong number that its refusal shows.
const SHOWN: usize = 40;

/// A refusal on its way out.
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

/// The body of a request.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Answer<T> {
    let bytes = to_bytes(body, BODY_LIMIT).await.map_err(|_| problem::too_large(BODY_LIMIT))?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let what = |error: &dyn Display| problem::invalid(format!("the body is not understood: {error}"));
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| what(&error))?;
    json.end().map_err(|error| what(&error))?;
    Ok(value)
}

/// A number in a path, of what `whose` says; the error is for people.
pub(crate) fn number<T: FromStr>(text: &str, whose: &str) -> Result<T, String> {
    let shown: String = text.chars().take(SHOWN).collect();
    text.parse().map_err(|_| format!("{shown:?} is not the number of {whose}"))
}

/// A name or an address in a path; the error is for people.
pub(crate) fn word<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Runs `act` where it may take its time.
pub(crate) async fn aside<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let failed = |_| Err(problem::internal("the request was not answered".to_owned()));
    tokio::task::spawn_blocking(act).await.unwrap_or_else(failed)
}

/// The same; its result is shown.
pub(crate) async fn shown<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Answer<Json<T>> {
    Ok(Json(aside(act).await?))
}

/// The same; it made what is shown.
pub(crate) async fn created<T: Serialize + Send + 'static>(
    act: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Answer<Response> {
    Ok((StatusCode::CREATED, shown(act).await?).into_response())
}

/// The same; there is nothing to show.
pub(crate) async fn done(act: impl FnOnce() -> Result<(), Problem> + Send + 'static) -> Answer<StatusCode> {
    aside(act).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_shown_as_far_as_anybody_reads_it() {
        assert_eq!(number("7", "a stream"), Ok(7_u32));
        let refused = number::<u32>(&"9".repeat(1_000), "a stream").unwrap_err();
        assert_eq!(refused, format!("\"{}\" is not the number of a stream", "9".repeat(40)));
    }
}
