//! Joint contracts between hosts: granted, refused, partly satisfied, upgraded, and nothing left of them after each kind
//! of crash.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::{Host, Site, eventually};
use crate::player::{Player, applications};

/// The time of a hold, and of a commitment without renewal.
const HOLD: Duration = Duration::from_secs(3);
/// CPUs that each host may promise.
const CAPACITY: f64 = 0.8;

/// Hosts that make contracts with each other, with more lines for the configuration of each.
pub(crate) struct Partners(pub Site, f64);

impl Partners {
    pub(crate) fn new(hosts: usize) -> Option<Partners> {
        Partners::with_maximum(hosts, CAPACITY)
    }

    /// The contracts of other hosts get this many CPUs of each host.
    fn with_maximum(hosts: usize, maximum: f64) -> Option<Partners> {
        let mut partners = Partners(Site::new(&vec![0; hosts])?, maximum);
        (0..hosts).for_each(|host| partners.start(host));
        partners.meet(hosts);
        Some(partners)
    }

    pub(crate) fn start(&mut self, host: usize) {
        // Contracts of other hosts count against user 65534.
        let limits = format!("[limits]\ncapacity = {CAPACITY}\n[limits.users]\n65534 = {}", self.1);
        self.0.start(host, &format!("contracts = true\n{limits}\n[memory]\nglobal_reserve = '64M'"));
    }

    pub(crate) fn meet(&self, hosts: usize) {
        let takes_part = |host: &Host| {
            let groups = host.run(&["group", "ls", "--json"]).json();
            let found = groups.as_array().unwrap().iter().find(|group| group["name"] == "contracts").cloned();
            found.is_some_and(|group| group["members"].as_array().is_some_and(|members| members.len() == hosts))
        };
        eventually("all take part", || self.0.hosts().iter().take(hosts).all(takes_part));
    }

    /// Nothing is held or promised on any of these hosts.
    pub(crate) fn is_free(&self, hosts: &[usize]) -> bool {
        hosts.iter().all(|host| parts(&self.0[*host]).is_empty() && guaranteed(&self.0[*host]) == 0.0)
    }
}

/// The status line and the body of an answer.
pub(crate) fn call(host: &Host, request: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = host.http(request, &text);
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let (from, to) = (body.find(['{', '[']), body.rfind(['}', ']']));
    let json = from.zip(to).map(|(from, to)| serde_json::from_str(&body[from..=to]).unwrap());
    (code, json.unwrap_or(Value::Null))
}

pub(crate) fn part(host: usize, cpu: f64, least: f64) -> Value {
    json!({"host": format!("h{host}"), "wanted": {"cpu": cpu}, "minimum": {"cpu": least}})
}

pub(crate) fn apply(host: &Host, parts: &[Value]) -> (u16, Value) {
    call(host, "POST /v1/contracts", &json!({"parts": parts}))
}

pub(crate) fn made(host: &Host, parts: &[Value]) -> Value {
    let (code, contract) = apply(host, parts);
    assert_eq!(code, 201, "{contract}\n{}", host.log());
    contract
}

pub(crate) fn end(host: &Host, contract: &Value) -> u16 {
    call(host, &format!("DELETE /v1/contracts/{}", contract["id"].as_str().unwrap()), &Value::Null).0
}

fn status(host: &Host) -> Value {
    host.run(&["status", "--json"]).json()
}

/// The parts of contracts that a host holds.
fn parts(host: &Host) -> Vec<Value> {
    status(host)["joint"].as_array().cloned().unwrap_or_default()
}

pub(crate) fn guaranteed(host: &Host) -> f64 {
    status(host)["guaranteed"].as_f64().unwrap()
}

pub(crate) fn granted(contract: &Value) -> Vec<f64> {
    contract["resources"].as_array().unwrap().iter().map(|resource| resource["granted"].as_f64().unwrap()).collect()
}

