//! Events of the kernel that a host redirects to other hosts, and handlers that a host has at services of another.

use std::collections::BTreeSet;

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
    eventually("events pass both chains", || installed(there)[0]["counters"]["channel"].as_u64() > Some(3));
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
    let Some(site) = Site::started(&[0, 0]) else { return };
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

/// Takes part, and lets root of h0 install handlers at `timer`, at most two.
const LETS_IN: &str = "ecalls = true\n[ecalls]\nmax_subscriptions_per_author = 2\n\
                       [[ecalls.host]]\nhosts = ['h0']\nusers = [0]\nservices = ['timer']";

/// Everybody may do everything, but h0 may not send on `secret`.
const RIGHTS: &str = "[[rule]]\nchannels = ['group.*', 'far*']\nhosts = ['*']\nrights = ['create', 'join', 'send']\n\
                      [[rule]]\nchannels = ['secret']\nhosts = ['h1']\nrights = ['create', 'join', 'send']\n";

/// Two hosts, of which the second lets the first install handlers.
fn pair() -> Option<Site> {
    let mut site = Site::new(&[0, 0])?;
    site.access(&format!("hosts = ['h0', 'h1']\n{RIGHTS}"));
    site.start(0, "ecalls = true");
    site.start(1, LETS_IN);
    site.all_meet();
    Some(site)
}

#[test]
fn a_handler_on_another_host_is_seen_on_both_and_ends_with_its_author() {
    let Some(mut site) = pair() else { return };
    let [here, there] = [&site[0], &site[1]];
    let far = [&TICKS[..], &["--host", "h1", "--chain", "channel:far"]].concat();
    let answers = install(here, &far);
    let own = &answers[0]["subscription"];
    assert_eq!((&answers[0]["host"], &own["host"]), (&"h1".into(), &"h1".into()), "{answers}");
    eventually("the channel is known", || here.show("far").is_some());
    here.run(&["ecode", "trace", "--service", "channel:far", "--count", "3", "--json"]).expect(0, &["count"]);
    let guest = &installed(there)[0];
    assert_eq!((&guest["author"]["host"], &guest["author"]["uid"]), (&"h0".into(), &0.into()), "{guest}");
    there.run(&["ecode", "ls"]).expect(0, &["0@h0"]);
    here.run(&["ecode", "ls"]).expect(0, &["kernel, daemon of h1"]);
    eventually("its counts arrive", || installed(here)[0]["counters"]["channel"].as_u64() > Some(3));

    here.run(&["ecode", "rm", &own["id"].to_string()]).expect(0, &[]);
    eventually("it has ended there", || installed(there).is_empty() && there.show("far").is_none());
    assert!(installed(here).is_empty());

    install(here, &far);
    assert_eq!(installed(there).len(), 1);
    site.kill(0);
    eventually("it goes with its host", || installed(&site[1]).is_empty());
}

#[test]
fn two_requests_at_once_get_their_own_answers_and_both_count() {
    let Some(site) = pair() else { return };
    let here = &site[0];
    let request = |channel| [&TICKS[..], &["--host", "h1", "--chain", channel]].concat();
    let answers = std::thread::scope(|scope| {
        let asked =
            ["channel:far1", "channel:far2"].map(|channel| scope.spawn(move || install(here, &request(channel))));
        asked.map(|asked| asked.join().unwrap())
    });
    let own = answers.each_ref().map(|answer| &answer[0]["subscription"]);
    assert_eq!(own.map(|own| &own["channel"]), [&"far1".into(), &"far2".into()] as [&serde_json::Value; 2]);
    assert_ne!(own[0]["id"], own[1]["id"]);
    let of = |host: &Host| installed(host).iter().map(|one| one["channel"].to_string()).collect::<BTreeSet<_>>();
    assert_eq!((of(here), of(&site[1]).len()), (of(&site[1]), 2));
    let third = here.run(&[&["ecode", "install"][..], &request("channel:far3")].concat());
    assert_ne!(third.code, 0, "{third:?}");
    third.expect(third.code, &["max_subscriptions_per_author"]);
}

#[test]
fn a_handler_that_its_host_removes_is_shown_as_removed() {
    let Some(site) = pair() else { return };
    let [here, there] = [&site[0], &site[1]];
    install(here, &[&TICKS[..], &["--host", "h1"]].concat());
    let id = installed(there)[0]["id"].to_string();
    there.run(&["ecode", "rm", &id]).expect(0, &[]);
    eventually("its author sees it", || here.run(&["ecode", "ls"]).out.contains("removed on that host"));
}

#[test]
fn a_handler_on_another_host_needs_its_rule_and_the_rights_of_its_own_host() {
    let Some(site) = pair() else { return };
    let [here, there] = [&site[0], &site[1]];
    let refused = |host: &Host, words: &[&str], said: &str| {
        let answer = host.run(&[&["ecode", "install"][..], words].concat());
        assert_ne!(answer.code, 0, "{answer:?}");
        answer.expect(answer.code, &[said]);
    };
    let to = |host| ["--host", host];
    let wakeup = ["--service", "sched.wakeup", "--code", "return 1;"];
    refused(here, &[&wakeup[..], &to("h1")].concat(), "user 0 of host h0 may not install handlers at sched.wakeup");
    refused(there, &[&TICKS[..], &to("h0")].concat(), "user 0 of host h1 may not install");
    refused(here, &[&TICKS[..], &to("h9")].concat(), "h9 is not present");
    refused(here, &[&TICKS[..], &to("h1"), &["--pid", "1"]].concat(), "only_pid");
    refused(here, &[&TICKS[..], &to("h1"), &["--chain", "channel:secret"]].concat(), "secret");
    let wrong = ["--service", "timer", "--option", "period=10ms", "--code", "return input.nothing;"];
    refused(here, &[&wrong[..], &to("h1")].concat(), "nothing");
    assert!(installed(there).is_empty() && installed(here).is_empty());

    // A group stands for its hosts, this one included.
    let answers = install(here, &[&TICKS[..], &["--host-group", "ecalls"]].concat());
    let hosts: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["host"].to_string()).collect();
    assert_eq!(hosts, ["\"h0\"", "\"h1\""], "{answers}");
    install(here, &[&TICKS[..], &to("h1")].concat());
    refused(here, &[&TICKS[..], &to("h1")].concat(), "max_subscriptions_per_author");
}
