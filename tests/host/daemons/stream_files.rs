//! `qfabric contract apply` of a stream between two hosts, as a person runs it.

use serde_json::Value;

use crate::contracts::{Partners, guaranteed};
use crate::host::{Answer, Host, eventually};

/// 0.25 CPU here and 0.5 CPU there at 25 frames per second, 0.1 and 0.2 CPU at 10.
const STREAM: &str = "
    [video]
    frame_rate = { min = 10, max = 25 }
    frame_size = '8kB'
    [local]
    interface = 'eth0'
    memory = '1MiB'
    computation = '10ms'
    [peer]
    host = 'h1'
    interface = 'eth0'
    memory = '1MiB'
    computation = '20ms'
";

/// Two hosts with open links, and the file on the first one.
fn partners() -> Option<Partners> {
    let partners = Partners::new(2)?;
    for host in partners.0.hosts() {
        let mut open = host.inside(&["net", "link", "add", "eth0", "--rate", "100M", "--socket"]);
        Answer::of(open.arg(host.socket())).expect(0, &[]);
    }
    std::fs::write(partners.0[0].folder.join("stream.toml"), STREAM).unwrap();
    Some(partners)
}

fn apply(host: &Host, more: &[&str]) -> Answer {
    host.run(&[&["contract", "apply", "stream.toml"], more].concat())
}

/// Asked and granted amounts of a resource, by host.
fn amounts(contract: &Value, resource: &str) -> Vec<(String, f64, f64)> {
    let found = contract["resources"].as_array().unwrap().iter().filter(|found| found["resource"] == resource);
    let number = |found: &Value, key: &str| found[key].as_f64().unwrap();
    found.map(|f| (f["host"].as_str().unwrap().to_owned(), number(f, "asked"), number(f, "granted"))).collect()
}

fn remove(host: &Host, contract: &Value) {
    host.run(&["contract", "rm", contract["id"].as_str().unwrap()]).expect(0, &["has ended"]);
}

#[test]
fn a_stream_file_is_granted_granted_in_part_refused_and_removed_on_two_hosts() {
    let Some(partners) = partners() else { return };
    let site = &partners.0;
    let whole = apply(&site[0], &["--json"]);
    whole.expect(0, &[]);
    let whole = whole.json();
    for resource in ["cpu", "memory", "network eth0 out", "network eth0 in"] {
        let amounts = amounts(&whole, resource);
        assert_eq!(amounts.iter().map(|(host, ..)| host.as_str()).collect::<Vec<_>>(), ["h0", "h1"], "{whole}");
        assert!(amounts.iter().all(|(_, asked, granted)| asked == granted && *granted > 0.0), "{resource}: {whole}");
    }
    apply(&site[0], &["--whole"]).expect(3, &["h1", "cpu", "try: "]);
    let part = apply(&site[0], &["--json"]).json();
    let [_, (_, asked, granted)] = &amounts(&part, "cpu")[..] else { panic!("{part}") };
    assert!(granted < asked && *granted >= 0.2, "0.3 CPU of the second host were left: {part}");
    let before = (guaranteed(&site[0]), guaranteed(&site[1]));
    apply(&site[0], &[]).expect(3, &["h1", "cpu", "try: "]);
    assert_eq!((guaranteed(&site[0]), guaranteed(&site[1])), before, "a refusal holds nothing");
    site[0].run(&["contract", "ls"]).expect(0, &[whole["id"].as_str().unwrap(), part["id"].as_str().unwrap()]);
    [&whole, &part].into_iter().for_each(|contract| remove(&site[0], contract));
    eventually("free on both hosts", || partners.is_free(&[0, 1]));
}