#[test]
fn a_contract_over_two_hosts_is_in_force_until_it_is_ended() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let contract = made(&site[0], &[part(0, 0.3, 0.3), part(1, 0.5, 0.5)]);
    assert_eq!(granted(&contract), [0.3, 0.5]);
    assert_eq!((guaranteed(&site[0]), guaranteed(&site[1])), (0.3, 0.5));
    let held = parts(&site[1]);
    assert_eq!(
        (&held[0]["initiator"], &held[0]["in_force"], &held[0]["uid"]),
        (&json!("h0"), &json!(true), &json!(65534))
    );
    site[1].run(&["status"]).expect(0, &[]);
    // Renewed: it outlives its holds.
    std::thread::sleep(HOLD * 2);
    assert_eq!((guaranteed(&site[0]), guaranteed(&site[1])), (0.3, 0.5));
    assert_eq!(call(&site[0], "GET /v1/contracts", &Value::Null).1, json!([contract]));
    assert_eq!(site[0].metric("qfabric_contracts_in_force"), 1.0);
    assert_eq!(end(&site[0], &contract), 204);
    assert!(partners.is_free(&[0]), "at once here");
    eventually("free on the other host", || partners.is_free(&[1]));
    assert_eq!(end(&site[0], &contract), 404);
}

#[test]
fn the_third_resource_refuses_and_nothing_is_held() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let memory = json!({"host": "h1", "wanted": {"cpu": 0.2, "memory_bytes": 128 << 20}});
    let (code, refusal) = apply(&site[0], &[part(0, 0.2, 0.2), memory]);
    let mib = f64::from(1 << 20);
    assert_eq!(
        (code, &refusal["refused_by"], &refusal["resource"]),
        (409, &json!("h1"), &json!("memory")),
        "{refusal}"
    );
    assert_eq!([&refusal["asked"], &refusal["free"]].map(|v| v.as_f64().unwrap()), [128.0 * mib, 64.0 * mib]);
    eventually("nothing is held", || partners.is_free(&[0, 1]));
    let rate = json!([{"interface": "lo", "direction": "out", "rate_bps": 1_000_000}]);
    let network = json!({"host": "h1", "wanted": {"cpu": 0.2, "network_bps": rate}});
    let (code, refusal) = apply(&site[0], &[part(0, 0.2, 0.2), network]);
    assert_eq!((code, &refusal["resource"]), (409, &json!("network lo out")), "{refusal}");
    eventually("nothing is held", || partners.is_free(&[0, 1]));
    let (code, refusal) = apply(&site[0], &[json!({"host": "h9", "wanted": {"cpu": 0.1}})]);
    assert_eq!((code, &refusal["refused_by"]), (409, &json!("h9")));
}

#[test]
fn a_refusal_names_the_host_whose_contracts_hold_the_rest_and_no_contract() {
    let Some(partners) = Partners::new(3) else { return };
    let site = &partners.0;
    let contract = made(&site[0], &[part(1, 0.5, 0.5)]);
    let (code, refusal) = apply(&site[2], &[part(1, 0.5, 0.5)]);
    assert_eq!((code, &refusal["holders"]), (409, &json!([{"initiator": "h0", "amount": 0.5}])), "{refusal}");
    assert_eq!(refusal["others"], json!(0.0), "no program of the host has a reservation");
    let text = refusal.to_string();
    assert!(text.contains("; held by contracts of h0: 0.5 CPU"), "{text}");
    let (_, number) = contract["id"].as_str().unwrap().split_once(':').unwrap();
    assert!(!text.contains(number), "the number is the right to the contract's parts: {text}");
    assert_eq!(end(&site[0], &contract), 204);
}

#[test]
fn a_refusal_by_the_maximum_of_other_hosts_names_it() {
    let Some(partners) = Partners::with_maximum(2, 0.25) else { return };
    let (code, refusal) = apply(&partners.0[0], &[part(1, 0.5, 0.5)]);
    let text = refusal["problem"]["message"].as_str().unwrap();
    let maximum = "0.8 CPU is free, and 0.25 CPU would fit into the maximum of 0.25 CPU of user 65534, \
                   which counts the contracts of other hosts";
    assert!(code == 409 && text.contains(maximum), "{text}");
    let next = refusal["problem"]["next_step"].as_str().unwrap();
    assert!(next.contains("raise the maximum of the user"), "{next}");
    let partial = made(&partners.0[0], &[part(1, 0.5, 0.1)]);
    assert_eq!(granted(&partial), [0.25]);
}

