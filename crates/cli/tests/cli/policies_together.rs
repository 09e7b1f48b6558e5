//! Policies that coordinate several applications, on real daemons: sync, media, balance and tree.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use qfabric_client::channel::{Channel, Channels, Notice, Registration, SinkOptions, SourceOptions, Spec, Submission};

use crate::channels::{FORMAT, Host, PATIENCE, live, two_hosts};
use crate::policies::connect;

/// Waits for a decision about a channel, an attribute and a subject, and returns the last amount. Calls `again` before
/// each check, to repeat the reports.
pub(crate) fn decided_amount(
    channels: &Channels,
    (about, attribute, subject): (&str, &str, &str),
    mut again: impl FnMut(),
) -> i64 {
    let (end, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    let wanted = |notice: &Notice| match notice {
        Notice::Decided { channel, attribute: of, subject: whom, amount } => {
            ((channel.as_str(), of.as_str(), whom.as_str()) == (about, attribute, subject)).then_some(*amount).flatten()
        }
        _ => None,
    };
    loop {
        again();
        std::thread::sleep(Duration::from_millis(50));
        seen.extend(std::iter::from_fn(|| channels.next_notice().unwrap()));
        if let Some(amount) = seen.iter().rev().find_map(wanted) {
            return amount;
        }
        assert!(Instant::now() < end, "{attribute} for {subject} of {about} is not among {seen:?}");
    }
}

fn sink(load: i64) -> SinkOptions {
    SinkOptions { attributes: [("load".to_owned(), load)].into(), ..SinkOptions::default() }
}

/// Two applications that show the events of the channel `video`, on two hosts.
struct Viewers {
    near: Registration,
    far: Registration,
}

impl Viewers {
    /// The far viewer needs more time until it can show an event.
    fn report_needs(&self) {
        self.near.report("app.show_need", 5_000_000).unwrap();
        self.far.report("app.show_need", 40_000_000).unwrap();
    }

    /// Waits until `host` is to show events when the far viewer can, with the margin. While only one viewer has
    /// reported, the delay is shorter.
    fn wait_for_common_delay(&self, channels: &Channels, host: &str) {
        let end = Instant::now() + PATIENCE;
        while decided_amount(channels, ("video", "app.show_delay", host), || self.report_needs()) != 50_000_000 {
            assert!(Instant::now() < end, "{host} does not wait for the other host");
        }
    }
}

/// Two applications of the group `lips`: the picture follows the sound.
struct Lips {
    sound: Registration,
    picture: Registration,
}

impl Lips {
    fn register(channels: &Channels) -> Lips {
        let [sound, picture] = ["sound", "picture"].map(|name| channels.register(name, "lips", &[]).unwrap());
        Lips { sound, picture }
    }

    /// The decision for the picture while the sound is at 10 s and the picture at `picture_ms`.
    fn decided(&self, channels: &Channels, attribute: &str, picture_ms: i64) -> i64 {
        decided_amount(channels, ("quality:group.lips", attribute, "picture"), || {
            self.sound.report("app.position", 10_000_000_000).unwrap();
            self.picture.report("app.position", picture_ms * 1_000_000).unwrap();
        })
    }
}

/// Starts policies with the same first words: the further words, the exit code, and words of the answer.
fn start_policies(host: &Host, first: &[&str], attempts: &[(&[&str], i32, &[&str])]) {
    for &(words, code, answer) in attempts {
        host.run(&[&["policy", "start"], first, words].concat()).expect(code, answer);
    }
}

#[test]
fn sinks_receive_the_time_to_show_and_players_the_speed_to_keep_in_step() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (ours, theirs) = (connect(&alpha), connect(&beta));
    expect_a_common_time_to_show((&alpha, &ours), &theirs);
    expect_a_picture_in_step_with_its_sound((&beta, &theirs));
}

