//! Decides whether a request of a browser is answered. A value in, a decision out: no socket, no clock.
//!
//! Any program of this machine, and any web page in a browser of this machine, can send requests to a loopback port.
//! The names `Host` and `Origin`, which browsers set and web pages cannot change, show which page sent a request; the
//! token shows which user did.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, Request};
use qfabric_types::api::Problem;

use super::assets::{self, Asset};
use crate::problem;

/// The paths of the API that a page may read.
const READABLE: [&str; 8] =
    ["/v1/status", "/v1/net", "/v1/energy", "/v1/channels", "/v1/hosts", "/v1/host", "/v1/policies", "/v1/timeline"];

/// What a request asks for, before its token is compared.
#[derive(Debug, PartialEq)]
pub(super) enum Target<'a> {
    /// A file of the page. It contains nothing that depends on the host, so it needs no token.
    File(&'static Asset),
    /// An answer of the API, for the user of this token.
    Data(&'a str),
}

/// Why a request was refused, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Method,
    Path,
    /// The request came from a page of another site, or under a name of another site.
    Origin,
    Token,
    Limit,
}

/// Boxed, because most requests are not refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) cause: Cause,
    pub(super) problem: Box<Problem>,
}

impl Refusal {
    pub(super) fn new(cause: Cause, problem: Problem) -> Self {
        Refusal { cause, problem: Box::new(problem) }
    }
}

/// How browsers reach the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site<'s> {
    /// Whether browsers reach it by TLS alone.
    pub(super) is_secured: bool,
    /// The name in the page's certificate, beside the addresses of this machine.
    pub(super) name: Option<&'s str>,
}

