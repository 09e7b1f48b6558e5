//! Access lists and certificates that change while everybody talks.

use std::time::{Duration, Instant};

use qfabric_client::channel::{Channels, Direction, Filter, FilterScope, SinkOptions, SourceOptions, Spec, Submission};

use crate::host::{Host, Site, eventually};
use crate::refusals::certificate;
use crate::talk::{FORMAT, Talk, enter};

const ALL: [&str; 3] = ["h0", "h1", "h2"];

/// A list of three hosts: what all may do on every channel, and what host 1 may.
fn list(all: &str, one: &str) -> String {
    let rule =
        |hosts: &str, rights: &str| format!("[[rule]]\nchannels = ['*']\nhosts = {hosts}\nrights = [{rights}]\n");
    format!("hosts = ['h0', 'h1', 'h2']\n{}{}", rule("['h0', 'h2']", all), rule("['h1']", one))
}

const MEMBERS: &str = "'create', 'join', 'send'";

/// Whether anything changed, and whether the host left the network for it.
#[track_caller]
fn reload(host: &Host) -> (bool, bool) {
    let answer = host.run(&["channel", "reload", "--json"]);
    answer.expect(0, &["\"hosts\""]);
    let reloaded = answer.json();
    (reloaded["changed"].as_bool().unwrap(), reloaded["rejoined"].as_bool().unwrap())
}

/// How often a host has seen another one go.
fn gone(site: &Site, host: usize, other: &str) -> usize {
    site[host].log().matches(&format!("a host is gone host={other}")).count()
}

fn install(channels: &Channels) -> Option<String> {
    let filter =
        Filter { code: "return 1;".into(), to: FilterScope::Hosts(vec!["h0".parse().unwrap()]), ..Filter::default() };
    let answer = channels.open("video").unwrap().install(Direction::In, "pass", &filter).unwrap();
    answer.hosts[0].refused.clone()
}

/// Three hosts that all are members of every channel.
fn three_members() -> Option<Site> {
    let mut site = Site::new(&[0, 1, 1])?;
    site.access(&list(MEMBERS, MEMBERS));
    (0..3).for_each(|host| site.start(host, ""));
    site.all_meet();
    Some(site)
}

#[test]
fn a_changed_access_list_holds_from_its_reading_on_and_applications_stay_connected() {
    let Some(site) = three_members() else { return };
    let talk = Talk::start(site.hosts(), "video");
    talk.flows(&ALL);
    an_invalid_list_changes_nothing(&site);
    talk.flows(&ALL);
    a_right_is_given_and_nobody_leaves(&site);
    a_host_is_off_the_list_and_alone(&site, &talk);
    the_host_is_on_the_list_again_and_all_meet(&site, &talk);
    println!("{} events were lost or dropped, and counted", talk.balances(site.hosts()));
}

fn an_invalid_list_changes_nothing(site: &Site) {
    assert_eq!(reload(&site[0]), (false, false));
    site.access("hosts = ['h0']\n[[rule]]\nchannels = ['video']\nhosts = ['h9']\nrights = []");
    let refused = site[0].run(&["channel", "reload"]);
    refused.expect(
        3,
        &["the previous ones stay in force", "access.toml", "h9", "not among `hosts`", "qfabric channel reload"],
    );
}

/// What this host checks alone changes without anybody's noticing.
fn a_right_is_given_and_nobody_leaves(site: &Site) {
    let one = site[1].channels();
    assert!(install(&one).unwrap().contains("`install`"));
    site.access(&list(MEMBERS, &format!("{MEMBERS}, 'install'")));
    assert_eq!(reload(&site[0]), (true, false));
    assert_eq!(install(&one), None);
    assert_eq!(gone(site, 1, "h0"), 0);
}

fn a_host_is_off_the_list_and_alone(site: &Site, talk: &Talk) {
    site.access(&list(MEMBERS, MEMBERS).replace(", 'h2'", ""));
    let since = Instant::now();
    assert_eq!((reload(&site[0]), reload(&site[1])), ((true, true), (true, true)));
    eventually("two are left", || [0, 1].iter().all(|host| site[*host].sees() == ["h0", "h1"]));
    talk.flows(&["h0", "h1"]);
    println!("two hosts without h2: events between them {} ms after the first command", since.elapsed().as_millis());
    eventually("it is alone", || site[2].sees() == ["h2"]);
    let since = Instant::now();
    talk.flows(&["h0", "h1"]);
    assert!(!talk.readers["h2"].hears("h0", since) && !talk.readers["h0"].hears("h2", since));
}

