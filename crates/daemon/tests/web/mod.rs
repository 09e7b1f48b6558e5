//! Tests of the web page against a real service: over TCP as a browser does, as several users, and in a browser.

mod browser;
mod laboratory;
#[cfg(feature = "zenoh")]
mod tls;
mod views;

use std::io::{Read, Write};
use std::net::TcpStream;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::api::timeline::Timeline;
use qfabric_types::api::{ApplicationRequest, ApplicationScope, HostStatus};

use crate::common::*;

/// A name that would run as a script if the page took it for markup.
const HOSTILE: &str = "<img src=x onerror=document.title='owned'><script></script>";

/// Where the page is, and the token in its address.
struct Page {
    address: String,
    token: String,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Page {
    fn at(url: &str) -> Page {
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        Page { address: address.to_owned(), token: token.to_owned() }
    }

    /// Sends a request with these headers, besides `Host`.
    fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        self.send(&format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}\r\n", self.address))
    }

    /// Sends a request of the page.
    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &self.bearer())
    }

    fn bearer(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.token)
    }

    /// Sends a request of the laboratory that changes something, as a browser sends it from the page at `origin`.
    fn change(&self, method: &str, path: &str, origin: &str, body: &str) -> Answer {
        let (address, bearer, length) = (&self.address, self.bearer(), body.len());
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{bearer}origin: {origin}\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
    }

    fn send(&self, text: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The service may close before it has read everything.
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} is not in {}", self.head))
    }
}

fn opened() -> (Embedded, Client, Page) {
    opened_with(quiet())
}

fn opened_with(config: Config) -> (Embedded, Client, Page) {
    let (service, client) = service(config);
    let page = Page::at(&client.web_page().unwrap().url);
    (service, client, page)
}

/// A host with channels, without other hosts.
fn with_channels() -> Config {
    let mut config = quiet();
    config.channels.enabled = true;
    config.channels.engine = qfabric_daemon::EngineName::None;
    config.channels.host = Some("alpha".parse().unwrap());
    config
}

/// A sleeping program under a contract of this name.
fn named(client: &Client, name: &str) -> Process {
    let program = Process::shell("exec sleep 1000");
    let contract = contract(name, 40);
    client.admit(&ApplicationRequest { pid: program.pid(), covers: ApplicationScope::Program, contract }).unwrap();
    program
}

#[test]
fn the_page_shows_the_data_of_the_api_and_only_changes_are_sent() {
    let _lock = live_lock();
    let (_service, client, page) = opened();
    // Many calls: an answer before the end of the request would break some of the connections.
    let tokens: Vec<_> = (0..50).map(|_| Page::at(&client.web_page().unwrap().url).token).collect();
    assert!(tokens.iter().all(|token| *token == page.token), "a user keeps one token");
    let html = page.ask("GET", "/", "");
    assert!(html.status == 200 && html.body.contains("<title>Q-Fabric</title>"), "{}", html.head);
    assert!(html.header("content-security-policy").starts_with("default-src 'self';"));
    assert_eq!(html.header("qfabric-version"), env!("CARGO_PKG_VERSION"));
    let _program = named(&client, HOSTILE);
    let shown = page.get("/v1/status");
    let status: HostStatus = serde_json::from_str(&shown.body).unwrap();
    let HostStatus { applications, capacity, version, .. } = client.status().unwrap();
    assert_eq!((status.capacity, status.version), (capacity, version));
    assert_eq!(status.applications[0].contract, applications[0].contract);
    assert_eq!(shown.header("content-type"), "application/json");
    let hosts = page.get("/v1/net");
    let same = page.ask("GET", "/v1/net", &format!("{}if-none-match: {}\r\n", page.bearer(), hosts.header("etag")));
    assert_eq!((same.status, same.body.as_str()), (304, ""));
}

#[test]
fn requests_that_are_not_of_the_page_are_refused_and_counted() {
    let _lock = live_lock();
    let (service, _client, page) = opened();
    let counted = |name: &str| -> u64 {
        let (_, metrics) = call(service.socket(), "GET", "/metrics", "");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("qfabric_web_refused_{name}_total ")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{metrics}")).parse().unwrap()
    };
    let before = ["tokens", "origins", "paths", "methods"].map(counted);
    let refused = |answer: Answer, status, code| {
        assert_eq!((answer.status, problem(&answer.body).code.as_str()), (status, code), "{}", answer.head);
        assert!(answer.header("content-security-policy").contains("'self'"));
    };
    let bearer = page.bearer();
    refused(page.ask("GET", "/v1/status", ""), 401, "no_token");
    refused(page.ask("GET", "/v1/status", "authorization: Bearer 0123\r\n"), 401, "no_token");
    refused(page.ask("GET", "/v1/status", &format!("{bearer}origin: http://evil.example\r\n")), 403, "foreign_page");
    refused(page.send(&format!("GET /v1/status HTTP/1.1\r\nhost: evil.example\r\n{bearer}\r\n")), 403, "foreign_page");
    refused(page.ask("GET", "/v1/limits", &bearer), 404, "no_such_path");
    refused(page.ask("POST", "/v1/web", &bearer), 405, "no_such_method");
    let expected: Vec<u64> = before.iter().zip([2_u64, 2, 1, 1]).map(|(before, more)| before + more).collect();
    assert_eq!(["tokens", "origins", "paths", "methods"].map(counted).to_vec(), expected);
    let limits = counted("limits");
    let oversized = page.ask("GET", "/v1/status", &format!("{bearer}x: {}\r\n", "x".repeat(100_000)));
    assert!(!(200..400).contains(&oversized.status), "{}", oversized.head);
    eventually("the oversized request is counted", || counted("limits") > limits);
    assert_eq!(page.get("/v1/status").status, 200, "the service goes on");
}

