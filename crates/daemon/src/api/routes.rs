//! The paths, their bodies and their answers. Each handler reads the body, looks up credentials and asks the
//! control thread.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use percent_encoding::percent_decode_str;
use qfabric_linux::clock;
use qfabric_types::api::energy::{EnergySaving, EnergyStatus};
use qfabric_types::api::timeline::Timeline;
use qfabric_types::api::{
    Application, ApplicationRequest, Claim, HostLimits, HostStatus, LIBRARY_AGENT, LimitsPatch, Problem, is_compatible,
};
use qfabric_types::{AppId, BitRate, Contract};
use serde::de::DeserializeOwned;

use super::answers::{Answer, Refused, aside, done, number, read, shown, word};
use super::ecalls;
use super::share::{AnswerShares, within_share};
use crate::auth::{self, Peer};
use crate::channels::{self, Channels, LoanNeeds, RequestKind};
use crate::configured::Configured;
use crate::contracts::{self, Contracts};
use crate::control::{Command, Requests};
use crate::ecalls::Ecalls;
use crate::energy::EnergyAccount;
use crate::memory::Memory;
use crate::net::{self, Net};
use crate::pids::Numbers;
use crate::timeline::{Query, Recorder};
use crate::web::{self, Web};
use crate::{metrics, openapi, problem};

/// The description of the API as JSON.
static DOCUMENT: LazyLock<String> = LazyLock::new(openapi::document);

/// The parts of the service that answer requests.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) requests: Requests,
    pub(crate) ecalls: Arc<Ecalls>,
    pub(crate) net: Arc<Net>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) timeline: Arc<Recorder>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) contracts: Arc<Contracts>,
    pub(crate) configured: Arc<Configured>,
    pub(crate) energy: Arc<EnergyAccount>,
    pub(crate) web: Arc<Web>,
    /// A request that takes longer is refused.
    pub(crate) timeout: Duration,
}

impl Context {
    /// Adds the bandwidth, and the reserve of memory after the control group of the program is in place.
    /// The caller may know processes under other numbers.
    async fn complete(&self, peer: Peer, mut application: Application) -> Answer<Application> {
        let (memory, net, energy) = (self.memory.clone(), self.net.clone(), self.energy.clone());
        let complete = move || {
            memory.settle();
            memory.complete(&mut application);
            net.complete([&mut application]);
            energy.complete([&mut application]);
            shown_to(peer).show(&mut application);
            Ok(application)
        };
        Ok(aside(complete).await?)
    }

    /// After reservations came, went or changed: gives applications that save energy the clock that is needed now.
    async fn follow_clock(&self) {
        let energy = self.energy.clone();
        let is_saving = aside(move || Ok(energy.is_saving())).await;
        if is_saving != Ok(true) {
            return;
        }
        // With a full queue, the thread of the account follows at its next check.
        if let Ok(HostStatus { applications, .. }) = self.requests.ask(|reply| Command::Status { reply }).await {
            let energy = self.energy.clone();
            let follow = move || {
                energy.follow(&applications);
                Ok(())
            };
            let _ = aside(follow).await;
        }
    }
}

/// All paths of the API.
pub(crate) fn router(context: Context) -> Router {
    let Context { contracts, net, channels, timeout, .. } = &context;
    let joint = contracts::routes::Context { contracts: contracts.clone(), net: net.clone(), timeout: *timeout };
    let (networks, between_hosts) = (net::routes::routes(net.clone()), channels::routes::routes(channels.clone()));
    let application = get(show).patch(change).delete(leave);
    Router::new()
        .route("/v1/applications", get(list).post(join))
        .route("/v1/applications/{id}", application)
        .route("/v1/applications/{id}/energy", put(save_energy))
        .route("/v1/claims/{claim}", post(claim).delete(give_back))
        .route("/v1/status", get(status))
        .route("/v1/limits", get(limits).put(set_limits).patch(change_limits))
        .route("/v1/energy", get(energy_status))
        .route("/v1/timeline", get(timeline_page))
        .route("/v1/openapi.json", get(describe))
        .route("/metrics", get(measure))
        .merge(ecalls::routes())
        .merge(networks)
        .merge(between_hosts)
        .merge(web::routes::routes(context.web.clone()))
        .fallback(async |uri: Uri| Refused(problem::no_such_path(uri.path())))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Refused(problem::no_such_method(method.as_str(), uri.path()))
        })
        .layer(middleware::from_fn_with_state(AnswerShares::new(context.timeout), within_share))
        .layer(middleware::from_fn_with_state(context.clone(), in_time))
        // After the layers: the time limit does not hold for them.
        .merge(contracts::routes::routes(joint))
        .layer(middleware::from_fn(same_version))
        .layer(middleware::from_fn(only_text))
        .with_state(context)
}