/// The applications are the same as before.
fn the_host_is_on_the_list_again_and_all_meet(site: &Site, talk: &Talk) {
    site.access(&list(MEMBERS, MEMBERS));
    let since = Instant::now();
    assert_eq!((reload(&site[0]), reload(&site[1]), reload(&site[2])), ((true, true), (true, true), (false, false)));
    site.all_meet();
    talk.flows(&ALL);
    println!("with h2 again: events between all {} ms after the first command", since.elapsed().as_millis());
}

#[test]
fn members_that_may_not_be_any_more_are_ended_and_told_why() {
    let Some(site) = three_members() else { return };
    let mut talk = Talk::of("video");
    [0, 2].iter().for_each(|host| talk.join(&site[*host]));
    let application = site[1].channels();
    let video = enter(&application, "video", &Spec::of(FORMAT));
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let mut sink = video.sink(&SinkOptions::default()).unwrap();
    eventually("it hears the others", || sink.next(Duration::from_millis(50)).unwrap().is_some());

    site.access(&list(MEMBERS, "'send'"));
    assert_eq!(reload(&site[1]), (true, false), "its own rights are its node's affair");
    let mut said = String::new();
    eventually("its application is told", || {
        said = application.next_notice().unwrap().map_or(String::new(), |notice| format!("{notice:?}"));
        said.contains("SinkEnded")
    });
    assert!(said.contains("this host may not join it any more, says the access list"), "{said}");
    [0, 2].iter().for_each(|host| assert_eq!(reload(&site[*host]), (true, true)));
    site.all_meet();
    talk.flows(&["h0", "h2"]);
    let since = Instant::now();
    eventually("it is heard as before", || {
        source.submit_and_wait(&Submission { payload: &[7; 8], ..Submission::default() }).unwrap();
        talk.readers["h0"].hears("h1", since)
    });
    let refused = video.sink(&SinkOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("h1 may not join on `video`: no rule of "), "{refused}");
}

#[test]
fn a_new_certificate_is_taken_without_a_restart() {
    let Some(site) = Site::started(&[0, 1]) else { return };
    let talk = Talk::start(site.hosts(), "video");
    talk.flows(&ALL[..2]);
    let file = site[1].folder.join("tls/h1.pem");
    let old = std::fs::read(&file).unwrap();
    std::fs::write(&file, "nonsense").unwrap();
    site[1].run(&["channel", "reload"]).expect(3, &["the previous ones stay in force", "h1.pem"]);
    std::fs::write(&file, &old).unwrap();
    assert_eq!(reload(&site[1]), (false, false));
    certificate(&site, "h1", -60, 10);
    let since = Instant::now();
    assert_eq!(reload(&site[1]), (true, true));
    talk.flows(&ALL[..2]);
    println!("by a new certificate: events {} ms after the command", since.elapsed().as_millis());

    eventually("it has expired", || site[0].sees() == ["h0"] && site[1].sees() == ["h1"]);
    // It is good to the end of its last second.
    eventually("it is refused", || site[1].run(&["channel", "reload"]).code == 3);
    site[1].run(&["channel", "reload"]).expect(3, &["the previous ones stay in force", "h1.pem", "it expired on"]);
    site.cli(&["channel", "issue", "h1", "--ca", "authority", "--out", "renewed"]);
    for end in ["pem", "key"] {
        let renewed = site.folder.path().join(format!("renewed/h1.{end}"));
        std::fs::copy(renewed, file.with_extension(end)).unwrap();
    }
    assert_eq!(reload(&site[1]), (true, true));
    talk.flows(&ALL[..2]);
}

#[test]
fn a_host_that_cannot_join_the_network_again_is_alone_and_says_so_until_it_can() {
    let Some(site) = Site::started(&[0, 1]) else { return };
    let talk = Talk::start(site.hosts(), "video");
    talk.flows(&ALL[..2]);
    site.access(&list(MEMBERS, MEMBERS));
    site.lan.give_address(1, false);
    let refused = site[1].run(&["channel", "reload"]);
    refused.expect(3, &["could not join the network", "10.78.0.2:7700", "it is alone", "qfabric channel reload"]);
    let since = Instant::now();
    eventually("its own applications go on", || talk.readers["h1"].hears("h1", since));
    eventually("the others know", || site[0].sees() == ["h0"]);
    site.lan.give_address(1, true);
    assert_eq!(reload(&site[1]), (true, true));
    talk.flows(&ALL[..2]);
}