fn expect_a_common_time_to_show((alpha, ours): (&Host, &Channels), theirs: &Channels) {
    let video = ours.create("video", &Spec::of(FORMAT)).unwrap();
    let _source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let _near = video.sink(&SinkOptions::default()).unwrap();
    let opened = theirs.open("video").unwrap();
    let _far = opened.sink(&SinkOptions::default()).unwrap();
    let [near, far] = [ours, theirs].map(|channels| channels.register("viewer", "video", &[]).unwrap());
    let viewers = Viewers { near, far };
    start_policies(
        alpha,
        &["sync", "--channel", "video"],
        &[
            (&["--margin", "2s"], 3, &["margin is 2 s", "0 ms to 1 s"]),
            (&[], 0, &["sync.video runs: shown together"]),
            (&["--name", "other"], 3, &["sync.video", "when events of `video` are shown"]),
        ],
    );
    viewers.wait_for_common_delay(theirs, "beta");
    viewers.wait_for_common_delay(ours, "alpha");
    alpha.run(&["policy", "ls"]).expect(0, &["sync.video: app.show_delay for all: 50 ms"]);
    let near = &viewers.near;
    assert!(near.report("cpu.run_queue", 1).is_err() && near.report("app.rate_milli", 1).is_err());
}

fn expect_a_picture_in_step_with_its_sound((host, channels): (&Host, &Channels)) {
    let lips = Lips::register(channels);
    start_policies(
        host,
        &["media", "--group", "lips", "--leader", "sound", "--follower"],
        &[
            (&["sound"], 3, &["keep in step with itself"]),
            (&["picture"], 0, &["media.lips runs: picture keeps within 80 ms of sound"]),
        ],
    );
    let begun = Instant::now();
    let skip = lips.decided(channels, "app.skip", 9_000);
    // The sound has continued to play until the position of the picture arrived.
    let most = 1_000_000_000 + begun.elapsed().as_nanos() as i64;
    assert!((1_000_000_000..=most).contains(&skip), "{skip}");
    let speed = lips.decided(channels, "app.speed_ppm", 9_800);
    assert!((1..=50_000).contains(&speed), "{speed}");
}

