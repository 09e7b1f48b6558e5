//! A joint contract with a network rate over two hosts: programs and streams draw from it, packets cross the link under
//! it, and it is free again after its end and after a crash.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::host::{Answer, Host, Site, eventually};
use crate::player::{Player, applications};

/// The rate of the contract, in bit/s.
const RATE: u64 = 4_000_000;
/// C of a stream of 40 ms that needs the whole rate, in bytes.
const SIZE: u64 = RATE / 25 / 8;

/// Two hosts that make contracts with each other, each with an open link of 10 Mbit/s.
fn linked() -> Option<Site> {
    let mut site = Site::new(&[0, 0])?;
    (0..2).for_each(|host| start(&mut site, host));
    meet(&site);
    Some(site)
}

/// Contracts of other hosts count against user 65534.
fn start(site: &mut Site, host: usize) {
    site.start(host, "contracts = true\n[limits]\ncapacity = 0.8\n[limits.users]\n65534 = 0.8");
    let words = ["net", "link", "add", "eth0", "--rate", "10M", "--htb"];
    site[host].run(&words).expect(0, &["eth0 in:"]);
}

fn meet(site: &Site) {
    eventually("both take part", || {
        site.hosts().iter().all(|host| {
            let groups = host.run(&["group", "ls", "--json"]).json();
            let found = groups.as_array().unwrap().iter().find(|group| group["name"] == "contracts").cloned();
            found.is_some_and(|group| group["members"].as_array().is_some_and(|members| members.len() == 2))
        })
    });
}

/// `qfabric contract apply`, of a processor's share and a rate from the first host to the second one.
fn apply(host: &Host, rate: u64, cpu: f64) -> (String, Value) {
    let end = |direction: &str| json!([{"interface": "eth0", "direction": direction, "rate_bps": rate}]);
    let part = |host: &str, direction: &str| {
        let amounts = json!({"cpu": cpu, "network_bps": end(direction)});
        json!({"host": host, "wanted": amounts, "minimum": amounts})
    };
    let answer = host.http("POST /v1/contracts", &json!({"parts": [part("h0", "out"), part("h1", "in")]}).to_string());
    let (line, body) = (answer.lines().next().unwrap().to_owned(), answer.split_once("\r\n\r\n").unwrap().1);
    let (from, to) = (body.find('{').unwrap(), body.rfind('}').unwrap());
    (line, serde_json::from_str(&body[from..=to]).unwrap())
}

fn made(site: &Site) -> String {
    let (line, contract) = apply(&site[0], RATE, 0.3);
    assert!(line.contains("201"), "{line}: {contract}");
    contract["id"].as_str().unwrap().to_owned()
}

fn link(host: &Host) -> Value {
    host.run(&["net", "show", "eth0", "--json"]).json()[0].clone()
}

/// The promised rates of a host: what it sends, and what it receives.
fn promised(host: &Host) -> (u64, u64) {
    let link = &link(host)["link"];
    (link["promised_bps"].as_u64().unwrap(), link["incoming"]["promised_bps"].as_u64().unwrap())
}

fn add(host: &Host, flow: &str, contract: &str, size: u64) -> Answer {
    let stream = ["net", "stream", "add", "eth0", "--flow", flow, "--period", "40ms", "--size", &size.to_string()];
    host.run(&[&stream[..], &["--contract", contract]].concat())
}

/// Sends `count` packets on a flow between the hosts; returns the number that arrive.
fn send(site: &Site, source: &str, destination: &str, count: usize) -> usize {
    let socket = |host: usize, address: &str| {
        let (namespace, address) = (site.lan.namespace(host), address.to_owned());
        // A socket stays in the network in which it was made.
        let made = move || {
            let network = File::open(format!("/run/netns/{namespace}")).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            UdpSocket::bind(address).unwrap()
        };
        std::thread::spawn(made).join().unwrap()
    };
    let (sender, receiver) = (socket(0, source), socket(1, destination));
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for _ in 0..count {
        sender.send_to(&[0; 1_000], destination).unwrap();
    }
    let mut buffer = [0; 1_000];
    (0..count).map_while(|_| receiver.recv(&mut buffer).ok()).count()
}