/// What `request` wants of the page at `site`, or why it is refused.
pub(super) fn judge<'r, B>(request: &'r Request<B>, site: Site<'_>) -> Result<Target<'r>, Refusal> {
    let (headers, path) = (request.headers(), request.uri().path());
    let is_change = is_change(request.method(), path);
    if !is_change && !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::new(Cause::Method, problem::no_such_method(request.method().as_str(), path)));
    }
    let host = text(headers, &HOST).filter(|host| is_local_name(host) || is_named(host, site.name));
    let Some(host) = host else {
        return Err(Refusal::new(
            Cause::Origin,
            problem::foreign_page("the request names this machine in another way"),
        ));
    };
    if let Some(asset) = assets::find(path) {
        return Ok(Target::File(asset));
    }
    if !is_change && !is_readable(path) {
        return Err(Refusal::new(Cause::Path, problem::no_such_path(path)));
    }
    // Browsers always name the origin of a request that may change something.
    if !is_from_own_page(headers, host, site) || is_change && !headers.contains_key(ORIGIN) {
        return Err(Refusal::new(Cause::Origin, problem::foreign_page("a page of another site sent the request")));
    }
    let token = text(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    token.map(Target::Data).ok_or_else(|| Refusal::new(Cause::Token, problem::no_page_token()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn is_readable(path: &str) -> bool {
    let why = path.strip_prefix("/v1/policies/").and_then(|rest| rest.strip_suffix("/why"));
    READABLE.contains(&path) || why.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// What the laboratory may change: it starts and stops policies.
fn is_change(method: &Method, path: &str) -> bool {
    let stopped = path.strip_prefix("/v1/policies/").filter(|name| !name.is_empty() && !name.contains('/'));
    *method == Method::POST && path == "/v1/policies" || *method == Method::DELETE && stopped.is_some()
}

/// Browsers name the origin of a page that sends a request to another site, and say so in `Sec-Fetch-Site`.
fn is_from_own_page(headers: &HeaderMap, host: &str, site: Site<'_>) -> bool {
    let scheme = if site.is_secured { "https://" } else { "http://" };
    let own = |origin: &str| origin.strip_prefix(scheme) == Some(host);
    let site = HeaderName::from_static("sec-fetch-site");
    let is_own_origin = headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(own));
    let mut sites = headers.get_all(site).iter();
    is_own_origin && sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// `localhost` or an address, with or without a port. The port may be that of a tunnel.
pub(crate) fn is_local_name(host: &str) -> bool {
    let name = without_port(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// The name of the certificate, with or without a port.
fn is_named(host: &str, name: Option<&str>) -> bool {
    name.is_some_and(|name| without_port(host).eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "127.0.0.1:9465";

    fn judged(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, Cause> {
        judged_at(Site { is_secured: false, name: None }, method, path, headers)
    }

    fn judged_at(site: Site<'_>, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, Cause> {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        match judge(&request.body(()).unwrap(), site) {
            Ok(Target::File(asset)) => Ok(asset.path.to_owned()),
            Ok(Target::Data(token)) => Ok(format!("token {token}")),
            Err(Refusal { cause, problem }) => {
                assert!(!problem.next_step.is_empty());
                Err(cause)
            }
        }
    }

    #[test]
    fn the_files_of_the_page_need_no_token_and_data_does() {
        assert_eq!(judged("GET", "/", &[("host", OWN)]), Ok("/".to_owned()));
        assert_eq!(judged("GET", "/v1/status", &[("host", OWN)]), Err(Cause::Token));
        let basic = [("host", OWN), ("authorization", "Basic abc")];
        assert_eq!(judged("GET", "/v1/status", &basic), Err(Cause::Token));
        let bearer = [("host", OWN), ("authorization", "Bearer abc")];
        assert_eq!(judged("HEAD", "/v1/timeline?from=3", &bearer), Ok("token abc".to_owned()));
        assert_eq!(judged("GET", "/v1/policies/roles-1/why", &bearer), Ok("token abc".to_owned()));
    }

    #[test]
    fn the_laboratory_starts_and_stops_policies_only_from_the_own_page() {
        let own = [("host", OWN), ("authorization", "Bearer abc"), ("origin", "http://127.0.0.1:9465")];
        for (method, path) in [("POST", "/v1/policies"), ("DELETE", "/v1/policies/code.film")] {
            assert_eq!(judged(method, path, &own), Ok("token abc".to_owned()));
            assert_eq!(judged(method, path, &own[..2]), Err(Cause::Origin), "a browser names the origin");
            let foreign = [own[0], own[1], ("origin", "http://127.0.0.1:80")];
            assert_eq!(judged(method, path, &foreign), Err(Cause::Origin));
            assert_eq!(judged(method, path, &[own[0], own[2]]), Err(Cause::Token));
        }
        for (method, path) in [
            ("POST", "/v1/policies/code.film"),
            ("DELETE", "/v1/policies"),
            ("DELETE", "/v1/policies/"),
            ("DELETE", "/v1/policies/a/why"),
            ("PUT", "/v1/policies"),
            ("POST", "/v1/applications"),
        ] {
            assert_eq!(judged(method, path, &own), Err(Cause::Method), "{method} {path}");
        }
    }

    #[test]
    fn a_page_changes_nothing_else_and_reads_only_the_listed_paths() {
        let bearer = [("host", OWN), ("authorization", "Bearer abc")];
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            assert_eq!(judged(method, "/v1/status", &bearer), Err(Cause::Method), "{method}");
        }
        for path in ["/v1/web", "/metrics", "/v1/limits", "/v1/policies//why", "/v1/policies/a/b/why", "/v1/status/"] {
            assert_eq!(judged("GET", path, &bearer), Err(Cause::Path), "{path}");
        }
    }

    /// DNS rebinding: a page of `evil.example` whose name now has the address 127.0.0.1.
    #[test]
    fn requests_under_a_name_of_others_are_refused_even_for_files() {
        for host in ["evil.example:9465", "evil.example", "", "127.0.0.1.evil.example"] {
            assert_eq!(judged("GET", "/", &[("host", host)]), Err(Cause::Origin), "{host}");
        }
        assert_eq!(judged("GET", "/", &[]), Err(Cause::Origin));
        for host in ["localhost:1", "LOCALHOST", "[::1]:9465", "::1", "127.0.0.1:8080"] {
            assert_eq!(judged("GET", "/", &[("host", host)]), Ok("/".to_owned()), "{host}");
        }
    }

    #[test]
    fn a_page_with_a_certificate_has_its_name_and_answers_only_its_own_origin() {
        let site = Site { is_secured: true, name: Some("media.example") };
        for host in ["media.example:9465", "MEDIA.example", "192.0.2.7:9465", "localhost:9465"] {
            assert_eq!(judged_at(site, "GET", "/", &[("host", host)]), Ok("/".to_owned()), "{host}");
        }
        for host in ["evil.example:9465", "media.example.evil.example", "x.media.example", ""] {
            assert_eq!(judged_at(site, "GET", "/", &[("host", host)]), Err(Cause::Origin), "{host}");
        }
        let from = |origin| {
            let headers = [("host", "media.example:1"), ("authorization", "Bearer a"), ("origin", origin)];
            judged_at(site, "POST", "/v1/policies", &headers)
        };
        assert_eq!(from("https://media.example:1"), Ok("token a".to_owned()));
        for origin in ["http://media.example:1", "https://media.example", "https://evil.example:1", "null"] {
            assert_eq!(from(origin), Err(Cause::Origin), "{origin}");
        }
    }

    #[test]
    fn data_is_refused_to_pages_of_other_sites() {
        let with =
            |name, value| judged("GET", "/v1/status", &[("host", OWN), ("authorization", "Bearer a"), (name, value)]);
        assert_eq!(with("origin", "http://127.0.0.1:9465"), Ok("token a".to_owned()));
        for origin in ["http://127.0.0.1:80", "https://127.0.0.1:9465", "null", "http://evil.example", ""] {
            assert_eq!(with("origin", origin), Err(Cause::Origin), "{origin}");
        }
        assert_eq!(with("sec-fetch-site", "same-origin"), Ok("token a".to_owned()));
        for site in ["cross-site", "same-site", "x"] {
            assert_eq!(with("sec-fetch-site", site), Err(Cause::Origin), "{site}");
        }
    }
}