/// Only the metrics, for callers without credentials.
pub(crate) fn metrics_router(context: Context) -> Router {
    Router::new()
        .route("/metrics", get(measure))
        .fallback(async |uri: Uri| Refused(problem::no_such_path(uri.path())))
        .layer(middleware::from_fn_with_state(context.clone(), in_time))
        .with_state(context)
}

/// Refuses a path whose escapes do not give UTF-8. The framework would answer with a text that is no [`Problem`].
async fn only_text(request: Request, next: Next) -> Response {
    match percent_decode_str(request.uri().path()).decode_utf8() {
        Ok(_) => next.run(request).await,
        Err(_) => Refused(problem::no_such_path(request.uri().path())).into_response(),
    }
}

/// Refuses the client library of another minor version, also one that was connected before the daemon was updated.
/// `/v1/status` answers it: there the library reads the daemon's version.
async fn same_version(request: Request, next: Next) -> Response {
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let version = agent.and_then(|agent| agent.strip_prefix(LIBRARY_AGENT));
    let foreign = version.filter(|version| !is_compatible(version, env!("CARGO_PKG_VERSION")));
    match foreign.filter(|_| request.uri().path() != "/v1/status") {
        Some(theirs) => Refused(problem::other_version(theirs)).into_response(),
        None => next.run(request).await,
    }
}

/// A body that arrives too slowly, or an answer that takes too long, ends with a refusal.
async fn in_time(State(context): State<Context>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(context.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refused(problem::timeout()).into_response(),
    }
}

/// Request a contract
#[utoipa::path(post, path = "/v1/applications", request_body = ApplicationRequest, params(
    ("loan_rate" = Option<u64>, Query, description = "Rate in bit/s that the loan of another host must have out of a \
                                                      link, if this host refuses; default: none")), responses(
    (status = 201, description = "Admitted", body = Application),
    (status = 400, description = "The request does not parse", body = Problem),
    (status = 403, description = "The process belongs to another user", body = Problem),
    (status = 409, description = "Not enough capacity; names the requested and the free amount, and the holders of the \
                                  rest", body = Problem),
    (status = 410, description = "The process or thread has ended", body = Problem),
    (status = 413, description = "The body is longer than 256 KiB", body = Problem),
    (status = 422, description = "The contract is not valid, or the thread may not run on all CPUs", body = Problem),
    (status = 429, description = "The limit of applications is reached", body = Problem),
    (status = 503, description = "Too many requests wait, or the service is stopping", body = Problem),
))]
pub(crate) async fn join(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Answer<Response> {
    let rate = loan_rate(query.as_deref().unwrap_or_default())?;
    let request: ApplicationRequest = read(body).await?;
    let needs = LoanNeeds::of(&request.contract).with_rate(rate);
    match admit(&context, peer, request, None).await {
        Ok(application) => Ok(created(application)),
        Err(Refused(problem)) => {
            Err(Refused(context.channels.look_elsewhere(peer, RequestKind::Admission, needs, problem).await))
        }
    }
}

/// The rate in a query `loan_rate=BITS`; zero if the query has none.
fn loan_rate(query: &str) -> Result<BitRate, Problem> {
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("loan_rate=")) else {
        return Ok(BitRate::ZERO);
    };
    let rate = text.parse::<u64>().ok().filter(|rate| (1..=BitRate::MAX.get()).contains(rate));
    let refused = || {
        let shown: String = text.chars().take(40).collect();
        problem::invalid_loan_rate(&shown)
    };
    rate.map(BitRate::new).ok_or_else(refused)
}

/// Claim a loan: the capacity that this host keeps for an application that another host refused
#[utoipa::path(post, path = "/v1/claims/{claim}", request_body = ApplicationRequest,
    params(("claim" = String, Path, description = "The claim HOST:NUMBER from the other host's refusal")), responses(
    (status = 201, description = "Admitted; the loan has ended", body = Application),
    (status = 400, description = "The request does not parse", body = Problem),
    (status = 404, description = "This host has no loan for this claim", body = Problem),
    (status = 409, description = "More is requested than the loan and the free capacity; the loan stays", body = Problem),
    (status = 422, description = "The contract is not valid, or the thread may not run on all CPUs", body = Problem),
))]
pub(crate) async fn claim(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(claim): Path<String>,
    body: Body,
) -> Answer<Response> {
    let claim = claimed(&claim)?;
    Ok(created(admit(&context, peer, read(body).await?, Some(claim)).await?))
}

