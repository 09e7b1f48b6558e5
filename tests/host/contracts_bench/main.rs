//! Time of `POST /v1/contracts` between real daemons: `cargo bench -p qfabric-cli --bench contracts`
//!
//! * 1,000 contracts on one host, which all stay in force: at most 1 ms each (SPECIFICATION.md).
//! * Contracts on two hosts in network namespaces: the time of the call beyond two round trips between the hosts,
//!   which the same run measures with UDP: p99 at most 20 ms.
//!
//! Prints times and asserts only the answers, because machines differ. Needs root, `ip` and `nsenter`.
#![forbid(unsafe_code)]

#[path = "../../../crates/cli/tests/cli/answer.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod answer;
#[path = "../daemons/host.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod host;
#[path = "../daemons/lan.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod lan;
mod round_trips;

use std::time::{Duration, Instant};

use host::{Site, eventually};

const LOCAL: usize = 1_000;
const JOINT: usize = 400;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", address] => return round_trips::echo(address),
        ["ask", address, count] => return round_trips::ask(address, count.parse().expect("a number")),
        _ => {}
    }
    // `make bench ARGS=--short` gives this option to every bench: show only that it works.
    let part = if words.iter().any(|word| word == "--max-time") { 50 } else { 1 };
    let Some(site) = partners() else { return };
    local(&site, LOCAL / part);
    joint(&site, JOINT / part);
}

/// Two hosts that make contracts with each other.
fn partners() -> Option<Site> {
    let mut site = Site::new(&[0, 0])?;
    (0..2).for_each(|host| site.start(host, "contracts = true\n[limits]\ncapacity = 0.8"));
    eventually("both take part in contracts", || {
        site.hosts().iter().all(|host| {
            let groups = host.run(&["group", "ls", "--json"]).json();
            let group = groups.as_array().into_iter().flatten().find(|group| group["name"] == "contracts");
            group.is_some_and(|group| group["members"].as_array().is_some_and(|members| members.len() == 2))
        })
    });
    Some(site)
}

/// Contracts that stay in force, on the host of the call.
fn local(site: &Site, count: usize) {
    let body = r#"{"parts":[{"host":"h0","wanted":{"cpu":0.000001}}]}"#;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (id, time) = apply(site, body);
        ids.push(id);
        times.push(time);
    }
    print(&format!("{count} contracts on one host, all in force"), &times);
    let last = times.len() - times.len().div_ceil(10);
    print("  the last tenth of them", &times[last..]);
    ids.iter().for_each(|id| end(site, id));
}

/// Contracts on both hosts, one after the other.
fn joint(site: &Site, count: usize) {
    let body = r#"{"parts":[{"host":"h0","wanted":{"cpu":0.001}},{"host":"h1","wanted":{"cpu":0.001}}]}"#;
    let before = round_trips::measure(site, count);
    let mut times = Vec::new();
    for _ in 0..count {
        let (id, time) = apply(site, body);
        times.push(time);
        end(site, &id);
    }
    let mut trips = [before, round_trips::measure(site, count)].concat();
    print("round trip of a UDP packet between the hosts", &trips);
    trips.sort();
    let two = trips[trips.len() / 2] * 2;
    print("a contract on two hosts", &times);
    let beyond: Vec<Duration> = times.iter().map(|time| time.saturating_sub(two)).collect();
    print(&format!("  the same beyond two round trips ({two:.1?})"), &beyond);
}

/// The identity of a contract in force, and the time from the connection until the whole answer.
fn apply(site: &Site, body: &str) -> (String, Duration) {
    let since = Instant::now();
    let answer = site[0].http("POST /v1/contracts", body);
    let time = since.elapsed();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let json = answer.split("\r\n\r\n").nth(1).expect("a body");
    let contract: serde_json::Value = serde_json::from_str(json).expect("JSON");
    (contract["id"].as_str().expect("an identity").to_owned(), time)
}

fn end(site: &Site, id: &str) {
    let answer = site[0].http(&format!("DELETE /v1/contracts/{id}"), "");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

fn print(name: &str, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let (count, median, p99, longest) = (times.len(), at(0.5), at(0.99), at(1.0));
    println!("{name}: p50 {median:.1?}, p99 {p99:.1?}, longest {longest:.1?}, {count} samples");
}
