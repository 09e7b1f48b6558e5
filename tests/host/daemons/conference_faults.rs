//! Faults during a conference: the host that created its channels is killed, clocks step, and the host of a policy
//! starts again.

use std::process::Command;

use crate::clocks::{Monotonic, WallClock};
use crate::conference::Talker;
use crate::host::{Host, Site, eventually};

#[test]
fn the_conference_goes_on_when_the_creator_of_its_channels_is_killed() {
    let Some(mut site) = Site::started(&[0, 0, 0]) else { return };
    let creator = Talker::start(&site[2], &["join", "h0"]);
    for channel in ["video", "video.talk"] {
        eventually("it is created", || site[0].show(channel).is_some_and(|info| info.creator.as_str() == "h2"));
    }
    let mut server = Talker::serve(&site[0], &[]);
    let client = Talker::start(&site[1], &["join", "h0"]);
    creator.shows("frames", 0);
    client.shows("frames", 0);
    site.kill(2);
    eventually("it is known", || [0, 1].iter().all(|host| !site[*host].sees().contains(&"h2".to_owned())));
    server.say("quality 10");
    client.shows("a level that was set without the creator", 1);
    site.start(2, "");
    creator.until("frames at the creator, which is back", |second| second["shown"].as_u64() > Some(0));
}

/// Starts a policy of the server's host that lowers the quality in steps of one to 10, because a tenth of its rate is
/// generated.
fn lower_slowly(host: &Host) {
    let qualities: Vec<String> = (10..=90).rev().map(|quality: u32| quality.to_string()).collect();
    let ladder = format!("quality={}", qualities.join(","));
    let words = ["policy", "start", "adapt", "--channel", "video", "--rate", "100", "--ladder", &ladder];
    host.run(&words).expect(0, &["adapt"]);
}

const BY_POLICY: [&str; 3] = ["--level", "jpeg:90:176x144", "--by-policy"];

/// As after a reboot, which begins CLOCK_MONOTONIC again: the policy has readings of that host with later times.
#[test]
fn a_policy_hears_a_host_whose_clock_begins_again_a_day_earlier() {
    let Some(ahead) = Monotonic::ahead(86_400) else { return };
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    site.set_clock(1, ahead.options(), Vec::new());
    site.start(0, "");
    site.start(1, "");
    site.all_meet();
    let server = Talker::serve(&site[0], &BY_POLICY);
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.shows("frames", 0);
    lower_slowly(&site[0]);
    server.until("a first step", |second| second["level"] != "jpeg:90:176x144");
    drop(client);
    site.kill(1);
    site.set_clock(1, Vec::new(), Vec::new());
    site.start(1, "");
    site.all_meet();
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.until("frames", |second| second["shown"].as_u64() > Some(0));
    server.until("the minimum", |second| second["level"] == "jpeg:10:176x144");
    client.until("frames of the minimum", |second| second["shown"].as_u64() > Some(0));
}

/// The time of the wall clock in the last line of a host's log, as a text that sorts by time.
fn logged_time(host: &Host, name: &str) -> String {
    let words = ["policy", "start", "hold", "--channel", "video", "--rate", "1000", "--name", name];
    host.run(&words).expect(0, &[name]);
    host.run(&["policy", "stop", name]).expect(0, &[]);
    let is_wanted = |line: &str| line.contains("a policy was stopped") && line.contains(name);
    eventually("the end of the policy is logged", || host.log().lines().any(is_wanted));
    let log = host.log();
    let line = log.lines().rfind(|line| is_wanted(line)).unwrap();
    line[line.find("20").unwrap()..][.."2026-01-01T00:00:00".len()].to_owned()
}

#[test]
fn the_conference_goes_on_when_the_wall_clock_of_a_host_steps_a_day_forward_and_back() {
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    let clock = WallClock::new(site.folder.path());
    site.set_clock(1, Vec::new(), clock.environment());
    site.start(0, "");
    site.start(1, "");
    site.all_meet();
    let mut server = Talker::serve(&site[0], &["--level", "jpeg:50:176x144"]);
    let client = Talker::start(&site[1], &["join", "h0"]);
    client.shows("frames", 0);
    let evening = Command::new("date").args(["-u", "-d", "+12 hours", "+%FT%T"]).output().unwrap();
    let evening = String::from_utf8(evening.stdout).unwrap();
    for (steps, name) in [(1, "tomorrow"), (0, "today")] {
        clock.step(86_400 * steps);
        let time = logged_time(&site[1], name);
        assert_eq!(time.as_str() > evening.trim(), steps == 1, "{time} {evening}");
        server.say(&format!("quality {}", 10 + steps));
        server.until("the level", |second| second["level"] == format!("jpeg:{}:176x144", 10 + steps));
        client.until("frames after the step", |second| second["shown"].as_u64() > Some(0));
        site.kill(0);
        client.until("nothing is shown", |second| second["shown"] == 0);
        site.start(0, "");
        client.until("frames over a new connection", |second| second["shown"].as_u64() > Some(0));
    }
}

/// A policy of the configuration. Its records have ended with the daemon, so what it has decided is new.
#[test]
fn a_policy_decides_again_when_its_host_restarts() {
    let policy = "[[channels.policy]]\nkind = 'adapt'\nchannel = 'video'\nrate = 100.0\nladder = ['quality=90,40,20']";
    let Some(mut site) = Site::new(&[0, 0]) else { return };
    site.start(0, policy);
    site.start(1, "");
    site.all_meet();
    let server = Talker::serve(&site[0], &BY_POLICY);
    let client = Talker::start(&site[1], &["join", "h0"]);
    let decided = |site: &Site| {
        let list = site[0].run(&["policy", "ls", "--json"]).json();
        list[0]["decided"].as_array().is_some_and(|all| all.iter().any(|one| one["amount"] == 20))
    };
    for turn in ["the first run", "the second run"] {
        client.until(turn, |second| second["shown"].as_u64() > Some(0));
        eventually(turn, || decided(&site));
        server.until("the minimum", |second| second["level"] == "jpeg:20:176x144");
        site.kill(0);
        client.until("nothing is shown", |second| second["shown"] == 0);
        site.start(0, policy);
    }
    client.until("frames", |second| second["shown"].as_u64() > Some(0));
}