/// Give back a loan that another host keeps for an application that this host refused
#[utoipa::path(delete, path = "/v1/claims/{claim}",
    params(("claim" = String, Path, description = "The claim HOST:NUMBER from the refusal")), responses(
    (status = 204, description = "The other host is informed"),
    (status = 404, description = "This user has no such offer", body = Problem),
    (status = 409, description = "This host has no channels", body = Problem),
))]
pub(crate) async fn give_back(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(claim): Path<String>,
) -> Answer<StatusCode> {
    let claim = claimed(&claim)?;
    done(move || context.channels.on()?.give_back(peer, &claim)).await
}

async fn admit(
    context: &Context,
    peer: Peer,
    mut request: ApplicationRequest,
    claim: Option<Claim>,
) -> Answer<Application> {
    let (pid, covers) = (request.pid, request.covers);
    let (target, covers) = aside(move || auth::named(peer, pid, covers)).await?;
    (request.pid, request.covers) = (target.pid, covers);
    let request = Box::new(request);
    let application = context.requests.ask(|reply| Command::Join { peer, target, request, claim, reply }).await?;
    context.follow_clock().await;
    context.complete(peer, application).await
}

fn created(application: Application) -> Response {
    (StatusCode::CREATED, Json(application)).into_response()
}

fn claimed(text: &str) -> Result<Claim, Problem> {
    word(text).map_err(problem::invalid)
}

