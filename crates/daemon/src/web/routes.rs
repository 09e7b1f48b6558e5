//! The path by which a user asks for the web page.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use axum::{Extension, Json, Router};
use qfabric_types::api::Problem;
use qfabric_types::api::web::WebPage;

use super::Web;
use crate::api::answers::{Answer, shown};
use crate::auth::Peer;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>(web: Arc<Web>) -> Router<S> {
    Router::new().route("/v1/web", post(open)).with_state(web)
}

/// Open the web page: the answer has its address on this host, with a token of the user
///
/// The token is the same until the daemon ends. The page shows what this user sees through the API. Its laboratory can
/// start and stop policies as this user; the page changes nothing else.
#[utoipa::path(post, path = "/v1/web", responses(
    (status = 200, description = "The page is served", body = WebPage),
    (status = 409, description = "The configuration forbids the page, or its port is in use", body = Problem),
    (status = 429, description = "Too many users have the page open", body = Problem),
))]
pub(crate) async fn open(
    State(web): State<Arc<Web>>,
    Extension(peer): Extension<Peer>,
    // The body is empty, but it is read: a client that has not sent its end would not receive the answer.
    _: Bytes,
) -> Answer<Json<WebPage>> {
    shown(move || web.page(peer)).await
}
