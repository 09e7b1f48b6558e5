//! Bad input: the sender receives an error with the next step, the receiver counts it, and channels keep working.

use std::time::Duration;

use qfabric_client::ClientError;
use qfabric_client::channel::{Channels, Direction, Filter, FilterScope, SinkOptions, SourceOptions, Spec, Submission};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use time::OffsetDateTime;

use crate::host::{Host, OPEN, Site, eventually};
use crate::stranger;
use crate::talk::{FORMAT, Talk, enter};

/// A certificate of the authority that is valid from then to then, in seconds from now.
pub(crate) fn certificate(site: &Site, name: &str, from: i64, until: i64) {
    let authority = site.folder.path().join("authority");
    let read = |file: &str| std::fs::read_to_string(authority.join(file)).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), KeyPair::from_pem(&read("ca.key")).unwrap()).unwrap();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now + time::Duration::seconds(from);
    parameters.not_after = now + time::Duration::seconds(until);
    let key = KeyPair::generate().unwrap();
    let made = parameters.signed_by(&key, &issuer).unwrap();
    let tls = site.folder.path().join(name).join("tls");
    std::fs::write(tls.join(format!("{name}.pem")), made.pem()).unwrap();
    std::fs::write(tls.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

#[test]
fn a_daemon_whose_certificate_is_no_good_does_not_start_and_says_what_to_do() {
    let Some(mut site) = Site::new(&[0, 0, 0]) else { return };
    certificate(&site, "h0", -7200, -3600);
    site.refused(0, &["h0.pem", "it expired on", "qfabric channel issue h0"]);
    certificate(&site, "h0", 3600, 7200);
    site.refused(0, &["h0.pem", "valid from", "clock"]);
    let all = site.folder.path().to_owned();
    let tls = |host: &str| all.join(host).join("tls");
    std::fs::copy(tls("h1").join("h1.pem"), tls("h0").join("h0.pem")).unwrap();
    std::fs::copy(tls("h1").join("h1.key"), tls("h0").join("h0.key")).unwrap();
    site.refused(0, &["it is for the host h1, and this is h0"]);
    site.cli(&["channel", "init-ca", "other"]);
    std::fs::copy(all.join("other/ca.pem"), tls("h2").join("ca.pem")).unwrap();
    site.refused(2, &["it was not made by the authority"]);
    std::fs::write(
        tls("h1").join("access.toml"),
        "hosts = ['h1']\n[[rule]]\nchannels = ['video']\nhosts = ['h9']\nrights = []",
    )
    .unwrap();
    site.refused(1, &["access.toml", "h9", "not among `hosts`"]);
}

#[test]
fn hosts_that_do_not_belong_are_not_seen_and_read_in_their_log_why() {
    let Some(mut site) = Site::new(&[0, 0, 0, 1, 1]) else { return };
    let known = "hosts = ['h0', 'h1', 'h2', 'h4']\n";
    site.access(&format!("{known}{OPEN}"));
    let all = format!("hosts = ['h0', 'h3']\n{OPEN}");
    std::fs::write(site[3].folder.join("tls/access.toml"), all).unwrap();
    site.cli(&["channel", "init-ca", "other"]);
    std::fs::remove_dir_all(site[2].folder.join("tls")).unwrap();
    site.cli(&["channel", "issue", "h2", "--ca", "other", "--out", "h2/tls"]);
    std::fs::write(site[2].folder.join("tls/access.toml"), format!("{known}{OPEN}")).unwrap();

    let call = format!("connect = ['{}:7700']", site.lan.address(0));
    site.start_with(0, "");
    // Enough to start and to meet on a starving machine.
    certificate(&site, "h4", -60, 10);
    site.start_with(4, &call);
    eventually("who belongs is seen", || site[0].sees() == ["h0", "h4"] && site[4].sees() == ["h0", "h4"]);
    site.start_in(1, "another", &call);
    site.start_with(2, &call);
    site.start_with(3, &call);
    eventually("a certificate expires", || site[0].sees() == ["h0"] && site[4].sees() == ["h4"]);
    for (host, said) in [
        (1, "they are of another realm"),
        (2, "its certificate was made by another authority"),
        (3, "one of two access lists does not name the other"),
        (4, "this host's certificate has expired: make a new one with `qfabric channel issue`"),
        (0, "compare `realm`, and `hosts` in access.toml, on both"),
        (0, "refused the TLS handshake of another host; compare certificates, see its log"),
    ] {
        eventually(said, || site[host].log().contains(said));
        assert_eq!(site[host].sees().len(), 1);
    }
    // Of two it hears nothing, the two others it refuses again and again.
    eventually("they are counted", || site[0].metric("qfabric_channels_engine_refused") >= 4.0);
}

const MEMBERS: &str = "[[rule]]\nchannels = ['video']\nhosts = ['*']\nrights = ['create', 'join', 'send']\n";

/// The first host applies the rules of [`MEMBERS`]. The second one has a list by which it may do everything.
fn two_hosts_with_different_lists() -> Option<Site> {
    let mut site = Site::new(&[0, 1, 1])?;
    let hosts = "hosts = ['h0', 'h1', 'h2']";
    site.access(&format!("{hosts}\n{MEMBERS}"));
    std::fs::write(site[1].folder.join("tls/access.toml"), format!("{hosts}\n{OPEN}")).unwrap();
    site.start(0, "");
    site.start(1, "");
    site.all_meet();
    Some(site)
}

#[test]
fn channels_refuse_what_does_not_fit_and_live_on() {
    let Some(site) = two_hosts_with_different_lists() else { return };
    let talk = Talk::start(&site.hosts()[..2], "video");
    let flows = || talk.flows(&["h0", "h1"]);
    flows();

    expect_refused_commands(&site[0]);
    wrong_events_and_formats(&site[0]);
    flows();

    let cheat = site[1].channels();
    let _held = enter(&cheat, "cheat", &Spec::of(FORMAT));
    expect_no_channel_of_a_host_without_the_right(&site[0], "cheat");
    expect_no_filter_of_a_host_without_the_right(&site[0], &cheat);
    expect_no_filter_of_a_subscriber_without_the_right(&site[1]);
    flows();

    stranger::talks_nonsense(&site, 2, 0);
    expect_counted_strangers(&site[0]);
    flows();
    talk.balances(&site.hosts()[..2]);
}

const FORMATS: [(&str, &str); 3] = [
    ("frame.h", FORMAT),
    ("other.h", "struct frame { long number; int size; };"),
    ("large.h", "struct large { char data[20000]; };"),
];

/// Commands that do not fit, and words of their refusals.
const REFUSED_COMMANDS: [(&[&str], &[&str]); 4] = [
    (&["sub", "vdeo"], &["no channel `vdeo`", "qfabric channel ls"]),
    (
        &["pub", "audio", "--format", "frame.h", "--json", "/dev/null"],
        &["h0 may not create on `audio`: no rule of ", "access.toml gives it `create`, none names both"],
    ),
    (
        &["pub", "video", "--format", "other.h", "--json", "/dev/null"],
        &["other events of type `frame`", "number", "channel show video"],
    ),
    (&["pub", "large", "--format", "large.h", "--json", "/dev/null"], &["16384"]),
];

fn expect_refused_commands(host: &Host) {
    for (file, format) in FORMATS {
        std::fs::write(host.folder.join(file), format).unwrap();
    }
    for (words, said) in REFUSED_COMMANDS {
        host.run(&[&["channel"], words].concat()).expect(3, said);
    }
}

/// What another host allows itself, `host` does not believe.
fn expect_no_channel_of_a_host_without_the_right(host: &Host, channel: &str) {
    eventually("it is counted", || host.metric("qfabric_channels_forbidden") >= 1.0);
    assert!(host.show(channel).is_none());
    eventually("it is logged", || host.log().contains("a host requested an action that it may not do"));
}

fn expect_no_filter_of_a_host_without_the_right(host: &Host, cheat: &Channels) {
    let video = cheat.open("video").unwrap();
    let to = FilterScope::Hosts(vec![host.name.parse().unwrap()]);
    let filter = Filter { code: "return 0;".into(), to, ..Filter::default() };
    let counted = host.metric("qfabric_channels_forbidden");
    let answer = video.install(Direction::Out, "none", &filter).unwrap();
    let why = answer.hosts[0].refused.as_ref().unwrap();
    assert!(why.contains("h1 may not install filters on `video` there: no rule of "), "{why}");
    assert!(host.metric("qfabric_channels_forbidden") > counted);
}

fn expect_no_filter_of_a_subscriber_without_the_right(cheat: &Host) {
    std::fs::write(cheat.folder.join("none.ec"), "return 0;").unwrap();
    let shipped = ["channel", "sub", "video", "--out-filter", "none.ec"];
    cheat.run(&shipped).expect(3, &["h0 does not take the filter", "access.toml gives it `install`: rule 1 gives"]);
}

fn expect_counted_strangers(host: &Host) {
    for counter in ["other_version", "malformed", "stranger"] {
        eventually(counter, || host.metric(&format!("qfabric_channels_{counter}")) >= 1.0);
    }
    eventually("it is logged", || host.log().contains("a host speaks another version; bring both up to date"));
}

fn wrong_events_and_formats(host: &Host) {
    let channels = host.channels();
    let video = channels.open("video").unwrap();
    let long = SinkOptions { formats: "struct frame { long number; int size; };".into(), ..SinkOptions::default() };
    let said = video.sink(&long).unwrap_err().to_string();
    assert!(said.contains("frame") && said.contains("number") && said.contains("take the channel's format"), "{said}");
    let none = SinkOptions { types: vec!["sound".into()], ..SinkOptions::default() };
    let said = video.sink(&none).unwrap_err().to_string();
    assert!(said.contains("`sound`") && said.contains("it has `frame`"), "{said}");
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let submit = |payload: &[u8]| source.submit_and_wait(&Submission { payload, ..Submission::default() });
    let said = submit(&[0; 4]).unwrap_err().to_string();
    assert!(said.contains("4 bytes") && said.contains('8'), "{said}");
    let said = submit(&vec![0; (1 << 20) + 1]).unwrap_err();
    assert!(
        matches!(&said, ClientError::Value(why) if ["1048577", "1048576"].iter().all(|n| why.message.contains(n))),
        "{said}"
    );
    let sink = video.sink(&SinkOptions::default()).unwrap();
    let broken = Filter { code: "return input.colour;".into(), ..Filter::default() };
    let said = video.install(Direction::In, "broken", &broken).unwrap_err().to_string();
    assert!(said.contains("h0 may not install on `video`"), "{said}");
    // What reaches its own sink is an application's own affair.
    let own = Filter { sink: Some(sink.number().to_string()), ..broken };
    let said = video.install(Direction::In, "broken", &own).unwrap_err().to_string();
    assert!(said.contains("colour") && said.contains("line 1"), "{said}");
}

#[test]
fn of_two_channels_of_one_name_the_earlier_stands_whoever_made_it() {
    let Some(site) = Site::started(&[0, 1]) else { return };
    site.lan.trunk(false);
    eventually("each is alone", || site.hosts().iter().all(|host| host.sees().len() == 1));
    let applications = [site[0].channels(), site[1].channels()];
    let other = "struct frame { long number; };";
    let [a, b] = &applications;
    let first = [a.create("one", &Spec::of(FORMAT)).unwrap(), b.create("two", &Spec::of(FORMAT)).unwrap()];
    std::thread::sleep(Duration::from_millis(5));
    let second = [b.create("one", &Spec::of(other)).unwrap(), a.create("two", &Spec::of(other)).unwrap()];
    let sinks = [second[0].sink(&SinkOptions::default()).unwrap(), second[1].sink(&SinkOptions::default()).unwrap()];
    site.lan.trunk(true);
    for (channel, creator) in [("one", "h0"), ("two", "h1")] {
        eventually("both hosts say the same", || {
            let mut said = site.hosts().iter().filter_map(|host| host.show(channel));
            said.all(|info| info.creator.as_str() == creator && info.hosts.len() == 1)
        });
    }
    for (application, creator) in [(b, "h0"), (a, "h1")] {
        let notice = eventually_some(|| application.next_notice().unwrap());
        let said = format!("{notice:?}");
        assert!(
            said.contains(creator) && said.contains("before this host did, with other events; open that one"),
            "{said}"
        );
    }
    // What stands can be opened by who lost it.
    assert!(b.open("one").is_ok() && a.open("two").is_ok());
    drop((sinks, first));
}

fn eventually_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually("there is one", || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}