/// List the applications under contract
#[utoipa::path(get, path = "/v1/applications", responses(
    (status = 200, description = "All applications, without their profiles", body = Vec<Application>),
))]
pub(crate) async fn list(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<Vec<Application>>> {
    Ok(Json(complete_status(&context, peer).await?.applications))
}

/// Show the state of the whole host
#[utoipa::path(get, path = "/v1/status", responses((status = 200, description = "The present state", body = HostStatus)))]
pub(crate) async fn status(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<HostStatus>> {
    Ok(Json(complete_status(&context, peer).await?))
}

/// Show the limits in force
#[utoipa::path(get, path = "/v1/limits", responses((status = 200, description = "All limits", body = HostLimits)))]
pub(crate) async fn limits(State(context): State<Context>) -> Answer<Json<HostLimits>> {
    Ok(Json(context.requests.ask(|reply| Command::Limits { reply }).await?))
}

/// Replace all limits, until the next start or reload
///
/// A key that is left out takes its default. Applications keep their guarantees; the capacity beyond the guarantees
/// is divided again under the new limits.
#[utoipa::path(put, path = "/v1/limits", request_body = HostLimits, responses(
    (status = 200, description = "In force", body = HostLimits),
    (status = 400, description = "The request does not parse; the old limits stay in force", body = Problem),
    (status = 403, description = "The user is not an administrator", body = Problem),
    (status = 409, description = "More memory is promised than the new global reserve; the old limits stay in force",
     body = Problem),
    (status = 422, description = "A value is out of range; the old limits stay in force", body = Problem),
))]
pub(crate) async fn set_limits(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Json<HostLimits>> {
    let asked = from_administrator(peer, body).await?;
    let limits = context.requests.set_limits(asked).await?;
    log_limits(peer);
    Ok(Json(limits))
}

/// Change some limits, until the next start or reload
///
/// A JSON merge patch (RFC 7396): a key that is left out keeps its value, null removes a limit. Concurrent changes
/// of several clients are applied one after the other; none is lost. Otherwise as PUT.
#[utoipa::path(patch, path = "/v1/limits",
    request_body(content((LimitsPatch = "application/merge-patch+json"), (LimitsPatch = "application/json"))), responses(
    (status = 200, description = "All limits in force", body = HostLimits),
    (status = 400, description = "The request does not parse; the old limits stay in force", body = Problem),
    (status = 403, description = "The user is not an administrator", body = Problem),
    (status = 409, description = "More memory is promised than the new global reserve; the old limits stay in force",
     body = Problem),
    (status = 422, description = "A value is out of range; the old limits stay in force", body = Problem),
))]
pub(crate) async fn change_limits(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer<Json<HostLimits>> {
    let patch = from_administrator(peer, body).await?;
    let limits = context.requests.change_limits(patch).await?;
    log_limits(peer);
    Ok(Json(limits))
}

async fn from_administrator<T: DeserializeOwned>(peer: Peer, body: Body) -> Answer<T> {
    // Read the body in any case: an answer before the end of the request would break the connection.
    let asked = read(body).await?;
    match peer.administers() {
        true => Ok(asked),
        false => Err(Refused(problem::not_administrator(peer.owner.uid))),
    }
}

fn log_limits(peer: Peer) {
    tracing::info!(uid = peer.owner.uid, pid = peer.pid, "limits changed until the next start or reload");
}

/// Show one application
#[utoipa::path(get, path = "/v1/applications/{id}", params(("id" = AppId, Path, description = "Its number")), responses(
    (status = 200, description = "The application, without its profile", body = Application),
    (status = 404, description = "No application has this number", body = Problem),
))]
pub(crate) async fn show(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<Json<Application>> {
    let app = numbered(&id)?;
    let application = context.requests.ask(|reply| Command::Show { app, reply }).await?;
    Ok(Json(context.complete(peer, application).await?))
}

/// Change the contract of an application
///
/// The body is the whole new contract. The contract that GET shows has no profile: without one in the body, the
/// application loses it.
#[utoipa::path(patch, path = "/v1/applications/{id}", request_body = Contract,
    params(("id" = AppId, Path, description = "Its number")), responses(
    (status = 200, description = "Changed", body = Application),
    (status = 403, description = "The application belongs to another user", body = Problem),
    (status = 404, description = "No application has this number", body = Problem),
    (status = 409, description = "Not enough capacity; the old contract stays, and another host may offer a loan for \
                                  the whole new contract", body = Problem),
    (status = 422, description = "The contract is not valid; the old one stays", body = Problem),
))]
pub(crate) async fn change(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer<Json<Application>> {
    let app = numbered(&id)?;
    let contract: Box<Contract> = Box::new(read(body).await?);
    let needs = LoanNeeds::of(&contract);
    match context.requests.ask(|reply| Command::Change { peer, app, contract, reply }).await {
        Ok(application) => {
            context.follow_clock().await;
            Ok(Json(context.complete(peer, application).await?))
        }
        Err(problem) => Err(Refused(context.channels.look_elsewhere(peer, RequestKind::Change, needs, problem).await)),
    }
}

/// End the contract: every thread returns to its former scheduler
#[utoipa::path(delete, path = "/v1/applications/{id}", params(("id" = AppId, Path, description = "Its number")), responses(
    (status = 204, description = "The contract has ended"),
    (status = 403, description = "The application belongs to another user", body = Problem),
    (status = 404, description = "No application has this number", body = Problem),
))]
pub(crate) async fn leave(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let app = numbered(&id)?;
    context.requests.ask(|reply| Command::Leave { peer, app, reply }).await?;
    context.follow_clock().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Show the account of energy
///
/// For an administrator the meters are read now. Other users get the account at the daemon's last own reading
/// (`energy.period`, at least one second), with measured amounts in whole joules and watts.
#[utoipa::path(get, path = "/v1/energy", responses(
    (status = 200, description = "Joules of devices and applications since the start, each with its source", body = EnergyStatus),
))]
pub(crate) async fn energy_status(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
) -> Answer<Json<EnergyStatus>> {
    if !peer.administers() {
        return shown(move || Ok(context.energy.public())).await;
    }
    let HostStatus { applications, .. } = context.requests.ask(|reply| Command::Status { reply }).await?;
    shown(move || Ok(context.energy.fresh(&applications))).await
}

/// Save energy: hold the deadlines of an application at the lowest clock that suffices, until it leaves
///
/// If this host lacks a knob, the answer says what is missing, and everything else holds.
#[utoipa::path(put, path = "/v1/applications/{id}/energy", params(("id" = AppId, Path, description = "Its number")),
    responses(
    (status = 200, description = "The clock, and what is missing", body = EnergySaving),
    (status = 403, description = "The application belongs to another user", body = Problem),
    (status = 404, description = "No application has this number", body = Problem),
))]
pub(crate) async fn save_energy(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    // The body is empty, but it is read: a client that has not sent its end would not receive the answer.
    _: Bytes,
) -> Answer<Json<EnergySaving>> {
    let app = numbered(&id)?;
    let owner = context.requests.ask(|reply| Command::Show { app, reply }).await?.owner;
    if !peer.may_touch(owner) {
        return Err(Refused(problem::not_your_application(app, owner.uid, peer.owner.uid)));
    }
    let HostStatus { applications, .. } = context.requests.ask(|reply| Command::Status { reply }).await?;
    shown(move || {
        let saving = context.energy.save(app, &applications)?;
        context.energy.checkpoints().into_iter().for_each(|to| context.requests.follow_checkpoints(app, to));
        Ok(saving)
    })
    .await
}