#[test]
fn a_partly_satisfied_contract_is_upgraded_when_another_one_ends() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let first = made(&site[0], &[part(1, 0.5, 0.5)]);
    let second = made(&site[1], &[part(1, 0.6, 0.2), part(0, 0.1, 0.1)]);
    assert_eq!(granted(&second)[0], 0.3);
    let (code, refusal) = apply(&site[0], &[part(1, 0.1, 0.1)]);
    assert_eq!((code, refusal["free"].as_f64()), (409, Some(0.0)), "{refusal}");
    assert_eq!(end(&site[0], &first), 204);
    eventually("it is upgraded", || {
        let shown = call(&site[1], "GET /v1/contracts", &Value::Null).1;
        granted(&shown[0]) == [0.6, 0.1]
    });
    assert_eq!(guaranteed(&site[1]), 0.6);
}

#[test]
fn an_application_draws_from_its_contract_on_both_hosts() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let contract = made(&site[0], &[part(0, 0.7, 0.7), part(1, 0.7, 0.7)]);
    let id = contract["id"].as_str().unwrap();
    for host in [0, 1] {
        crate::player::run(&site[host].folder, &[]).expect(3, &["contract of h0"]);
        let player = Player::start(&site[host].folder, &["--contract", id]);
        assert_eq!((applications(&site[host].folder), guaranteed(&site[host])), (1, 0.7));
        drop(player);
        eventually("it has left", || applications(&site[host].folder) == 0);
        assert_eq!(guaranteed(&site[host]), 0.7, "kept for the next application");
    }
    let player = Player::start(&site[1].folder, &["--contract", id]);
    assert_eq!(end(&site[0], &contract), 204);
    eventually("what it drew is free", || partners.is_free(&[0, 1]));
    assert_eq!(applications(&site[1].folder), 0);
    drop(player);
}

#[test]
fn after_a_crash_nothing_stays_reserved() {
    let Some(mut partners) = Partners::new(2) else { return };
    // In force: the initiator is killed, then a participant.
    for (initiator, killed) in [(0, 0), (0, 1)] {
        let survivor = 1 - killed;
        made(&partners.0[initiator], &[part(0, 0.3, 0.3), part(1, 0.3, 0.3)]);
        partners.0.kill(killed);
        eventually("the survivor is free", || partners.is_free(&[survivor]));
        partners.start(killed);
        partners.meet(2);
        assert!(partners.is_free(&[killed]));
    }
}

/// A request whose answer nobody reads; ended when dropped.
pub(crate) fn begin(host: &Host, request: &Value) -> UnixStream {
    let body = request.to_string();
    let mut socket = UnixStream::connect(host.socket()).unwrap();
    let headers = format!("Host: localhost\r\nContent-Length: {}", body.len());
    socket.write_all(format!("POST /v1/contracts HTTP/1.1\r\n{headers}\r\n\r\n{body}").as_bytes()).unwrap();
    socket
}

/// Begins the request until a look finds the part of `holder` held. A hold lasts for seconds, so a look may come too late;
/// then the request is made again.
fn hold(asking: &Host, request: &Value, holder: &Host) -> UnixStream {
    let mut socket = begin(asking, request);
    socket.set_nonblocking(true).unwrap();
    eventually("the host holds its part", || {
        if socket.read(&mut [0]).is_ok() {
            socket = begin(asking, request);
            socket.set_nonblocking(true).unwrap();
        }
        call(holder, "GET /v1/status", &Value::Null).1["joint"][0]["in_force"] == json!(false)
    });
    socket
}

#[test]
fn a_hold_ends_when_a_host_is_killed_before_the_commitment() {
    let Some(mut partners) = Partners::new(3) else { return };
    let all = json!({"parts": [part(0, 0.3, 0.3), part(1, 0.3, 0.3), part(2, 0.3, 0.3)]});
    // The third host does not answer, so nothing is committed.
    partners.0[2].signal("STOP");
    let request = hold(&partners.0[0], &all, &partners.0[1]);
    partners.0.kill(0);
    eventually("its hold is over", || partners.is_free(&[1]));
    drop(request);
    partners.0[2].signal("CONT");
    partners.start(0);
    partners.meet(3);

    partners.0[2].signal("STOP");
    let request = hold(&partners.0[0], &all, &partners.0[1]);
    partners.0.kill(1);
    partners.0[2].signal("CONT");
    eventually("it is refused", || partners.0[0].metric("qfabric_contracts_refused_total") >= 1.0);
    eventually("no host holds anything", || partners.is_free(&[0, 2]));
    drop(request);
}