/// Waits until `channel` has this number of sinks on all hosts together.
fn wait_for_sinks(channel: &Channel, count: usize) {
    let end = Instant::now() + PATIENCE;
    while channel.look().unwrap().hosts.iter().map(|held| held.sinks.len()).sum::<usize>() < count {
        assert!(Instant::now() < end, "{count} sinks");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reports these numbers of requests, in this order.
fn report_all(server: &Registration, reports: &[(&str, i64)]) {
    reports.iter().for_each(|(attribute, number)| server.report(attribute, *number).unwrap());
}

/// Balances the requests of both hosts among their sinks.
fn start_balance(alpha: &Host, beta: &Host) {
    let start = ["balance", "--channel", "requests", "--patience", "2s", "--cancel"];
    let runs = "balance.requests runs: after 2 s to the 1 least loaded, the others cancelled";
    start_policies(
        alpha,
        &start,
        &[(&["--type", "call"], 3, &["call"]), (&["--copies", "0"], 3, &["copies is 0", "1 to 16"]), (&[], 0, &[runs])],
    );
    start_policies(beta, &start, &[(&[], 0, &[])]);
}

#[test]
fn a_request_that_waits_too_long_goes_to_the_least_loaded_sink() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (ours, theirs) = (connect(&alpha), connect(&beta));
    let requests = ours.create("requests", &Spec::of("struct request { long number; };")).unwrap();
    let source = requests.source_subscribe(&SourceOptions::default()).unwrap();
    let _own = requests.sink(&sink(0)).unwrap();
    let opened = theirs.open("requests").unwrap();
    let (mut busy, mut calm) = (opened.sink(&sink(9)).unwrap(), opened.sink(&sink(1)).unwrap());
    wait_for_sinks(&requests, 3);
    let [here, there] = [&ours, &theirs].map(|channels| channels.register("server", "requests", &[]).unwrap());
    start_balance(&alpha, &beta);
    let decided = |attribute: &str, again: &dyn Fn()| {
        decided_amount(&ours, ("quality:group.requests", attribute, "server"), again)
    };

    report_all(&here, &[("app.request", 6), ("app.begun", 6), ("app.request", 7)]);
    assert_eq!(decided("app.forward", &|| {}), 7, "a request that is served is not forwarded");
    let event = Submission { payload: &7i64.to_le_bytes(), ..Submission::default() };
    let sent = source.submit_and_wait(&event).unwrap();
    let fates = (sent.remote, sent.local, sent.filtered);
    assert_eq!(fates, (1, 0, 2), "the sink that forwards the request does not receive it");
    assert!(calm.next(PATIENCE).unwrap().is_some() && busy.next(Duration::from_millis(200)).unwrap().is_none());

    report_all(&here, &[("app.copy", 5)]);
    let begin = || report_all(&there, &[("app.copy", 5), ("app.begun", 5)]);
    assert_eq!(decided("app.drop", &begin), 5, "another server has begun the request");
    alpha.run(&["policy", "stop", "balance.requests"]).expect(0, &[]);
    assert_eq!(source.submit_and_wait(&event).unwrap().filtered, 0, "to all again");
}

#[test]
fn picture_and_sound_of_a_sink_are_degraded_equally() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (ours, theirs) = (connect(&alpha), connect(&beta));
    let channels = ["film", "sound"].map(|name| ours.create(name, &Spec::of(FORMAT)).unwrap());
    let _sources = channels.each_ref().map(|channel| channel.source_subscribe(&SourceOptions::default()).unwrap());
    let opened = ["film", "sound"].map(|name| theirs.open(name).unwrap());
    let _sinks = opened.each_ref().map(|channel| channel.sink(&SinkOptions::default()).unwrap());
    let _film = theirs.register("player", "film", &[("frame_rate", 10, 20)]).unwrap();
    let _sound = theirs.register("player", "sound", &[("frame_rate", 25, 50)]).unwrap();
    let start = ["policy", "start", "tree", "--name", "class", "--capacity", "200000", "--stream", "film:10000"];
    alpha.run(&[&start[..], &["--link", "film,sound"][..]].concat()).expect(3, &["`sound` is linked"]);
    let whole = [&start[..], &["--stream", "sound:2000", "--link-sinks", "film,sound"][..]].concat();
    alpha.run(&whole).expect(0, &["class runs: 200000 bit/s for film, sound; linked at each sink: film, sound"]);
    alpha.run(&["policy", "start", "roles", "--channel", "sound"]).expect(3, &["class", "at what rates `sound`"]);
    // The minima need 150000 bit/s. Half of the rest raises the film by a quarter of its range; the sound rises as far.
    let quarters = [("film".to_owned(), 12_500), ("sound".to_owned(), 31_250)];
    for (client, who) in [(&ours, "the source"), (&theirs, "the sink")] {
        let (end, mut rates) = (Instant::now() + PATIENCE, BTreeMap::new());
        while !quarters
            .iter()
            .all(|(channel, quarter)| rates.get(channel).is_some_and(|rate: &i64| (rate - quarter).abs() < 10))
        {
            assert!(Instant::now() < end, "{who}: {rates:?}");
            std::thread::sleep(Duration::from_millis(20));
            let notices = std::iter::from_fn(|| client.next_notice().unwrap());
            rates.extend(notices.filter_map(|notice| match notice {
                Notice::Decided { channel, amount: Some(amount), .. } => Some((channel, amount)),
                _ => None,
            }));
        }
    }
    alpha.run(&["channel", "show", "sound"]).expect(0, &["to beta: 31."]);
    alpha.run(&["policy", "ls"]).expect(0, &["class: app.rate_milli for film/beta: 12.5/s"]);
    alpha.run(&["policy", "stop", "class"]).expect(0, &[]);
    assert!(!alpha.run(&["channel", "show", "film"]).out.contains("12.5/s"), "no policy paces the channel any more");
}

#[test]
fn channel_sub_together_shows_events_at_the_decided_time() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let ours = connect(&alpha);
    let video = ours.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let mut reading = beta.subscribe(&["--together"]);
    alpha.run(&["policy", "start", "sync", "--channel", "video", "--margin", "30ms"]).expect(0, &[]);
    let event = Submission { payload: &[0; 8], ..Submission::default() };
    let end = Instant::now() + PATIENCE;
    let decided = loop {
        source.submit(&event).unwrap();
        std::thread::sleep(Duration::from_millis(40));
        let decided = alpha.run(&["policy", "ls", "--json"]).json()[0]["decided"].clone();
        if decided[0]["attribute"] == "app.show_delay" {
            break decided[0]["amount"].as_i64().unwrap();
        }
        assert!(Instant::now() < end, "{decided}");
    };
    // The time that the event needed to arrive, and the margin.
    assert!(decided > 30_000_000, "{decided}");
    assert_eq!(reading.line()["type"], "frame");
}