#[test]
fn a_program_and_a_stream_draw_from_a_contract_over_two_hosts_and_packets_cross_it() {
    let Some(site) = linked() else { return };
    let id = made(&site);
    assert_eq!((promised(&site[0]), promised(&site[1])), ((RATE, 0), (0, RATE)));
    let holders = |book: &Value| book["holders"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(holders(&link(&site[0])["link"]), "contract of h0");
    assert_eq!(holders(&link(&site[1])["link"]["incoming"]), "contract of h0");

    let player = Player::start(&site[0].folder, &["--contract", &id]);
    let viewer = Player::start(&site[1].folder, &["--contract", &id]);
    let (source, destination) = (format!("{}:5000", site.lan.address(0)), format!("{}:6000", site.lan.address(1)));
    let flow = format!("udp,{source},{destination}");
    add(&site[0], &flow, &id, 2 * SIZE).expect(3, &[]);
    add(&site[0], &flow, &id, SIZE).expect(0, &[]);
    let other = format!("udp,{}:5001,{destination}", site.lan.address(0));
    add(&site[0], &other, &id, 2_000).expect(3, &[]);
    // It draws, so nothing more is promised.
    assert_eq!(promised(&site[0]), (RATE, 0));
    assert_eq!(send(&site, &source, &destination, 20), 20);
    let counted = || link(&site[0])["streams"][0]["counters"]["sent"].as_u64().unwrap();
    eventually("all packets passed as those of the stream", || counted() == 20);

    site[0].run(&["contract", "rm", &id]).expect(0, &[]);
    assert!(link(&site[0])["streams"].as_array().unwrap().is_empty(), "the stream ends with its contract");
    eventually("the rates are free", || promised(&site[0]) == (0, 0) && promised(&site[1]) == (0, 0));
    eventually("the programs go on without", || site.hosts().iter().all(|host| applications(&host.folder) == 0));
    drop((player, viewer));
}

#[test]
fn the_receivers_link_refuses_and_the_senders_rate_is_free_at_once() {
    let Some(site) = linked() else { return };
    let first = made(&site);
    // The receiver has less room left than the sender.
    let words = ["net", "link", "add", "eth0", "--rate", "10M", "--rate-in", "6M", "--htb"];
    site[1].run(&words).expect(0, &[]);
    let (line, refusal) = apply(&site[0], RATE, 0.1);
    assert!(line.contains("409"), "{line}: {refusal}");
    assert_eq!((&refusal["refused_by"], &refusal["resource"]), (&json!("h1"), &json!("network eth0 in")), "{refusal}");
    let largest = refusal["largest"].as_u64().or(refusal["largest"].as_f64().map(|rate| rate as u64)).unwrap();
    eventually("nothing is held", || promised(&site[0]) == (RATE, 0) && promised(&site[1]) == (0, RATE));
    let (line, second) = apply(&site[0], largest, 0.1);
    assert!(line.contains("201"), "the largest rate that fits is granted: {line}: {second}");
    assert_eq!(promised(&site[1]), (0, RATE + largest));
    for id in [first.as_str(), second["id"].as_str().unwrap()] {
        site[0].run(&["contract", "rm", id]).expect(0, &[]);
    }
    eventually("the rates are free", || promised(&site[0]) == (0, 0) && promised(&site[1]) == (0, 0));
}

#[test]
fn the_rate_of_a_crashed_host_becomes_free() {
    let Some(mut site) = linked() else { return };
    let id = made(&site);
    let flow = format!("udp,{}:5000,{}:6000", site.lan.address(0), site.lan.address(1));
    add(&site[0], &flow, &id, SIZE).expect(0, &[]);
    site.kill(0);
    eventually("the receiver's book is free", || promised(&site[1]) == (0, 0));
    // The daemon that starts again takes back the queue of the one that crashed.
    start(&mut site, 0);
    meet(&site);
    assert_eq!(promised(&site[0]), (0, 0));
    assert!(link(&site[0])["streams"].as_array().unwrap().is_empty());
    let id = made(&site);
    add(&site[0], &flow, &id, SIZE).expect(0, &[]);
    site.kill(1);
    eventually("the sender's rate is free, and the stream is over", || {
        promised(&site[0]) == (0, 0) && link(&site[0])["streams"].as_array().is_some_and(Vec::is_empty)
    });
}