/// Show what happened in the last 32768 records: jobs, budgets, decisions, events
///
/// A page of records. The next page begins at the number `next` of this one. A user sees the records of the user's
/// own applications, an administrator all. How long the records reach back depends on how fast they come:
/// `complete_since_ns`.
#[utoipa::path(get, path = "/v1/timeline", params(
    ("from" = Option<u64>, Query, description = "Number of the first record; default: the oldest that is kept"),
    ("before" = Option<u64>, Query, description = "Number after the last record; default: all newer ones"),
    ("since_ns" = Option<u64>, Query, description = "Only records of this time or later, CLOCK_MONOTONIC")), responses(
    (status = 200, description = "A page of at most 1024 records", body = Timeline),
    (status = 400, description = "The query has an unknown key or no number", body = Problem),
))]
pub(crate) async fn timeline_page(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
) -> Answer<Json<Timeline>> {
    let query = Query::parse(query.as_deref().unwrap_or_default())?;
    Ok(Json(context.timeline.page(peer, query, clock::now())))
}

/// Metrics for Prometheus
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "OpenMetrics text if Accept names it, else the classic text of Prometheus",
     body = String, content_type = "text/plain"),
))]
pub(crate) async fn measure(State(context): State<Context>, headers: HeaderMap) -> Answer<Response> {
    let report = context.requests.ask(|reply| Command::Report { reply }).await?;
    let joint = context.contracts.count().await?;
    let scrape = move || {
        let mut report = *report;
        context.memory.complete_status(&mut report.status);
        context.net.complete(&mut report.status.applications);
        let (ecalls, interfaces) = (context.ecalls.report(), context.net.list());
        // On TCP nobody knows the user, so a scrape gets what everybody may read.
        let energy = Some(context.energy.public());
        Ok(metrics::text(report, ecalls, interfaces, context.channels.report(), joint, energy))
    };
    let text = aside(scrape).await?;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let (content_type, text) = metrics::answer(accept, text);
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}

/// This description of the API
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn describe() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

fn numbered(id: &str) -> Result<AppId, Problem> {
    number(id, "an application").map(AppId).map_err(problem::invalid)
}

/// The numbers of a caller that has ended, such as the command that opened the web page, are those of this host.
fn shown_to(peer: Peer) -> Numbers {
    Numbers::of(peer).unwrap_or(Numbers::Host)
}

async fn complete_status(context: &Context, peer: Peer) -> Result<HostStatus, Problem> {
    let mut status = context.requests.ask(|reply| Command::Status { reply }).await?;
    let (memory, net, energy) = (context.memory.clone(), context.net.clone(), context.energy.clone());
    status = aside(move || {
        memory.complete_status(&mut status);
        net.complete(&mut status.applications);
        energy.complete(&mut status.applications);
        let numbers = shown_to(peer);
        status.applications.iter_mut().for_each(|application| numbers.show(application));
        Ok(status)
    })
    .await?;
    status.joint = context.contracts.look().await?;
    status.configured = context.configured.shown();
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_rate_that_is_no_rate_is_refused_with_its_value_the_limit_and_the_next_step() {
        assert_eq!(loan_rate(""), Ok(BitRate::ZERO));
        assert_eq!(loan_rate("x=1&loan_rate=2000000"), Ok(BitRate::new(2_000_000)));
        for wrong in ["0", "-1", "NaN", "1e6", "2M", "", "1000000000000001", "99999999999999999999"] {
            let refused = loan_rate(&format!("loan_rate={wrong}")).unwrap_err();
            assert!(refused.code == "invalid" && refused.message.contains(&format!("{wrong:?}")), "{refused:?}");
            assert!(refused.message.contains("1 to 1000000000000000 bit/s"), "{refused:?}");
            assert!(refused.next_step.contains("leave loan_rate out"), "{refused:?}");
        }
    }
}
