//! `qfabric channel ping`, between services of two hosts.

use crate::host::{Site, eventually};

#[test]
fn a_ping_is_answered_by_an_application_of_the_other_host_and_leaves_nothing_behind() {
    let Some(site) = Site::started(&[0, 0]) else { return };
    // At once, twice, and by two who ask at the same time.
    for _ in 0..2 {
        let mut other = site[0].command(&["channel", "ping", "h1", "--count", "50"]).spawn().unwrap();
        let answer = site[0].run(&["channel", "ping", "h1", "--count", "200", "--json"]).json();
        println!("{answer}");
        assert_eq!((&answer["sent"], &answer["host"]), (&200.into(), &"h1".into()));
        let (answered, lost) = (answer["answered"].as_u64().unwrap(), answer["lost"].as_u64().unwrap());
        assert!(answered > 0 && answered + lost == 200);
        for way in ["one_way", "one_way_back", "round_trip"] {
            let of = |part: &str| answer[way][part].as_f64().unwrap();
            assert!(0.0 < of("p50_us") && of("p50_us") <= of("p99_us"), "{way}");
        }
        assert!(other.wait().unwrap().success());
    }
    let text = site[1].run(&["channel", "ping", "h0", "--size", "16384", "--count", "5"]);
    text.expect(0, &["h0: ", " of 5 pings of 16384 B answered", "there", "back", "round trip"]);
    site[1].run(&["channel", "ping", "h1", "--count", "3"]).expect(0, &["h1: ", " of 3 pings"]);
    eventually("nobody asks, nobody answers", || {
        ["ping.h0", "ping.h1"].iter().all(|channel| site.hosts().iter().all(|host| host.show(channel).is_none()))
    });
}

#[test]
fn a_host_that_is_not_there_or_may_not_answer_is_named() {
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    site.access(
        "hosts = ['h0', 'h1']\n\
         [[rule]]\nchannels = ['*']\nhosts = ['h0']\nrights = ['create', 'join', 'send']\n\
         [[rule]]\nchannels = ['video']\nhosts = ['h1']\nrights = ['join']\n",
    );
    (0..2).for_each(|host| site.start(host, ""));
    site.all_meet();
    site[0].run(&["channel", "ping", "h7"]).expect(3, &["no host h7", "h0, h1"]);
    site[0].run(&["channel", "ping", "h1"]).expect(1, &["h1 did not open ping.h1 within 5 s", "access list"]);
    eventually("it says why", || site[1].log().contains("cannot answer pings"));
    site[0].run(&["channel", "ping", "h1", "--size", "31"]).expect(2, &["31"]);
}