#[test]
fn connections_without_a_token_do_not_take_the_places_of_users() {
    let _lock = live_lock();
    let (_service, _client, page) = opened();
    let mut own = TcpStream::connect(&page.address).unwrap();
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /v1/host HTTP/1.1\r\nhost: {}\r\n{}\r\n", page.address, page.bearer());
    let ask = |stream: &mut TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut part = [0; 4096];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "the connection was closed after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..length]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    };
    ask(&mut own);
    let strangers: Vec<_> = (0..64).map(|_| TcpStream::connect(&page.address).unwrap()).collect();
    ask(&mut own);
    drop(strangers);
    eventually("the places of strangers are free again", || page.get("/v1/host").status == 200);
}

#[test]
fn a_connection_without_a_token_is_closed_after_64_requests() {
    let _lock = live_lock();
    let (_service, _client, page) = opened();
    let mut stream = TcpStream::connect(&page.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /icon.svg HTTP/1.1\r\nhost: {}\r\n\r\n", page.address);
    // The service may close before it has read everything.
    let _ = stream.write_all(request.repeat(100).as_bytes());
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    let answers = String::from_utf8_lossy(&answers).to_ascii_lowercase();
    assert_eq!((answers.matches("http/1.1 200").count(), answers.matches("connection: close").count()), (64, 1));
}

/// Run by the next test as another user: prints the address of the user's page.
#[test]
#[ignore = "a role"]
fn asks_for_the_page() {
    println!("\nurl={}", connected(given("SOCKET")).web_page().unwrap().url);
}

/// The page of another user; only root can get it.
fn page_of_nobody(service: &Embedded) -> Page {
    let socket = service.socket().to_str().unwrap().to_owned();
    let mut asking = role("web::asks_for_the_page", Some(NOBODY), &[("SOCKET", &socket)]);
    let mut text = String::new();
    asking.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    Page::at(text.lines().find_map(|line| line.strip_prefix("url=")).unwrap_or_else(|| panic!("{text}")))
}

#[test]
fn each_user_sees_in_the_page_what_the_api_shows_this_user() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can be several users");
    }
    let _lock = live_lock();
    let (service, client, page) = opened();
    let of_other = page_of_nobody(&service);
    assert!(of_other.address == page.address && of_other.token != page.token);
    let _program = named(&client, "secretive");
    let records = |page: &Page| serde_json::from_str::<Timeline>(&page.get("/v1/timeline").body).unwrap().records;
    eventually("root sees the contract", || !records(&page).is_empty());
    assert!(records(&of_other).is_empty(), "the records of root are not for another user");
    assert!(of_other.get("/v1/status").body.contains("secretive"), "the state of the host is public on the host");
}

/// A policy as the laboratory starts it.
const STARTED: &str = r#"{"kind":"code","name":"code.film","channel":"film","attributes":["app.rate_milli"],
    "code":"struct output { long rate_milli; }; output.rate_milli = 12500; return 1;"}"#;

#[test]
fn the_laboratory_starts_and_stops_a_policy_with_the_rights_of_its_user() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can be several users");
    }
    let _lock = live_lock();
    let (service, client, page) = opened_with(with_channels());
    let (own, of_other) = (format!("http://{}", page.address), page_of_nobody(&service));
    let start = |page: &Page, origin: &str, body: &str| {
        let answer = page.change("POST", "/v1/policies", origin, body);
        (answer.status, answer.body)
    };
    let running = || call(service.socket(), "GET", "/v1/policies", "").1;
    assert_eq!(start(&page, "http://evil.example", STARTED).0, 403);
    assert_eq!(start(&of_other, &own, STARTED).0, 403, "no holder of the channel");
    assert_eq!(start(&page, &own, &STARTED.replace("output.", "output.. ")).0, 422);
    assert_eq!(running(), "[]", "refusals change nothing");
    let (status, started) = start(&page, &own, STARTED);
    assert!(status == 201 && started.contains("\"name\":\"code.film\""), "{started}");
    assert_eq!(start(&page, &own, STARTED).0, 409, "it runs");
    assert_eq!(of_other.change("DELETE", "/v1/policies/code.film", &own, "").status, 403, "another user's");
    assert_eq!(page.get("/v1/policies").body, running());
    assert_eq!(page.change("DELETE", "/v1/policies/code.film", &own, "").status, 204);
    assert_eq!(running(), "[]");
    assert_eq!(start(&page, &own, &"x".repeat(4 << 20)).0, 413);
    drop(client);
}
