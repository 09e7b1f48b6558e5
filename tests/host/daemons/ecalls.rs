//! Events of the kernel that a host redirects to other hosts, and handlers that a host has at services of another.

use crate::host::{Host, Site, eventually};

/// What `qfabric ecode ls --json` shows.
fn installed(host: &Host) -> Vec<serde_json::Value> {
    host.run(&["ecode", "ls", "--json"]).json().as_array().unwrap().clone()
}

/// Installs and returns the answer.
#[track_caller]
fn install(host: &Host, words: &[&str]) -> serde_json::Value {
    let answer = host.run(&[&["ecode", "install", "--json"][..], words].concat());
    answer.expect(0, &[]);
    answer.json()
}

/// `timer` with an option and a text that passes every second event.
const TICKS: [&str; 6] =
    ["--service", "timer", "--option", "period=10ms", "--code", "static int n; n += 1; return n % 2;"];

#[test]
fn events_of_the_kernel_reach_a_chain_of_another_host_through_a_channel() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    let [here, there] = [&site[0], &site[1]];
    let source = install(here, &[&TICKS[..], &["--chain", "channel:ticks"]].concat());
    assert_eq!((&source["in_kernel"], &source["in_daemon"]), (&["k_code"].into(), &["channel"].into()));
    eventually("the other host knows the channel", || there.show("ticks").is_some());
    let seen = there.run(&["ecode", "trace", "--service", "channel:ticks", "--count", "5", "--json"]);
    seen.expect(0, &[]);
    assert_eq!(seen.out.lines().count(), 5, "{}", seen.out);

    // The second chain runs in the daemon of the other host, and passes the events on.
    let second = ["--service", "channel:ticks", "--code", "return 1;", "--chain", "channel:again"];
    install(there, &second);
    eventually("events pass both chains", || {
        let counters = &installed(there)[0]["counters"];
        counters["channel"].as_u64() > Some(3) && counters["dropped_channel"] == 0
    });
    let first = &installed(here)[0]["counters"];
    assert!(first["blocked"].as_u64() > Some(3) && first["channel"].as_u64() > Some(3), "{first}");
    there.run(&["services"]).expect(0, &["channel:ticks"]);

    here.run(&["ecode", "rm", &source["id"].to_string()]).expect(0, &[]);
    let id = installed(there)[0]["id"].to_string();
    there.run(&["ecode", "rm", &id]).expect(0, &[]);
    eventually("nobody holds the channels", || [here, there].iter().all(|host| host.show("ticks").is_none()));
    assert!(!there.run(&["services"]).out.contains("channel:ticks"));
}

#[test]
fn a_chain_that_cannot_redirect_is_refused_with_the_reason() {
    let Some(site) = Site::started(&[0]) else { return };
    let host = &site[0];
    let refused =
        |words: &[&str], said: &str| host.run(&[&["ecode", "install"][..], words].concat()).expect(3, &[said]);
    install(host, &[&TICKS[..], &["--chain", "channel:ticks"]].concat());
    let loop_ = ["--service", "channel:ticks", "--code", "return 1;", "--chain", "channel:ticks"];
    refused(&loop_, "to the same channel");
    refused(&["--service", "channel:none", "--code", "return 1;", "--chain", "channel:x"], "none");
    let other = "struct output { long a; }; output.a = 1; return 1;";
    refused(&["--service", "channel:ticks", "--code", "return bad;", "--chain", "channel:x"], "bad");
    let words = ["--service", "timer", "--option", "period=10ms", "--code", other, "--chain", "channel:ticks"];
    host.run(&[&["ecode", "install"][..], &words].concat()).expect(3, &["no type of ticks has this layout"]);
    // A refused chain leaves neither a service nor a member.
    assert!(!host.run(&["services"]).out.contains("channel:"));
    let info = host.show("ticks").unwrap();
    assert_eq!((info.hosts[0].sources.len(), info.hosts[0].sinks.len()), (1, 0));
}
